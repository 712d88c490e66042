//! Language servers and MCP servers.

/// Language servers whose names do not say so.
pub const LANGUAGE_SERVERS: &[&str] = &[
    "bsl-language-server.jar",
    "ccls",
    "clangd",
    "cquery",
    "elixir-ls",
    "erlang_ls",
    "eslintServer.js",
    "expert",
    "fortls",
    "fsautocomplete",
    "gopls",
    "helm_ls",
    "intelephense",
    "jdtls",
    "kotlin-ls",
    "lexical",
    "marksman",
    "metals",
    "ngserver",
    "nil",
    "nimlangserver",
    "nixd",
    "ocamllsp",
    "OmniSharp",
    "OmniSharp.dll",
    "omnisharp",
    "perlnavigator",
    "pylsp",
    "pyls",
    "rls",
    "rust-analyzer",
    "rust-analyzer-proc-macro-srv",
    "serve-d",
    "solargraph",
    "sourcekit-lsp",
    "svelteserver",
    "terraform-ls",
    "texlab",
    "tinymist",
    "tsserver.js",
    "typingsInstaller.js",
    "vscode-html-languageservice",
    "vtsls",
    "zls",
];

/// Ends of names that say "language server".
pub const LANGUAGE_SERVER_ENDS: &[&str] = &[
    "-language-server",
    "-langserver",
    "-languageserver",
    "-language-server.js",
    "-langserver.js",
    "language_server.py",
    "-lsp",
    "-lsp-server",
    "-lsp.js",
    "_language_server",
    "_ls_server",
    "-language-server-wrapper",
    "lsp_server.py",
];

/// Programs that are a language server with this first argument, and something else without it.
pub const LANGUAGE_SERVER_COMMANDS: &[(&str, &str)] = &[
    ("biome", "lsp-proxy"),
    ("buf", "lsp"),
    ("cue", "lsp"),
    ("dart", "language-server"),
    ("deno", "lsp"),
    ("dprint", "lsp"),
    ("gleam", "lsp"),
    ("lake", "serve"),
    ("phpactor", "language-server"),
    ("pyrefly", "lsp"),
    ("regal", "language-server"),
    ("ruff", "server"),
    ("snyk", "language-server"),
    ("sqruff", "lsp"),
    ("sorbet", "lsp"),
    ("taplo", "lsp"),
    ("ty", "server"),
];

/// MCP servers whose names do not say so, by program or package.
pub const MCP_SERVERS: &[&str] = &["serena", "@upstash/context7", "firecrawl", "claude-context"];

/// Words after `mcp` that start a program of many uses as an MCP server.
pub const MCP_VERBS: &[&str] = &["gateway", "run", "serve", "server", "start", "stdio"];
