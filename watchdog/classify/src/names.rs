//! The name in a path or a package, without directory, version and platform.

/// The last component of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The command behind an executed file whose installer gave it another name:
/// `claude/versions/2.1.224`, `codex-x86_64-unknown-linux-musl`, `.claude-wrapped`.
pub(super) fn command_name(path: &str) -> &str {
    let file = base_name(path);
    let is_version = file.contains('.') && file.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_version && let Some(of) = path.strip_suffix(file).and_then(|above| above.strip_suffix("/versions/")) {
        return base_name(of);
    }
    let wrapped = file.strip_prefix('.').and_then(|file| file.strip_suffix("-wrapped"));
    // To prepare a search costs more than all else here, and most names are too short for it to find anything.
    let platforms = ["-x86_64-unknown-linux-", "-aarch64-unknown-linux-"].into_iter();
    let platform =
        platforms.filter(|platform| file.len() > platform.len()).find_map(|platform| file.split_once(platform));
    wrapped.or(platform.map(|(name, _)| name)).unwrap_or(file)
}

/// A package's name without its version: `@playwright/mcp@latest` is `@playwright/mcp`, `ruff==1` is `ruff`.
pub(super) fn without_version(package: &str) -> &str {
    let end = package.char_indices().skip(1).find(|(_, c)| matches!(c, '@' | '=' | '[' | '>' | '<' | '~'));
    end.map_or(package, |(at, _)| &package[..at])
}
