//! The highest ids that a history names, for a daemon that lost count.

use std::path::Path;

use serde::Deserialize;

use super::read::{Found, open};
use crate::engine::id::{ActionId, FindingId, LastIds, SessionId};

/// The parts of a record that name ids.
#[derive(Debug, Deserialize)]
struct Numbered {
    #[serde(rename = "type")]
    kind: String,
    session: Option<u64>,
    id: Option<u64>,
    receipt: Option<NumberedAction>,
}

#[derive(Debug, Deserialize)]
struct NumberedAction {
    id: u64,
}

/// The highest ids in the history of a state directory; zeros where there is none.
#[must_use]
pub fn last_ids(state_dir: &Path) -> LastIds {
    let mut last = LastIds::default();
    let Ok(mut lines) = open(state_dir) else { return last };
    while let Ok(Some(found)) = lines.next() {
        let Found::Record(json) = found else { continue };
        let Ok(record) = serde_json::from_str::<Numbered>(json) else { continue };
        let finding = record.id.filter(|_| record.kind == "finding");
        last = last.max(LastIds {
            session: SessionId(record.session.unwrap_or_default()),
            finding: FindingId(finding.unwrap_or_default()),
            action: ActionId(record.receipt.map_or(0, |receipt| receipt.id)),
        });
    }
    last
}
