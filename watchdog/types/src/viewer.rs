//! Permissions to see data.

use super::id::Uid;

/// The user of a client. Decided by SO_PEERCRED, never by data from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// Sees everything.
    Root,
    /// Sees processes of this user only.
    User(Uid),
}

impl Viewer {
    /// Whether this viewer may see a process of that user.
    #[must_use]
    pub fn sees(self, owner: Uid) -> bool {
        match self {
            Self::Root => true,
            Self::User(uid) => uid == owner,
        }
    }
}
