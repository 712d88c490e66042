//! Parts of a page.

use serde::Serialize;

use super::table::{ViewCell, ViewTable};
use super::tone::ViewTone;
use crate::act_call::ActButton;

#[derive(Debug, Serialize)]
pub(crate) struct PageView {
    pub(crate) title: String,
    /// Actions are allowed.
    pub(crate) act: bool,
    pub(crate) blocks: Vec<ViewBlock>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ViewBlock {
    Tiles {
        tiles: Vec<StatTile>,
    },
    Table(ViewTable),
    Chart(StackedChart),
    Cards {
        title: String,
        cards: Vec<FactCard>,
        empty: &'static str,
    },
    Buttons {
        buttons: Vec<ActButton>,
    },
    /// Values of the address of a page.
    Form {
        page: &'static str,
        fields: Vec<FormField>,
        submit: &'static str,
    },
    /// Variants of a page.
    Links {
        label: &'static str,
        links: Vec<ViewCell>,
    },
    /// Chooses a moment, whose view stands below. Seconds since 1970.
    Slider {
        times: Vec<i64>,
        at: i64,
    },
    Text {
        title: String,
        lines: Vec<String>,
    },
}

#[derive(Debug, Serialize)]
pub(crate) struct StatTile {
    pub(crate) label: &'static str,
    pub(crate) value: String,
    pub(crate) detail: String,
    /// From 0 to 1, as a bar.
    pub(crate) share: Option<f64>,
    pub(crate) tone: Option<ViewTone>,
}

/// Series on top of each other, the first at the bottom.
#[derive(Debug, Serialize)]
pub(crate) struct StackedChart {
    pub(crate) title: String,
    /// What the chart shows, in words.
    pub(crate) summary: String,
    /// Seconds since 1970.
    pub(crate) times: Vec<i64>,
    pub(crate) series: Vec<ChartSeries>,
    /// Top of the scale in bytes; `None` for the highest value.
    pub(crate) top: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ChartSeries {
    pub(crate) label: String,
    /// Bytes; null where nothing is known.
    pub(crate) values: Vec<Option<u64>>,
    /// What is not held by agents.
    pub(crate) rest: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct FactCard {
    pub(crate) key: String,
    pub(crate) title: String,
    pub(crate) label: String,
    pub(crate) tone: Option<ViewTone>,
    pub(crate) summary: String,
    pub(crate) lines: Vec<String>,
    pub(crate) links: Vec<ViewCell>,
    pub(crate) buttons: Vec<ActButton>,
}

#[derive(Debug, Serialize)]
pub(crate) struct FormField {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) value: String,
    pub(crate) example: &'static str,
}
