//! The numbers behind a finding, a type for each shape: their JSON, one sentence ([`fmt::Display`]), and more facts in
//! sentences.
//!
//! Fields stand in the order of the alphabet, as JSON always had them. A field that is added needs `#[serde(default)]`, so that
//! older history stays typed.

mod abandoned;
mod action_evidence;
mod detached;
mod duplicate;
mod external;
mod fanout;
mod leak;
mod orphan;
mod overlimit;
mod protected;
mod stale;
mod tasks;
mod unattended;
mod ungated;

pub use abandoned::{AbandonedEvidence, LostAnchor};
pub use action_evidence::{ActionEvidence, ActionGrounds, BurstGrounds, MemoryShortage, SessionGrounds};
pub use detached::{DetachedEvidence, DetachedMember};
pub use duplicate::{DuplicateEvidence, DuplicateRole, DuplicateServer};
pub use external::{
    BuildServerEvidence, ContainerEvidence, LargestFile, LeftSegment, ListedContainer, MountGrowth, TmpfsEvidence,
};
pub use fanout::{FanoutEvidence, FanoutRole, FanoutStarter};
pub use leak::{LeakEvidence, LeakLimit, LeakScope};
pub use orphan::{MemberVerdict, OrphanEvidence, OrphanMember};
pub use overlimit::{LimitScope, OverlimitEvidence, PassedLimit};
pub use protected::{ProtectedEvidence, ProtectedProcess};
pub use stale::{StaleEvidence, StaleHelper};
pub use tasks::{TaskHolder, TasksEvidence, UnreapedChildren};
pub use unattended::{UnattendedAgent, UnattendedEvidence};
pub use ungated::{LeftCgroupEvidence, OutsideProcess, UngatedEvidence, UngatedPolicy};

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Declares [`Evidence`] with a boxed variant for each type.
macro_rules! evidence {
    ($($shape:ident($evidence:ty),)*) => {
        /// Evidence of a finding. Its shapes differ by their fields; JSON of no known shape is kept as it came.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
        #[serde(untagged)]
        pub enum Evidence {
            $($shape(Box<$evidence>),)*
            /// Of another version, or shortened. For reading only.
            Raw(Map<String, Value>),
        }

        impl Evidence {
            /// What the sentence of [`fmt::Display`] leaves out: one fact an item, the most important first.
            #[must_use]
            pub fn facts(&self) -> Vec<String> {
                match self {
                    $(Self::$shape(it) => it.facts(),)*
                    Self::Raw(_) => Vec::new(),
                }
            }
        }

        impl fmt::Display for Evidence {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$shape(it) => it.fmt(out),)*
                    Self::Raw(_) => Ok(()),
                }
            }
        }
    };
}

evidence! {
    Orphan(OrphanEvidence),
    Detached(DetachedEvidence),
    Stale(StaleEvidence),
    Duplicate(DuplicateEvidence),
    Abandoned(AbandonedEvidence),
    Leak(LeakEvidence),
    Fanout(FanoutEvidence),
    Overlimit(OverlimitEvidence),
    Ungated(UngatedEvidence),
    LeftCgroup(LeftCgroupEvidence),
    Container(ContainerEvidence),
    BuildServer(BuildServerEvidence),
    Tmpfs(TmpfsEvidence),
    Tasks(TasksEvidence),
    Protected(ProtectedEvidence),
    Unattended(UnattendedEvidence),
}

impl Default for Evidence {
    fn default() -> Self {
        Self::Raw(Map::new())
    }
}

impl Evidence {
    /// Evidence that was too large to keep.
    #[must_use]
    pub fn left_out() -> Self {
        Self::Raw(Map::from_iter([("left_out".to_owned(), true.into())]))
    }

    /// The evidence as JSON.
    #[must_use]
    pub fn to_map(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            Ok(_) | Err(_) => Map::new(),
        }
    }
}

/// `, in "…"` and its like: some text, or none.
fn with(prefix: &str, text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).map(|text| format!("{prefix}{text}")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
