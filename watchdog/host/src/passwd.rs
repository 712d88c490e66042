//! User names and accounts, from /etc/passwd alone.
//!
//! getpwuid(3) would use the name service switch. A statically linked glibc then loads shared objects, which must be of
//! exactly its own version, and a directory server may block the daemon's only loop. So a user of LDAP or SSSD is shown by
//! number.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::stat::number;
use watchdog_types::Uid;

pub const PASSWD: &str = "/etc/passwd";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    pub uid: Uid,
    /// Its primary group.
    pub gid: u32,
}

/// The first account of this name in a passwd file.
pub fn account(file: &Path, name: &str) -> io::Result<Option<Account>> {
    let text = std::fs::read(file)?;
    Ok(text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        fields.next().filter(|known| *known == name.as_bytes())?;
        Some(Account { uid: Uid(number(fields.nth(1)?)?), gid: number(fields.next()?)? })
    }))
}

/// The names in a passwd file, which is read again when its modification time changes.
pub struct UserNames {
    file: PathBuf,
    names: HashMap<Uid, String>,
    read: Option<SystemTime>,
}

impl Default for UserNames {
    fn default() -> Self {
        Self::new(PASSWD)
    }
}

impl UserNames {
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), names: HashMap::new(), read: None }
    }

    /// The number where the file has no name. One stat of the file, 2 µs.
    pub fn name(&mut self, uid: Uid) -> String {
        self.refresh();
        self.known_name(uid)
    }

    /// The name when the file was last [refreshed](Self::refresh).
    #[must_use]
    pub fn known_name(&self, uid: Uid) -> String {
        self.names.get(&uid).cloned().unwrap_or_else(|| uid.0.to_string())
    }

    /// An unreadable file leaves the names unchanged: they are for display only.
    pub fn refresh(&mut self) {
        let Ok(changed) = std::fs::metadata(&self.file).and_then(|file| file.modified()) else { return };
        if self.read == Some(changed) {
            return;
        }
        let Ok(text) = std::fs::read(&self.file) else { return };
        self.names.clear();
        for (uid, name) in text.split(|byte| *byte == b'\n').filter_map(entry) {
            // As getpwuid(3): the first line of a uid counts.
            self.names.entry(uid).or_insert(name);
        }
        self.read = Some(changed);
    }
}

/// uid and name of a line of passwd(5).
fn entry(line: &[u8]) -> Option<(Uid, String)> {
    let mut fields = line.split(|byte| *byte == b':');
    let name = fields.next().filter(|name| !name.is_empty() && name[0] != b'#')?;
    let uid = number(fields.nth(1)?)?;
    Some((Uid(uid), String::from_utf8_lossy(name).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_uid_shown_by_number() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("passwd");
        std::fs::write(
            &file,
            "root:x:0:0::/root:/bin/sh\n# x:x:5:5\nann:x:1000:1000::/:\ntwin:x:1000:1::/:\n+::::::\n",
        )
        .unwrap();
        let mut users = UserNames::new(&file);
        assert_eq!(users.name(Uid(0)), "root");
        assert_eq!(users.name(Uid(1000)), "ann");
        assert_eq!(users.name(Uid(5)), "5");
    }

    #[test]
    fn account_found_by_whole_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("passwd");
        std::fs::write(&file, "ann:x:1000:100::/:\nbo:x:oops:1::/:\nann:x:0:0::/:\nroot:x:0:0\n").unwrap();
        let found = |name| account(&file, name).unwrap();
        assert_eq!(found("ann"), Some(Account { uid: Uid(1000), gid: 100 }));
        assert_eq!(found("root"), Some(Account { uid: Uid::ROOT, gid: 0 }));
        for name in ["an", "annx", "bo", "", "x"] {
            assert_eq!(found(name), None, "{name:?}");
        }
        assert!(account(&dir.path().join("none"), "ann").is_err());
    }

    #[test]
    fn changed_file_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("passwd");
        std::fs::write(&file, "ann:x:1000:1000::/:\n").unwrap();
        let mut users = UserNames::new(&file);
        assert_eq!(users.name(Uid(1000)), "ann");
        std::fs::write(&file, "bea:x:1000:1000::/:\n").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(10);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
        assert_eq!(users.name(Uid(1000)), "bea");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(users.name(Uid(1000)), "bea");
    }

    #[test]
    fn uid_zero_is_root() {
        assert_eq!(UserNames::default().name(Uid::ROOT), "root");
    }
}
