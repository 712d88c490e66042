//! Names and options of browsers.

/// Browsers that people use too, by the name of the file.
pub const PERSONS_BROWSERS: &[&str] = &[
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
pub const DRIVEN_BROWSERS: &[&str] = &[
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
pub const BROWSER_PREFIXES: &[&str] = &["agent-browser-linux", "chrome-headless-shell-"];

/// Scripts that are a browser's daemon or driver.
pub const BROWSER_SCRIPTS: &[&str] = &["cliDaemon.js", "agent-browser.js"];

/// Directories that hold nothing but browsers.
pub const BROWSER_DIRECTORIES: &[&str] = &["/ms-playwright/", "/.cache/puppeteer/", "/.cache/camoufox/"];

/// Options of browsers that a program gives and no person does.
pub const AUTOMATION_OPTIONS: &[&str] = &[
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
pub const DESKTOP_OPENERS: &[&str] = &[
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

/// Crash handlers: they end when the last process that they watch has ended.
pub const CRASH_HANDLERS: &[&str] = &["chrome_crashpad_handler", "crashpad_handler"];
