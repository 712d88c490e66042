//! The highest ids in a history, for a daemon that has lost its state file.

use std::path::Path;

use serde::Deserialize;

use super::read::{StoredLine, open};
use watchdog_types::{ActionId, FindingId, LastIds, SessionId};

#[derive(Debug, Deserialize)]
struct RecordIds {
    #[serde(rename = "type")]
    kind: String,
    session: Option<u64>,
    id: Option<u64>,
    receipt: Option<ReceiptId>,
}

#[derive(Debug, Deserialize)]
struct ReceiptId {
    id: u64,
}

/// Zeros where the state directory has no history.
#[must_use]
pub fn last_ids(state_dir: &Path) -> LastIds {
    let mut last = LastIds::default();
    let Ok(mut lines) = open(state_dir) else { return last };
    while let Ok(Some(found)) = lines.next() {
        let StoredLine::Record(json) = found else { continue };
        let Ok(record) = serde_json::from_str::<RecordIds>(json) else { continue };
        let finding = record.id.filter(|_| record.kind == "finding");
        last = last.max(LastIds {
            session: SessionId(record.session.unwrap_or_default()),
            finding: FindingId(finding.unwrap_or_default()),
            action: ActionId(record.receipt.map_or(0, |receipt| receipt.id)),
        });
    }
    last
}
