//! Tables and their cells.

use serde::Serialize;

use super::tone::ViewTone;
use crate::act_call::ActButton;

#[derive(Debug, Default, Serialize)]
pub(crate) struct ViewTable {
    pub(crate) title: String,
    pub(crate) columns: Vec<ViewColumn>,
    pub(crate) rows: Vec<ViewRow>,
    /// Instead of rows.
    pub(crate) empty: &'static str,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ViewColumn {
    name: &'static str,
    number: bool,
    /// Left out on narrow screens.
    low: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct ViewRow {
    /// Names the row over time: buttons stay with what they act on.
    pub(crate) key: String,
    pub(crate) cells: Vec<ViewCell>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ViewCell {
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) href: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tone: Option<ViewTone>,
    /// Levels below the left edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) indent: Option<usize>,
    /// RFC 3339, instead of the text: the browser shows its own time zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<String>,
    /// From 0 to 1, as a bar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<f64>,
    /// It is this page.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) current: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) buttons: Vec<ActButton>,
}

impl ViewColumn {
    pub(crate) const fn text(name: &'static str) -> Self {
        Self { name, number: false, low: false }
    }

    pub(crate) const fn number(name: &'static str) -> Self {
        Self { name, number: true, low: false }
    }

    pub(crate) const fn low(self) -> Self {
        Self { low: true, ..self }
    }
}

impl ViewCell {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub(crate) fn link(text: impl Into<String>, href: impl Into<String>) -> Self {
        Self { href: Some(href.into()), ..Self::new(text) }
    }

    /// A link to the page of a session; `-` without one.
    pub(crate) fn session(id: Option<u64>) -> Self {
        id.map_or_else(|| Self::new("-"), |id| Self::link(id.to_string(), format!("#session?id={id}")))
    }

    pub(crate) fn buttons(buttons: Vec<ActButton>) -> Self {
        Self { buttons, ..Self::default() }
    }

    pub(crate) fn tone(self, tone: Option<ViewTone>) -> Self {
        Self { tone, ..self }
    }

    pub(crate) fn share(self, share: f64) -> Self {
        Self { share: Some(share), ..self }
    }

    pub(crate) fn indent(self, levels: usize) -> Self {
        Self { indent: Some(levels), ..self }
    }
}
