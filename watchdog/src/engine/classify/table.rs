//! What programs are called: the data of classification. One word a row, in the order of the alphabet where there is none.

/// Browsers that people use too, by the name of the file.
pub(super) const PERSONS_BROWSERS: &[&str] = &[
    "brave",
    "brave-browser",
    "chrome",
    "chromium",
    "chromium-browser",
    "firefox",
    "firefox-bin",
    "firefox-esr",
    "google-chrome",
    "google-chrome-beta",
    "google-chrome-stable",
    "google-chrome-unstable",
    "microsoft-edge",
    "microsoft-edge-stable",
    "msedge",
];

/// Browsers that only programs use, drivers and helpers of browsers, by the name of the file.
pub(super) const DRIVEN_BROWSERS: &[&str] = &[
    "agent-browser",
    "camoufox",
    "camoufox-bin",
    "chrome-headless-shell",
    "chrome_crashpad_handler",
    "chromedriver",
    "chromium-headless-shell",
    "geckodriver",
    "headless_shell",
    "lightpanda",
    "MiniBrowser",
    "msedgedriver",
    "nacl_helper",
    "playwright-cli",
    "WebKitWebDriver",
    "WPENetworkProcess",
    "WPEWebProcess",
    "Xvfb",
];

/// Beginnings of a browser's or driver's file name: the rest is a platform.
pub(super) const BROWSER_PREFIXES: &[&str] = &["agent-browser-linux", "chrome-headless-shell-"];

/// Scripts that are a browser's daemon or driver.
pub(super) const BROWSER_SCRIPTS: &[&str] = &["cliDaemon.js", "agent-browser.js"];

/// Directories that hold nothing but browsers.
pub(super) const BROWSER_DIRECTORIES: &[&str] = &["/ms-playwright/", "/.cache/puppeteer/", "/.cache/camoufox/"];

/// Options of browsers that a program gives and no person does.
pub(super) const AUTOMATION_OPTIONS: &[&str] = &[
    "--enable-automation",
    "--headless",
    "-headless",
    "--inspector-pipe",
    "-juggler",
    "-juggler-pipe",
    "--marionette",
    "-marionette",
    "--no-first-run",
    "--profile",
    "-profile",
    "--remote-debugging-pipe",
    "--remote-debugging-port",
    "--test-type",
    "--user-data-dir",
];

/// Commands that open a file or an address in a desktop's program for it.
pub(super) const DESKTOP_OPENERS: &[&str] = &[
    "exo-open",
    "gio",
    "gnome-open",
    "gtk-launch",
    "kde-open",
    "kde-open5",
    "kde-open6",
    "sensible-browser",
    "www-browser",
    "x-www-browser",
    "xdg-open",
];

/// Programs that change something in steps of which half are worse than none.
pub(super) const NOT_HALF_DONE: &[&str] = &[
    "apk",
    "apt",
    "apt-get",
    "cryptsetup",
    "dnf",
    "dpkg",
    "fsck",
    "mysqldump",
    "pacman",
    "pg_dump",
    "pg_restore",
    "pg_upgrade",
    "pulumi",
    "resize2fs",
    "rpm",
    "terraform",
    "terragrunt",
    "tofu",
    "unattended-upgrade",
    "update-initramfs",
    "yum",
    "zypper",
];

/// Language servers whose names do not say so.
pub(super) const LANGUAGE_SERVERS: &[&str] = &[
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
pub(super) const LANGUAGE_SERVER_ENDS: &[&str] = &[
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
pub(super) const LANGUAGE_SERVER_COMMANDS: &[(&str, &str)] = &[
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
pub(super) const MCP_SERVERS: &[&str] = &["serena", "@upstash/context7", "firecrawl", "claude-context"];

/// What stands after `mcp` when a program of many uses is started as an MCP server.
pub(super) const MCP_VERBS: &[&str] = &["gateway", "run", "serve", "server", "start", "stdio"];

/// Runners of packages: the program that counts is the package's.
pub(super) const PACKAGE_RUNNERS: &[&str] = &["bunx", "npx", "pnpx", "uvx"];

/// Runners of packages that need a verb.
pub(super) const PACKAGE_RUNNER_VERBS: &[(&str, &[&str])] = &[
    ("npm", &["exec", "x"]),
    ("pnpm", &["dlx", "exec"]),
    ("yarn", &["dlx", "exec"]),
    ("bun", &["x"]),
    ("uv", &["run", "tool"]),
    ("pipx", &["run"]),
    ("poetry", &["run"]),
    ("hatch", &["run"]),
    ("pixi", &["run", "exec"]),
    ("mise", &["exec", "x"]),
];

/// Options of package runners that take a value.
pub(super) const RUNNER_OPTIONS_WITH_VALUE: &[&str] = &[
    "--cache",
    "--call",
    "--directory",
    "--env-file",
    "--extra",
    "--from",
    "--group",
    "--index",
    "--index-url",
    "--package",
    "--prefix",
    "--project",
    "--python",
    "--refresh-package",
    "--registry",
    "--spec",
    "--with",
    "--with-editable",
    "--with-requirements",
    "-c",
    "-p",
    "-w",
];

/// Programs that start the rest of their command line and wait.
pub(super) const PREFIX_COMMANDS: &[&str] = &[
    "chrt",
    "dotenvx",
    "dumb-init",
    "ionice",
    "nice",
    "nohup",
    "setsid",
    "stdbuf",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "tini",
    "xvfb-run",
];

/// Packages that agents run through a package runner as a tool.
pub(super) const TOOL_PACKAGES: &[&str] = &[
    "@biomejs/biome",
    "@playwright/test",
    "astro",
    "ava",
    "babel",
    "biome",
    "black",
    "c8",
    "ccstatusline",
    "ccusage",
    "concurrently",
    "cowsay",
    "cypress",
    "drizzle-kit",
    "esbuild",
    "eslint",
    "expo",
    "http-server",
    "husky",
    "jest",
    "knip",
    "lerna",
    "lint-staged",
    "live-server",
    "mocha",
    "mypy",
    "next",
    "node-gyp",
    "nodemon",
    "nuxt",
    "nx",
    "nyc",
    "oxlint",
    "parcel",
    "playwright",
    "pm2",
    "prettier",
    "prisma",
    "pyright",
    "pytest",
    "rimraf",
    "rollup",
    "ruff",
    "semantic-release",
    "serve",
    "storybook",
    "stylelint",
    "supabase",
    "swc",
    "tailwindcss",
    "tap",
    "ts-node",
    "tsc",
    "tsup",
    "tsx",
    "turbo",
    "typedoc",
    "typescript",
    "vercel",
    "vite",
    "vitest",
    "vue-tsc",
    "webpack",
    "wrangler",
];

/// Programs that a tool call runs. Their arguments are no commands: `grep mcp run` serves nothing.
#[rustfmt::skip]
pub(super) const TOOLS: &[&str] = &[
    "7z", "ag", "ar", "as", "ash", "awk", "basename", "bash", "bat", "bazel", "bfs", "biome", "black", "bun", "c++",
    "cargo", "cat", "cc", "cc1", "cc1plus", "chmod", "chown", "clang", "clang++", "clippy-driver", "cmake", "code",
    "collect2", "comm", "cp", "ctest", "curl", "cut", "dash", "date", "dd", "df", "diff", "dirname", "dotnet", "du",
    "ed", "egrep", "emacs", "env", "esbuild", "eslint", "eza", "false", "fd", "fgrep", "file", "find", "fish", "fzf",
    "g++", "gcc", "gh", "git", "git-remote-https", "go", "gofmt", "gradle", "grep", "gunzip", "gzip", "head", "hg",
    "hx", "id", "install", "java", "javac", "jest", "jq", "just", "kill", "ksh", "ld", "ld.lld", "less", "ln", "ls",
    "lsof", "make", "mkdir", "mktemp", "mold", "more", "mv", "mvn", "mypy", "nano", "next", "ninja", "node", "npm",
    "nvim", "openssl", "patch", "perl", "php", "pip", "pip3", "pnpm", "prettier", "printf", "ps", "pytest", "python",
    "python3", "readlink", "realpath", "rg", "rm", "rmdir", "rsync", "ruby", "ruff", "rustc", "rustdoc", "rustfmt",
    "sccache", "scp", "sed", "seq", "sh", "sha256sum", "shasum", "sleep", "sort", "sqlite3", "ssh", "stat", "strace",
    "sudo", "svn", "tail", "tar", "task", "tee", "test", "timeout", "touch", "tr", "tree", "tsc", "turbo", "ugrep",
    "uniq", "unzip", "uv", "vi", "view", "vim", "vite", "vitest", "watch", "wc", "webpack", "wget", "which", "whoami",
    "xargs", "xxd", "yarn", "yes", "yq", "zip", "zsh",
];

/// Agent programs by their own name or package, with the leading words that make them a server of another program.
pub(super) const AGENT_SERVERS: &[(&[&str], &[&[&str]])] = &[
    (&["claude", "claude.exe", "@anthropic-ai/claude-code"], &[&["mcp", "serve"]]),
    (&["codex", "@openai/codex"], &[&["mcp-server"], &["mcp", "serve"], &["app-server"], &["exec-server"]]),
    (&["gemini", "@google/gemini-cli", "qwen", "@qwen-code/qwen-code"], &[&["--acp"], &["--experimental-acp"]]),
    (&["opencode", "opencode.exe"], &[&["acp"], &["serve"], &["web"]]),
    (&["copilot", "@github/copilot"], &[&["--acp"], &["--server"], &["--headless"]]),
    (&["cline"], &[&["--acp"], &["acp"]]),
    (&["goose", "goosed"], &[&["acp"], &["agent"], &["serve"], &["web"]]),
    (&["cursor-agent", "agent", "index.js"], &[&["acp"], &["--acp"]]),
    (&["openclaw", "openclaw.mjs"], &[&["acp"], &["mcp", "serve"]]),
];

/// Agent programs whose `mcp serve` lends tools.
pub(super) const TOOL_LENDERS: &[&str] = &["claude", "claude.exe", "@anthropic-ai/claude-code"];

/// Options of agent programs that take a value, so that it is not taken for the first word.
pub(super) const AGENT_OPTIONS_WITH_VALUE: &[&str] = &[
    "--add-dir",
    "--allowedTools",
    "--approval-mode",
    "--cd",
    "--config",
    "--cwd",
    "--disable",
    "--disallowedTools",
    "--enable",
    "--log-level",
    "--mcp-config",
    "--model",
    "--permission-mode",
    "--profile",
    "--session-id",
    "--settings",
    "--setting-sources",
    "-C",
    "-c",
    "-m",
];

/// Daemons of agents that are meant to outlive the agent that started them: name or package, and the leading words.
pub(super) const AGENT_DAEMONS: &[(&[&str], &[&[&str]])] = &[
    (&["claude", "claude.exe", "@anthropic-ai/claude-code"], &[&["daemon", "run"]]),
    (&["codex"], &[&["app-server", "daemon"]]),
    (&["cline"], &[&["--cline-hub-daemon"]]),
    (
        &["claude-flow", "claude-flow.js", "@claude-flow/cli", "ruflo", "ruflo.js"],
        &[&["daemon", "start"], &["daemon", "run"]],
    ),
    (&["worker-service.cjs"], &[&["--daemon"]]),
    (&["openclaw", "openclaw.mjs"], &[&["gateway"]]),
    (&["openclaw-gateway"], &[&[]]),
];

/// A switch that makes any codex app-server the managed daemon, wherever it stands among the options.
pub(super) const CODEX_MANAGED_DAEMON: &str = "--managed-daemon";

/// Build servers by the name of the file or script, whatever the arguments.
pub(super) const BUILD_SERVERS: &[(&str, &str)] = &[
    ("VBCSCompiler", "the .NET compiler server"),
    ("VBCSCompiler.dll", "the .NET compiler server"),
    ("bloop.BloopServer", "Bloop"),
    ("bloop.Bloop", "Bloop"),
    ("buck2d", "the Buck2 daemon"),
    ("distccd", "distcc"),
    ("git-fsmonitor--daemon", "git's file system monitor"),
    ("org.gradle.launcher.daemon.bootstrap.GradleDaemon", "the Gradle daemon"),
    ("org.jetbrains.kotlin.daemon.KotlinCompileDaemon", "the Kotlin compile daemon"),
    ("org.mvndaemon.mvnd.common.MavenDaemon", "the Maven daemon"),
    ("org.mvndaemon.mvnd.daemon.MavenDaemon", "the Maven daemon"),
    ("reproxy", "reclient"),
];

/// Build servers by name and first argument.
pub(super) const BUILD_SERVERS_BY_ARGUMENT: &[(&str, &str, &str)] = &[
    ("adb", "fork-server", "the Android debug bridge"),
    ("buck2", "daemon", "the Buck2 daemon"),
    ("git", "fsmonitor--daemon", "git's file system monitor"),
    ("rzc.dll", "server", "the Razor server"),
    ("sccache", "--start-server", "sccache"),
    ("spring", "server", "Spring"),
    ("turbo", "daemon", "the Turborepo daemon"),
    ("flow", "start", "the Flow server"),
];

/// Ends of the paths of scripts that are a build server.
pub(super) const BUILD_SERVER_SCRIPTS: &[(&str, &str)] = &[
    ("/nx/src/daemon/server/start.js", "the Nx daemon"),
    ("/nx/dist/src/daemon/server/start.js", "the Nx daemon"),
    ("/eslint_d/lib/daemon.js", "eslint_d"),
    ("/@fsouza/prettierd/dist/prettierd.js", "prettierd"),
];

/// Beginnings of comm or argv[0] of build servers that name their directory there: `bazel(dir)`.
/// The executables that write them stand last.
pub(super) const BUILD_SERVER_TITLES: &[(&str, &str, &[&str])] = &[
    ("bazel(", "the Bazel server", &["java", "bazel"]),
    ("blaze(", "the Bazel server", &["java", "blaze"]),
    ("buck2d[", "the Buck2 daemon", &["buck2"]),
    ("pantsd [", "the Pants daemon", &["python", "pants", "scie"]),
    ("spring server", "Spring", &["ruby", "spring"]),
];

/// Daemons of a user's session, which agents start by accident.
pub(super) const USER_DAEMONS: &[(&str, &str)] = &[
    ("at-spi-bus-launcher", "the accessibility bus"),
    ("at-spi2-registryd", "the accessibility bus"),
    ("catatonit", "podman's pause process"),
    ("code", "the user's editor"),
    ("code-insiders", "the user's editor"),
    ("code-oss", "the user's editor"),
    ("codium", "the user's editor"),
    ("conmon", "podman's container monitor"),
    ("cursor", "the user's editor"),
    ("dbus-broker", "D-Bus"),
    ("dbus-broker-launch", "D-Bus"),
    ("dbus-daemon", "D-Bus"),
    ("dbus-launch", "D-Bus"),
    ("dconf-service", "dconf"),
    ("dirmngr", "GnuPG"),
    ("gcr-ssh-agent", "ssh-agent"),
    ("git-credential-cache--daemon", "git's credential cache"),
    ("gnome-keyring-daemon", "the keyring"),
    ("gpg-agent", "gpg-agent"),
    ("gvfsd", "GVfs"),
    ("ibus-daemon", "the input method"),
    ("keyboxd", "GnuPG"),
    ("kwalletd5", "the keyring"),
    ("kwalletd6", "the keyring"),
    ("pipewire", "PipeWire"),
    ("pipewire-pulse", "PipeWire"),
    ("pulseaudio", "PulseAudio"),
    ("rootlessport", "podman's port forwarder"),
    ("scdaemon", "GnuPG"),
    ("slirp4netns", "podman's network"),
    ("pasta", "podman's network"),
    ("pasta.avx2", "podman's network"),
    ("ssh-agent", "ssh-agent"),
    ("windsurf", "the user's editor"),
    ("wireplumber", "PipeWire"),
    ("wl-copy", "the clipboard"),
    ("xclip", "the clipboard"),
    ("xdg-desktop-portal", "the desktop portal"),
    ("xsel", "the clipboard"),
    ("zed-editor", "the user's editor"),
];

/// Scripts of an editor's server, which stays for some time to be reconnected to.
pub(super) const EDITOR_SERVER_SCRIPTS: &[&str] = &["server-main.js", "bootstrap-fork", "bootstrap-fork.js"];

/// Programs that hold terminals for people to come back to.
pub(super) const MULTIPLEXERS: &[(&str, &str)] = &[
    ("abduco", "abduco"),
    ("dtach", "dtach"),
    ("mosh-server", "mosh"),
    ("SCREEN", "screen"),
    ("wezterm-mux-server", "wezterm"),
];

/// Clients of container engines.
pub(super) const CONTAINER_CLIENTS: &[&str] = &["docker", "finch", "nerdctl", "podman"];

/// Those that start several at once.
pub(super) const COMPOSE_CLIENTS: &[&str] = &["docker-compose", "podman-compose"];

/// Crash handlers: they end when the last process that they watch has ended.
pub(super) const CRASH_HANDLERS: &[&str] = &["chrome_crashpad_handler", "crashpad_handler"];
