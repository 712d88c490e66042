//! Programs that stay: build servers, daemons of a user, editor servers, multiplexers.

/// Build servers by the name of the file or script, whatever the arguments.
pub const BUILD_SERVERS: &[(&str, &str)] = &[
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
pub const BUILD_SERVERS_BY_ARGUMENT: &[(&str, &str, &str)] = &[
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
pub const BUILD_SERVER_SCRIPTS: &[(&str, &str)] = &[
    ("/nx/src/daemon/server/start.js", "the Nx daemon"),
    ("/nx/dist/src/daemon/server/start.js", "the Nx daemon"),
    ("/eslint_d/lib/daemon.js", "eslint_d"),
    ("/@fsouza/prettierd/dist/prettierd.js", "prettierd"),
];

/// Beginnings of comm or argv[0] of build servers that name their directory there: `bazel(dir)`.
/// The executables that write them stand last.
pub const BUILD_SERVER_TITLES: &[(&str, &str, &[&str])] = &[
    ("bazel(", "the Bazel server", &["java", "bazel"]),
    ("blaze(", "the Bazel server", &["java", "blaze"]),
    ("buck2d[", "the Buck2 daemon", &["buck2"]),
    ("pantsd [", "the Pants daemon", &["python", "pants", "scie"]),
    ("spring server", "Spring", &["ruby", "spring"]),
];

/// Daemons of a user's session, which agents start by accident.
pub const USER_DAEMONS: &[(&str, &str)] = &[
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
pub const EDITOR_SERVER_SCRIPTS: &[&str] = &["server-main.js", "bootstrap-fork", "bootstrap-fork.js"];

/// Programs that hold terminals for people to come back to.
pub const MULTIPLEXERS: &[(&str, &str)] = &[
    ("abduco", "abduco"),
    ("dtach", "dtach"),
    ("mosh-server", "mosh"),
    ("SCREEN", "screen"),
    ("wezterm-mux-server", "wezterm"),
];
