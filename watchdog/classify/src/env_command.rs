//! The command line of env(1).

/// The command that `env` with these arguments runs.
pub(super) fn after_env<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let mut words = Vec::new();
    let mut arguments = arguments.iter().copied();
    while let Some(argument) = arguments.next() {
        if let Some(split) = argument.strip_prefix("-S").or_else(|| argument.strip_prefix("--split-string=")) {
            let split = if split.is_empty() { arguments.next().unwrap_or_default() } else { split };
            words.extend(split.split_ascii_whitespace().skip_while(|word| is_assignment(word)));
            break;
        }
        if matches!(argument, "-u" | "--unset" | "-C" | "--chdir") {
            arguments.next();
        } else if !argument.starts_with('-') && !is_assignment(argument) {
            words.push(argument);
            break;
        }
    }
    words.extend(arguments);
    words
}

/// `NAME=VALUE`, as it may stand before a command.
pub(crate) fn is_assignment(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    word.contains('=') && !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
