//! `agent-watchdog.toml(5)`, from the comments of the example configuration.

use clap_mangen::roff::{Roff, bold, roman};

use crate::page::{Edition, MANUAL, prose, see_also, tidy, verbatim};

const FILE: &str = "/etc/agent-watchdog/config.toml";

/// File name and text of the page.
pub(crate) fn page(config: &str, edition: &Edition) -> (String, String) {
    let mut roff = Roff::default();
    roff.control("TH", ["AGENT-WATCHDOG.TOML", "5", &edition.date, &edition.source(), MANUAL]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("agent-watchdog.toml - configuration of watchdogd")]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([roman(FILE)]);
    roff.control("SH", ["DESCRIPTION"]);
    let mut blocks = Block::all(config).into_iter().peekable();
    let mut head = Vec::new();
    while let Some(Block::Prose(text)) = blocks.next_if(|block| matches!(block, Block::Prose(_))) {
        head.push(text);
    }
    prose(&mut roff, &head.join("\n\n"));
    roff.control("SH", ["TABLES"]);
    for block in blocks {
        block.write(&mut roff);
    }
    see_also(&mut roff, &[("watchdogd".to_owned(), "8"), ("watchdogctl-config-check".to_owned(), "1")]);
    ("agent-watchdog.toml.5".to_owned(), tidy(&roff.render()))
}

/// A part of the example. A key is commented out without a space: `#key = value`.
#[derive(Debug, PartialEq)]
enum Block {
    /// `[orphans]`
    Table(String),
    /// Sentences without a key.
    Prose(String),
    /// Sentences, and the keys that follow them.
    Keys(String, Vec<String>),
    /// `#[[profile]]` with its keys.
    Array(Vec<String>),
}

impl Block {
    fn all(config: &str) -> Vec<Self> {
        let mut blocks = Vec::new();
        for part in config.split("\n\n") {
            Self::of_part(part, &mut blocks);
        }
        blocks
    }

    /// A part has no empty line.
    fn of_part(part: &str, blocks: &mut Vec<Self>) {
        let mut lines = part.lines().peekable();
        while let Some(line) = lines.next_if(|line| line.starts_with('[')) {
            blocks.push(Self::Table(line.to_owned()));
        }
        while lines.peek().is_some() {
            let mut sentences = Vec::new();
            while let Some(line) = lines.next_if(|line| is_sentence(line)) {
                sentences.push(line.trim_start_matches('#').strip_prefix(' ').unwrap_or_default());
            }
            let mut keys = Vec::new();
            while let Some(line) = lines.next_if(|line| !is_sentence(line)) {
                keys.push(line.trim_start_matches('#').to_owned());
            }
            let sentences = sentences.join("\n");
            if keys.first().is_some_and(|key| key.starts_with("[[")) {
                let table = Self::Table(keys[0].clone());
                if !blocks.contains(&table) {
                    blocks.push(table);
                }
                blocks.extend([Self::Prose(sentences), Self::Array(keys)]);
            } else if keys.is_empty() {
                blocks.push(Self::Prose(sentences));
            } else if let (true, Some(Self::Array(array))) = (is_tail(&sentences), blocks.last_mut()) {
                // A comment between the keys of an array's table.
                array.push(format!("# {sentences}"));
                array.extend(keys);
            } else {
                blocks.push(Self::Keys(sentences, keys));
            }
        }
    }

    fn write(&self, roff: &mut Roff) {
        match self {
            Self::Table(name) => {
                roff.control("SS", [name.as_str()]);
            }
            Self::Prose(text) => {
                roff.control("PP", []);
                prose(roff, text);
            }
            Self::Keys(text, keys) => {
                for (number, key) in keys.iter().enumerate() {
                    roff.control(if number == 0 { "TP" } else { "TQ" }, []);
                    roff.text([bold(key)]);
                }
                prose(roff, text);
            }
            Self::Array(lines) => {
                roff.control("PP", []);
                verbatim(roff, &lines.join("\n"));
            }
        }
    }
}

fn is_sentence(line: &str) -> bool {
    line == "#" || line.starts_with("# ")
}

/// Within one part, keys follow an array's table directly.
fn is_tail(sentences: &str) -> bool {
    !sentences.is_empty() && !sentences.contains('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../packaging/config.toml");

    #[test]
    fn every_example_key_is_described() {
        let (_, page) = page(EXAMPLE, &Edition { version: "1.2.3".into(), date: "2026-01-31".into() });
        let keys = EXAMPLE.lines().filter(|line| !is_sentence(line)).filter_map(|line| line.strip_prefix('#'));
        let names: Vec<String> =
            keys.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.replace('-', "\\-")).collect();
        assert!(names.len() > 60, "{names:?}");
        for name in names {
            assert!(page.contains(&format!("{name} = ")), "{name} is missing");
        }
        for table in EXAMPLE.lines().filter(|line| line.starts_with('[')) {
            assert!(page.contains(&format!(".SS {table}\n")), "{table} is missing");
        }
    }

    #[test]
    fn keys_follow_their_sentences() {
        let blocks = Block::all("# Head.\n\n[one]\n# First\n# line.\n#a = 1\n#b = 2\n# Next.\n#c = 3\n\n# Alone.");
        let text = str::to_owned;
        assert_eq!(
            blocks,
            [
                Block::Prose(text("Head.")),
                Block::Table(text("[one]")),
                Block::Keys(text("First\nline."), vec![text("a = 1"), text("b = 2")]),
                Block::Keys(text("Next."), vec![text("c = 3")]),
                Block::Prose(text("Alone.")),
            ]
        );
    }
}
