//! Options of ssh(1), and connections that it keeps in the background.

use super::Image;
use super::program::Program;

/// Options without a value.
#[rustfmt::skip]
const FLAGS: &[char] = &[
    '4', '6', 'A', 'C', 'G', 'K', 'M', 'N', 'T', 'V', 'X', 'Y', 'a', 'f', 'g', 'k', 'n', 'q', 's', 't', 'v', 'x', 'y',
];
/// Options with a value.
#[rustfmt::skip]
const WITH_VALUE: &[char] = &[
    'B', 'D', 'E', 'F', 'I', 'J', 'L', 'O', 'P', 'Q', 'R', 'S', 'W', 'b', 'c', 'e', 'i', 'l', 'm', 'o', 'p', 'w',
];

/// Several options in one word.
pub(super) struct SshOptions<'a> {
    flags: &'a str,
    /// The last one takes the next argument as its value.
    takes_next: bool,
}

/// The options in `-fNL`; `None` for a word that has a value in it, as `-oPort=22` does.
pub(super) fn ssh_options(word: &str) -> Option<SshOptions<'_>> {
    let letters = word.strip_prefix('-').filter(|letters| (1..=5).contains(&letters.len()))?;
    let flags = letters.trim_end_matches(WITH_VALUE);
    let takes_next = letters.len() - flags.len();
    (takes_next <= 1 && flags.chars().all(|flag| FLAGS.contains(&flag)))
        .then_some(SshOptions { flags, takes_next: takes_next == 1 })
}

/// ssh that was asked to go to the background once it is connected: a tunnel. sshfs(1) always does.
#[must_use]
pub fn stays_connected(image: &Image) -> bool {
    let program = Program::of(image);
    match program.name() {
        "ssh" | "autossh" => goes_to_background(&program.args),
        "sshfs" => true,
        _ => false,
    }
}

/// Whether one of ssh's own options, which precede the host, is -f.
fn goes_to_background(arguments: &[&str]) -> bool {
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next().filter(|argument| argument.starts_with('-')) {
        match ssh_options(word) {
            Some(options) if options.flags.contains('f') => return true,
            Some(options) if options.takes_next => _ = arguments.next(),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::tests::image;

    #[rstest]
    #[case::tunnel(&["ssh", "-fN", "-R", "8080:localhost:80", "host"], true)]
    #[case::behind_values(&["ssh", "-i", "key", "-oBatchMode=no", "-N", "-f", "host"], true)]
    #[case::foreground(&["ssh", "-N", "-L", "5432:db:5432", "host"], false)]
    #[case::value(&["ssh", "-F", "-f", "host"], false)]
    #[case::attached_value(&["ssh", "-lfritz", "host"], false)]
    #[case::remote_command(&["ssh", "host", "tail", "-f", "log"], false)]
    fn tunnels_in_the_background_are_known(#[case] argv: &[&str], #[case] expected: bool) {
        assert_eq!(stays_connected(&image("/usr/bin/ssh", argv)), expected);
    }
}
