//! The authority of an action, and the processes that it covers.

use std::fmt;
use watchdog_types::UserIds;

use serde::{Deserialize, Serialize};

use watchdog_types::{Pid, Uid};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Authority {
    /// A user's, as in kill(2): the user must be the target's real or saved set-user-ID.
    #[serde(rename = "Person")]
    User(Uid),
    /// The configuration's, on behalf of a session's user: all three user ids of the target must match.
    Session(Uid),
}

impl Authority {
    /// Covers every process.
    pub const ROOT: Self = Self::Session(Uid::ROOT);

    /// Why a process with these user ids is not covered; `None` when it is.
    #[must_use]
    pub fn refusal(self, pid: Pid, ids: UserIds) -> Option<String> {
        let UserIds { real, effective, saved } = ids;
        let (user, needed, permitted) = match self {
            Self::User(user) => (user, vec![real, saved], user == real || user == saved),
            Self::Session(user) => {
                let needed = vec![effective, real, saved];
                (user, needed.clone(), needed.iter().all(|id| *id == user))
            }
        };
        if user == Uid::ROOT || permitted {
            return None;
        }
        let other = needed.into_iter().find(|id| *id != user)?;
        let name = if other == Uid::ROOT { "root".to_owned() } else { format!("uid {}", other.0) };
        Some(format!("not permitted: process {pid} runs as {name}"))
    }
}

/// Why a process is exempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExemptionReason {
    Rule(String),
    /// The action's authority does not cover it.
    NotPermitted(String),
    /// It belongs to another user. The requesting user learns nothing else about it.
    OtherUser,
}

impl From<String> for ExemptionReason {
    fn from(rule: String) -> Self {
        Self::Rule(rule)
    }
}

impl From<&str> for ExemptionReason {
    fn from(rule: &str) -> Self {
        Self::Rule(rule.to_owned())
    }
}

impl fmt::Display for ExemptionReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Rule(why) | Self::NotPermitted(why) => why,
            Self::OtherUser => "owned by another user",
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const USER: Uid = Uid(1000);
    const OTHER: Uid = Uid(1001);

    #[rstest]
    #[case::own([1000, 1000, 1000], true, true)]
    #[case::setuid_root([1000, 0, 0], true, false)]
    #[case::all_root([0, 0, 0], false, false)]
    #[case::saved_is_own([0, 0, 1000], true, false)]
    #[case::only_effective_is_own([0, 1000, 0], false, false)]
    #[case::another_user([1001, 1001, 1001], false, false)]
    fn reach_follows_user_ids(#[case] ids: [u32; 3], #[case] person: bool, #[case] policy: bool) {
        let [real, effective, saved] = ids.map(Uid);
        let ids = UserIds { real, effective, saved };
        let reaches = |authority: Authority| authority.refusal(Pid(7), ids).is_none();
        assert_eq!(reaches(Authority::User(USER)), person);
        assert_eq!(reaches(Authority::Session(USER)), policy);
        assert!(reaches(Authority::User(Uid::ROOT)) && reaches(Authority::ROOT));
    }

    #[test]
    fn refusal_names_process_and_user() {
        let ids = |id| UserIds { real: id, effective: id, saved: id };
        let refusal = Authority::User(USER).refusal(Pid(7), ids(Uid::ROOT));
        assert_eq!(refusal.as_deref(), Some("not permitted: process 7 runs as root"));
        let refusal = Authority::Session(USER).refusal(Pid(7), ids(OTHER));
        assert_eq!(refusal.as_deref(), Some("not permitted: process 7 runs as uid 1001"));
    }
}
