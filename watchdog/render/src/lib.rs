//! Data as text for people. Pure: a value and a [`Terminal`] in, text out.

mod command;
mod escape;
mod evidence;
mod explanation;
mod finding;
mod fleet;
mod forest;
mod page_out;
pub mod receipt;
mod record;
mod table;
mod terminal;

pub use command::{of_process as process_command, short as short_command};
pub use escape::{escape, json as safe_json};
pub use evidence::{facts as evidence_facts, lines as evidence_lines, pairs as evidence_pairs};
pub use explanation::explanation;
pub use finding::{details as finding_details, severity_style};
pub use fleet::{fleet_size, fleet_store, host_state, last_seen, pool_holders};
pub use forest::{Forest, branch};
pub use page_out::page_out_receipt;
pub use record::{record_line, record_parts};
pub use table::{Cell, Column, TextTable, cut};
pub use terminal::{Style, Terminal};
pub use watchdog_types::units::{count, size, span};

#[cfg(any(test, feature = "testing"))]
pub mod testing;
