//! Options that take the next argument as their value: of interpreters, and of package runners.

use super::runtime::Runtime;

#[rustfmt::skip]
const NODE: &[&str] = &[
    "-C", "-r", "--allow-fs-read", "--allow-fs-write", "--build-sea", "--build-snapshot-config", "--conditions",
    "--cpu-prof-dir", "--cpu-prof-interval", "--cpu-prof-name", "--diagnostic-dir", "--disable-proto", "--disable-warning",
    "--dns-result-order", "--env-file", "--env-file-if-exists", "--experimental-config-file", "--experimental-default-type",
    "--experimental-loader", "--experimental-policy", "--experimental-sea-config", "--heap-prof-dir", "--heap-prof-interval",
    "--heap-prof-name", "--heapsnapshot-near-heap-limit", "--heapsnapshot-signal", "--icu-data-dir", "--import",
    "--input-type", "--inspect-port", "--inspect-publish-uid", "--loader", "--localstorage-file", "--max-http-header-size",
    "--network-family-autoselection-attempt-timeout", "--openssl-config", "--policy-integrity", "--redirect-warnings",
    "--report-dir", "--report-directory", "--report-filename", "--report-signal", "--require", "--secure-heap",
    "--secure-heap-min", "--snapshot-blob", "--test-concurrency", "--test-coverage-branches", "--test-coverage-exclude",
    "--test-coverage-functions", "--test-coverage-include", "--test-coverage-lines", "--test-global-setup",
    "--test-isolation", "--test-name-pattern", "--test-reporter", "--test-reporter-destination", "--test-shard",
    "--test-skip-pattern", "--test-timeout", "--title", "--tls-cipher-list", "--tls-keylog", "--trace-event-categories",
    "--trace-event-file-pattern", "--unhandled-rejections", "--use-largepages", "--v8-pool-size", "--watch-kill-signal",
    "--watch-path",
];

#[rustfmt::skip]
const BUN: &[&str] = &[
    "-F", "-c", "-d", "-l", "-r", "-u", "--conditions", "--config", "--console-depth", "--cpu-prof-dir", "--cpu-prof-name",
    "--cwd", "--define", "--dns-result-order", "--drop", "--elide-lines", "--env-file", "--extension-order",
    "--fetch-preconnect", "--filter", "--import", "--install", "--jsx-factory", "--jsx-fragment", "--jsx-import-source",
    "--jsx-runtime", "--loader", "--main-fields", "--max-http-header-size", "--origin", "--port", "--preload", "--require",
    "--shell", "--title", "--tsconfig-override", "--unhandled-rejections", "--user-agent",
];

/// Its other options take a value behind `=` only.
#[rustfmt::skip]
const DENO: &[&str] = &[
    "-L", "-c", "--cert", "--conditions", "--config", "--ext", "--host", "--import", "--import-map", "--location", "--lock",
    "--log-level", "--minimum-dependency-age", "--port", "--preload", "--require", "--seed",
];

const PYTHON: &[&str] = &["-W", "-X", "--check-hash-based-pycs"];

#[rustfmt::skip]
const RUBY: &[&str] = &[
    "-C", "-E", "-I", "-r", "--disable", "--dump", "--enable", "--encoding", "--external-encoding", "--internal-encoding",
];

const PERL: &[&str] = &["-I"];

const PHP: &[&str] = &["-c", "-d", "-t", "-z", "--define", "--php-ini"];

const SHELL: &[&str] = &["-o", "+o", "-O", "+O", "--rcfile", "--init-file"];

#[rustfmt::skip]
const JAVA: &[&str] = &[
    "-classpath", "-cp", "-p", "--add-exports", "--add-modules", "--add-opens", "--add-reads", "--class-path",
    "--enable-native-access", "--limit-modules", "--module-path", "--patch-module", "--source", "--upgrade-module-path",
];

const DOT_NET: &[&str] =
    &["--depsfile", "--runtimeconfig", "--additionalprobingpath", "--fx-version", "--roll-forward"];

#[rustfmt::skip]
const NPM: &[&str] = &[
    "-p", "-w", "--before", "--cache", "--globalconfig", "--loglevel", "--node-options", "--package", "--prefix",
    "--registry", "--script-shell", "--tag", "--userconfig", "--workspace",
];

#[rustfmt::skip]
const PNPM: &[&str] = &[
    "-C", "-F", "--allow-build", "--cpu", "--dir", "--filter", "--filter-prod", "--libc", "--loglevel", "--os", "--package",
    "--registry", "--reporter", "--store-dir",
];

const YARN: &[&str] = &["-p", "--cache-folder", "--cwd", "--modules-folder", "--package", "--registry"];

const BUNX: &[&str] = &["-c", "-p", "--config", "--cwd", "--env-file", "--package"];

#[rustfmt::skip]
const UV: &[&str] = &[
    "-C", "-P", "-b", "-c", "-f", "-i", "-p", "-w", "--allow-insecure-host", "--build-constraints", "--cache-dir", "--color",
    "--config-file", "--config-setting", "--config-settings-package", "--constraints", "--default-index", "--directory",
    "--env-file", "--exclude-newer", "--exclude-newer-package", "--extra", "--extra-index-url", "--find-links",
    "--fork-strategy", "--from", "--group", "--index", "--index-strategy", "--index-url", "--keyring-provider",
    "--link-mode", "--no-binary-package", "--no-build-isolation-package", "--no-build-package", "--no-extra", "--no-group",
    "--no-sources-package", "--only-group", "--overrides", "--package", "--prerelease", "--project", "--python",
    "--python-platform", "--python-preference", "--refresh-package", "--reinstall-package", "--resolution",
    "--torch-backend", "--upgrade-package", "--with", "--with-editable", "--with-requirements",
];

const PIPX: &[&str] = &["-i", "--backend", "--index-url", "--pip-args", "--python", "--spec", "--with"];

#[rustfmt::skip]
const PROJECT_RUNNERS: &[&str] = &[
    "-C", "-E", "-P", "-c", "-e", "-j", "-p", "-s", "-w", "--cd", "--channel", "--directory", "--env", "--environment",
    "--jobs", "--manifest-path", "--platform", "--project", "--spec", "--with",
];

/// Runners in an environment: of conda, and of versions of node and others.
const ENVIRONMENT_RUNNERS: &[&str] =
    &["-n", "-p", "--bundled-npm", "--cwd", "--name", "--node", "--npm", "--prefix", "--pnpm", "--using", "--yarn"];

/// Of the clients of container engines themselves, and of their `run`, `exec` and `compose`.
#[rustfmt::skip]
const CONTAINERS: &[&str] = &[
    "-H", "-a", "-c", "-e", "-f", "-h", "-l", "-m", "-p", "-u", "-v", "-w", "--add-host", "--annotation", "--arch",
    "--attach", "--authfile", "--blkio-weight", "--cap-add", "--cap-drop", "--cgroup-parent", "--cgroupns", "--cidfile",
    "--config", "--connection", "--context", "--cpu-period", "--cpu-quota", "--cpu-shares", "--cpus", "--cpuset-cpus",
    "--cpuset-mems", "--creds", "--detach-keys", "--device", "--dns", "--dns-option", "--dns-search", "--domainname",
    "--entrypoint", "--env", "--env-file", "--expose", "--file", "--gidmap", "--gpus", "--group-add", "--health-cmd",
    "--health-interval", "--health-retries", "--health-start-period", "--health-timeout", "--host", "--hostname",
    "--index", "--ip", "--ip6", "--ipc", "--isolation", "--label", "--label-file", "--link", "--log-driver",
    "--log-level", "--log-opt", "--mac-address", "--memory", "--memory-reservation", "--memory-swap",
    "--memory-swappiness", "--mount", "--name", "--namespace", "--net", "--network", "--network-alias",
    "--oom-score-adj", "--os", "--pid", "--pids-limit", "--platform", "--pod", "--profile", "--project-directory",
    "--project-name", "--publish", "--pull", "--restart", "--runtime", "--secret", "--security-opt", "--shm-size",
    "--stop-signal", "--stop-timeout", "--storage-opt", "--sysctl", "--tmpfs", "--uidmap", "--ulimit", "--umask",
    "--user", "--userns", "--uts", "--variant", "--volume", "--volume-driver", "--volumes-from", "--workdir",
];

/// `go run`.
#[rustfmt::skip]
const GO: &[&str] = &[
    "-C", "-asmflags", "-covermode", "-coverpkg", "-exec", "-gcflags", "-ldflags", "-mod", "-modfile", "-overlay",
    "-p", "-pgo", "-pkgdir", "-tags", "-toolexec",
];

/// Package runners and clients of container engines, and their options with a value.
const RUNNERS: &[(&str, &[&str])] = &[
    ("bun", BUNX),
    ("bundle", &["--gemfile"]),
    ("bunx", BUNX),
    ("conda", ENVIRONMENT_RUNNERS),
    ("docker", CONTAINERS),
    ("finch", CONTAINERS),
    ("fnm", ENVIRONMENT_RUNNERS),
    ("go", GO),
    ("hatch", PROJECT_RUNNERS),
    ("mamba", ENVIRONMENT_RUNNERS),
    ("micromamba", ENVIRONMENT_RUNNERS),
    ("mise", PROJECT_RUNNERS),
    ("nerdctl", CONTAINERS),
    ("npm", NPM),
    ("npx", NPM),
    ("pdm", PROJECT_RUNNERS),
    ("pipx", PIPX),
    ("pixi", PROJECT_RUNNERS),
    ("pnpm", PNPM),
    ("pnpx", PNPM),
    ("podman", CONTAINERS),
    ("poetry", PROJECT_RUNNERS),
    ("uv", UV),
    ("uvx", UV),
    ("volta", ENVIRONMENT_RUNNERS),
    ("yarn", YARN),
];

/// Options of bwrap with one value.
#[rustfmt::skip]
const BWRAP: &[&str] = &[
    "--add-seccomp-fd", "--args", "--argv0", "--block-fd", "--cap-add", "--cap-drop", "--chdir", "--dev", "--dir",
    "--exec-label", "--file-label", "--gid", "--hostname", "--info-fd", "--json-status-fd", "--lock-file", "--mqueue",
    "--overlay-src", "--perms", "--pidns", "--proc", "--remount-ro", "--ro-overlay", "--seccomp", "--size", "--sync-fd",
    "--tmp-overlay", "--tmpfs", "--uid", "--unsetenv", "--userns", "--userns-block-fd", "--userns2",
];

/// Options of bwrap with two values, and one with three.
#[rustfmt::skip]
const BWRAP_PAIRS: &[&str] = &[
    "--bind", "--bind-data", "--bind-fd", "--bind-try", "--chmod", "--dev-bind", "--dev-bind-try", "--file", "--ro-bind",
    "--ro-bind-data", "--ro-bind-fd", "--ro-bind-try", "--setenv", "--symlink",
];
const BWRAP_TRIPLE: &str = "--overlay";

/// Programs that start the rest of their command line, and their options with a value that may look like a command.
#[rustfmt::skip]
const PREFIXES: &[(&str, &[&str])] = &[
    ("bwrap", BWRAP),
    ("cgexec", &["-g"]),
    ("choom", &["-n", "-p", "--adjust", "--pid"]),
    ("doas", &["-C", "-u"]),
    ("dotenv", &["-e", "-f", "-p", "-v", "--file"]),
    ("proxychains4", &["-f"]),
    ("runuser", &["-g", "-G", "-u", "--group", "--supp-group", "--user"]),
    ("strace", &["-E", "-O", "-P", "-S", "-a", "-b", "-e", "-o", "-p", "-s", "-u"]),
    ("sudo", &["-C", "-D", "-R", "-T", "-U", "-g", "-h", "-p", "-r", "-t", "-u", "--chdir", "--group", "--user"]),
    ("prlimit", &["-p", "--pid"]),
    ("numactl", &["-C", "-N", "-i", "-m", "-p", "--cpunodebind", "--interleave", "--membind", "--physcpubind"]),
    ("systemd-inhibit", &["--mode", "--what", "--who", "--why"]),
    ("systemd-run", &["-E", "-H", "-M", "-p", "-u", "--property", "--setenv", "--slice", "--unit", "--working-directory"]),
    ("timeout", &["-k", "-s", "--kill-after", "--signal"]),
    ("tini", &["-p"]),
    ("ts-node", &["-C", "-O", "-P", "-r", "--compiler", "--project", "--require"]),
    ("tsx", &["-r", "--conditions", "--env-file", "--import", "--require", "--tsconfig"]),
    ("xvfb-run", &["-e", "-f", "-n", "-p", "-s", "-w", "--server-args"]),
];

/// Whether an option of an interpreter takes the next argument as its value.
#[must_use]
pub fn takes_value(runtime: Runtime, option: &str) -> bool {
    let options = match runtime {
        Runtime::Node => NODE,
        Runtime::Bun => BUN,
        Runtime::Deno => DENO,
        Runtime::Python => PYTHON,
        Runtime::Ruby => RUBY,
        Runtime::Perl => PERL,
        Runtime::Php => PHP,
        Runtime::Shell => SHELL,
        Runtime::Java => JAVA,
        Runtime::DotNet => DOT_NET,
    };
    options.contains(&option) || runtime == Runtime::Shell && ends_with_shell_option(option)
}

/// `-euo pipefail`: several short options share one word, and the last one takes the value.
fn ends_with_shell_option(option: &str) -> bool {
    !option.starts_with("--") && option.ends_with(['o', 'O'])
}

/// Whether an option of a package runner, or of a container engine's client, takes the next argument as its value.
#[must_use]
pub fn runner_takes_value(runner: &str, option: &str) -> bool {
    RUNNERS.iter().any(|(name, options)| *name == runner && options.contains(&option))
}

/// How many of the next arguments are values of an option of a program that starts the rest of its command line.
pub(super) fn prefix_values(prefix: &str, option: &str) -> usize {
    match (prefix, option) {
        ("bwrap", BWRAP_TRIPLE) => 3,
        ("bwrap", _) if BWRAP_PAIRS.contains(&option) => 2,
        _ => usize::from(PREFIXES.iter().any(|(name, options)| *name == prefix && options.contains(&option))),
    }
}

/// Every option of package runners and of those, by which the program behind them is found.
pub fn of_wrappers() -> impl Iterator<Item = &'static str> {
    let with_one = RUNNERS.iter().chain(PREFIXES).flat_map(|(_, options)| *options);
    with_one.chain(BWRAP_PAIRS).copied().chain([BWRAP_TRIPLE])
}
