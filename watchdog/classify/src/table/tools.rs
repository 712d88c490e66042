//! Programs that do one job and exit, and programs that start other programs.

/// Programs that a tool call runs. Their arguments are no commands: `grep mcp run` serves nothing.
#[rustfmt::skip]
pub const TOOLS: &[&str] = &[
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

/// Packages that agents run through a package runner as a tool.
pub const TOOL_PACKAGES: &[&str] = &[
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

/// Compilers, linkers and their stages. A build tool starts as many as it was allowed to, and each exits soon.
#[rustfmt::skip]
pub const COMPILERS: &[&str] = &[
    "as", "asm", "c++", "cc", "cc1", "cc1obj", "cc1plus", "cgo", "cicc", "clang", "clang++", "clippy-driver", "collect2",
    "compile", "cudafe++", "f951", "g++", "gcc", "gfortran", "ghc", "gold", "javac", "kotlinc", "ld", "ld.gold", "ld.lld",
    "link", "lld", "lto1", "lto-wrapper", "mold", "nvcc", "ocamlopt", "ptxas", "rust-lld", "rustc", "rustdoc", "scalac",
    "swift-frontend", "swiftc", "wild", "zig",
];

/// Programs that change something in steps of which half are worse than none.
pub const NOT_HALF_DONE: &[&str] = &[
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

pub const CONTAINER_CLIENTS: &[&str] = &["docker", "finch", "nerdctl", "podman"];

/// Container clients that start several containers at once.
pub const COMPOSE_CLIENTS: &[&str] = &["docker-compose", "podman-compose"];

/// Runners of packages: the program that counts is the package's.
pub const PACKAGE_RUNNERS: &[&str] = &["bunx", "dnx", "npx", "pnpx", "uvx"];

/// Runners of packages that need a verb.
pub const PACKAGE_RUNNER_VERBS: &[(&str, &[&str])] = &[
    ("npm", &["exec", "x"]),
    ("pnpm", &["dlx", "exec"]),
    ("yarn", &["dlx", "exec"]),
    ("bun", &["x"]),
    ("uv", &["run", "tool"]),
    ("pipx", &["run"]),
    ("poetry", &["run"]),
    ("pdm", &["run"]),
    ("pipenv", &["run"]),
    ("rye", &["run"]),
    ("conda", &["run"]),
    ("mamba", &["run"]),
    ("micromamba", &["run"]),
    ("bundle", &["exec"]),
    ("asdf", &["exec"]),
    ("deno", &["x"]),
    ("go", &["run"]),
    ("fnm", &["exec"]),
    ("volta", &["run"]),
    ("doppler", &["run"]),
    ("op", &["run"]),
    ("hatch", &["run"]),
    ("pixi", &["run", "exec"]),
    ("mise", &["exec", "x"]),
];

/// Runners with `exec` of installed programs, as a shell would run them.
pub const INSTALLED_RUNNERS: &[&str] = &["asdf", "bundle", "fnm"];

/// Runners whose command may stand behind `--`, after options and tools.
pub const RUNNERS_TO_DASHES: &[&str] = &["doppler", "mise", "op"];

/// Programs that start the rest of their command line and wait.
pub const PREFIX_COMMANDS: &[&str] = &[
    "bwrap",
    "catatonit",
    "cgexec",
    "choom",
    "chrt",
    "corepack",
    "doas",
    "dotenvx",
    "dumb-init",
    "eatmydata",
    "fakeroot",
    "firejail",
    "ionice",
    "nice",
    "nohup",
    "numactl",
    "prlimit",
    "proxychains4",
    "runuser",
    "setarch",
    "setpriv",
    "setsid",
    "stdbuf",
    "strace",
    "sudo",
    "systemd-inhibit",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "tini",
    "torsocks",
    "ts-node",
    "tsx",
    "unbuffer",
    "unshare",
    "xvfb-run",
];
