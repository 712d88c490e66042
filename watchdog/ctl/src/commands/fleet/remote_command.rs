//! Quotes a command for the login shell of another host, which is unknown: sh, bash, zsh, dash, ksh or fish.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A shell command line that executes the program.
pub(super) fn line(program: &str, arguments: &[OsString]) -> OsString {
    let mut line = b"exec ".to_vec();
    line.extend(program.as_bytes());
    for argument in arguments {
        line.push(b' ');
        quote(argument, &mut line);
    }
    OsString::from_vec(line)
}

/// In single quotes, only the quote itself is special, and the backslash in fish. Both are put in double quotes instead.
fn quote(argument: &OsStr, line: &mut Vec<u8>) {
    line.push(b'\'');
    for byte in argument.as_bytes() {
        match byte {
            b'\'' => line.extend(br#"'"'"'"#),
            b'\\' => line.extend(br#"'"\\"'"#),
            other => line.push(*other),
        }
    }
    line.push(b'\'');
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn every_shell_passes_arguments_unchanged() {
        let hostile: Vec<OsString> = [
            "",
            "plain",
            "two words",
            "it's",
            "back\\slash",
            "trailing\\",
            "\\'",
            "$HOME `id` $(id) ; rm -rf x & | > y",
            "new\nline",
            "* ? [a-z] ~ {a,b} !!",
            "\"double\" #comment",
            "-n",
            "é\u{1b}[2J",
        ]
        .map(OsString::from)
        .into();
        let mut raw = hostile;
        raw.push(OsString::from_vec(vec![0xff, b'x', 0xfe]));
        let expected: Vec<u8> = raw.iter().flat_map(|word| word.as_bytes().iter().copied().chain([0])).collect();
        let mut words = vec![OsString::from("%s\\0")];
        words.extend(raw);
        let mut tried = 0;
        for shell in ["sh", "bash", "dash", "zsh", "ksh", "fish"] {
            let Ok(output) = Command::new(shell).arg("-c").arg(line("/usr/bin/printf", &words)).output() else {
                continue;
            };
            assert_eq!(output.stdout, expected, "{shell}: {}", String::from_utf8_lossy(&output.stderr));
            tried += 1;
        }
        assert!(tried >= 2, "only {tried} shells are installed");
    }
}
