//! Random secrets, compared in constant time.

use std::fmt;
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// 256 bits.
const BYTES: usize = 32;

/// A random text of hexadecimal digits. Its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn random() -> io::Result<Self> {
        let mut bytes = [0_u8; BYTES];
        let mut filled = 0;
        while filled < BYTES {
            filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
        }
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Takes the same time wherever the first difference is.
    pub(crate) fn matches(&self, guess: &str) -> bool {
        let (own, guess) = (self.0.as_bytes(), guess.as_bytes());
        own.len() == guess.len() && own.iter().zip(guess).fold(0, |different, (a, b)| different | (a ^ b)) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_and_differ() {
        let (one, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.text().len(), 64);
        assert!(!format!("{one:?}").contains(one.text()));
    }

    #[test]
    fn only_the_whole_secret_matches() {
        let secret = Secret::random().unwrap();
        let text = secret.text();
        assert!(secret.matches(text));
        for wrong in ["", &text[1..], &text[..63], &format!("{text}0"), &"0".repeat(64)] {
            assert!(!secret.matches(wrong), "{wrong}");
        }
    }
}
