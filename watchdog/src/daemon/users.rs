//! Names of users, from /etc/passwd. Not through the C library: its lookup may ask a directory server, and the task that
//! owns the engine must never wait for a network.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::engine::id::Uid;

/// How often an unknown number is worth another look at the file.
const RETRY: Duration = Duration::from_secs(60);

/// The names, kept.
#[derive(Debug)]
pub(super) struct Users {
    file: PathBuf,
    known: RefCell<Known>,
}

#[derive(Debug)]
struct Known {
    names: HashMap<Uid, String>,
    read_at: Option<Instant>,
}

impl Users {
    /// The users of this host.
    pub(super) fn new() -> Self {
        Self::from_file(PathBuf::from("/etc/passwd"))
    }

    fn from_file(file: PathBuf) -> Self {
        Self { file, known: RefCell::new(Known { names: HashMap::new(), read_at: None }) }
    }

    /// The user's name; the number in digits where the file has none.
    pub(super) fn name(&self, uid: Uid) -> String {
        let mut known = self.known.borrow_mut();
        if !known.names.contains_key(&uid) && known.read_at.is_none_or(|at| at.elapsed() > RETRY) {
            known.read_at = Some(Instant::now());
            // Without the file every user is shown by number.
            known.names = std::fs::read(&self.file).map(|text| parse(&text)).unwrap_or_default();
        }
        known.names.get(&uid).cloned().unwrap_or_else(|| uid.0.to_string())
    }
}

/// `name:password:uid:…`, passwd(5). Of several names for one number the first counts, as in the C library.
fn parse(text: &[u8]) -> HashMap<Uid, String> {
    let mut names = HashMap::new();
    for line in String::from_utf8_lossy(text).lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(_), Some(Ok(uid))) = (fields.next(), fields.next(), fields.next().map(str::parse)) {
            names.entry(Uid(uid)).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_name_or_else_the_number() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("passwd");
        std::fs::write(&file, "root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/:\nbroken\nu:x:1000:1000::/home/u:/bin/sh\n")
            .unwrap();
        let users = Users::from_file(file);
        assert_eq!(users.name(Uid(0)), "root");
        assert_eq!(users.name(Uid(1000)), "u");
        assert_eq!(users.name(Uid(1001)), "1001");
    }

    #[test]
    fn without_a_file_users_are_numbers() {
        assert_eq!(Users::from_file(PathBuf::from("/nonexistent/passwd")).name(Uid(7)), "7");
    }
}
