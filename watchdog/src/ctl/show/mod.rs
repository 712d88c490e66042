//! How things look to a person. Everything here is pure: data and a [`Screen`] in, text out.

mod command;
mod escape;
mod evidence;
mod screen;
mod table;

pub(super) use command::short as short_command;
pub(super) use escape::{json as safe_json, visible};
pub(super) use evidence::{lines as evidence_lines, pairs as evidence_pairs};
pub(super) use screen::{Ink, Screen};
pub(super) use table::{Cell, Column, Table, cut};
pub(super) use units::{age, clock, count, seconds, size, span};

use crate::units;

#[cfg(test)]
pub(super) mod testing {
    //! Screens for tests: the clock stands at noon of 2 January 2026.

    use super::Screen;
    use jiff::tz::TimeZone;

    pub(in crate::ctl) fn plain() -> Screen {
        let now = "2026-01-02T12:00:00Z".parse().unwrap();
        Screen { width: None, colour: false, now, zone: || TimeZone::UTC }
    }

    pub(in crate::ctl) fn narrow(width: usize) -> Screen {
        Screen { width: Some(width), ..plain() }
    }

    pub(in crate::ctl) fn coloured() -> Screen {
        Screen { colour: true, ..plain() }
    }
}
