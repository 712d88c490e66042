//! Reads tables of a TOML document and gathers every problem on the way, each with its place.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::globs::Globs;
use super::values::{self, Size, ValueError};
use crate::engine::id::Bytes;

/// Why a configuration was refused: every problem of the file, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it; at least one.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// Which key, what is wrong, and what is allowed.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Problem { line, column, message }) in self.problems.iter().enumerate() {
            let newline = if n == 0 { "" } else { "\n" };
            write!(f, "{newline}{}:{line}:{column}: {message}", self.file.display())?;
        }
        Ok(())
    }
}

/// Gathers problems while tables are read.
pub(super) struct Reader<'t> {
    text: &'t str,
    problems: Vec<Problem>,
}

/// A table with the name under which messages speak of it.
#[derive(Clone, Copy)]
pub(super) struct Section<'d, 't> {
    name: &'static str,
    at: usize,
    table: &'d DeTable<'t>,
}

/// A value that was found, and where.
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) at: usize,
    key: String,
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, problems: Vec::new() }
    }

    /// Reads the document; what is not TOML is reported, and what could be read nonetheless is returned.
    pub(super) fn document(&mut self) -> Option<Spanned<DeTable<'t>>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let at = error.span().map_or(0, |span| span.start);
            self.report(at, format!("not TOML: {}", error.message().replace('\n', ", ")));
        }
        // After a syntax error the rest may stand in the wrong table: complaints about it would mislead.
        errors.is_empty().then_some(table)
    }

    pub(super) fn report(&mut self, at: usize, message: String) {
        let before = &self.text[..self.text.floor_char_boundary(at)];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        self.problems.push(Problem { line, column, message });
    }

    /// Reports about a value that was found: "key = value" is what it is about.
    pub(super) fn refuse<T>(&mut self, found: &Found<T>, why: impl fmt::Display) {
        self.report(found.at, format!("{}: {why}", found.key));
    }

    /// The result, or all that is wrong.
    pub(super) fn finish<T>(mut self, file: &Path, result: T) -> Result<T, ConfigError> {
        if self.problems.is_empty() {
            return Ok(result);
        }
        self.problems.sort();
        Err(ConfigError { file: file.to_owned(), problems: self.problems })
    }

    /// Opens a table, and reports every key of it that is not allowed.
    pub(super) fn section<'d>(
        &mut self,
        name: &'static str,
        at: usize,
        table: &'d DeTable<'t>,
        allowed: &[&str],
    ) -> Section<'d, 't> {
        for key in table.keys() {
            let written: &str = key.get_ref();
            if allowed.contains(&written) {
                continue;
            }
            let place = if name.is_empty() { String::new() } else { format!(" in {name}") };
            let nearest = allowed.iter().max_by(|a, b| strsim::jaro(a, written).total_cmp(&strsim::jaro(b, written)));
            let meant = nearest.filter(|known| strsim::jaro(known, written) > 0.75);
            let hint = meant.map(|known| format!(" (did you mean {known}?)")).unwrap_or_default();
            let allowed = match allowed {
                [] => "this table has no keys yet".to_owned(),
                _ => format!("allowed: {}", allowed.join(", ")),
            };
            self.report(key.span().start, format!("{written}: unknown key{place}{hint}; {allowed}"));
        }
        Section { name, at, table }
    }

    /// A table inside a section.
    pub(super) fn table<'d>(
        &mut self,
        parent: Section<'d, 't>,
        key: &str,
        name: &'static str,
        allowed: &[&str],
    ) -> Option<Section<'d, 't>> {
        let found = self.value(parent, key, "a table", DeValue::as_table)?;
        Some(self.section(name, found.at, found.value, allowed))
    }

    /// An array of tables inside a section.
    pub(super) fn tables<'d>(
        &mut self,
        parent: Section<'d, 't>,
        key: &str,
        name: &'static str,
        allowed: &[&str],
    ) -> Vec<Section<'d, 't>> {
        let expected = "an array of tables: write it in double brackets";
        let Some(array) = self.value(parent, key, expected, DeValue::as_array) else { return Vec::new() };
        let mut sections = Vec::new();
        for item in array.value.iter() {
            match item.get_ref().as_table() {
                Some(table) => sections.push(self.section(name, item.span().start, table, allowed)),
                None => self.report(item.span().start, format!("{key}: must be {expected}")),
            }
        }
        sections
    }

    pub(super) fn string<'d>(&mut self, section: Section<'d, 't>, key: &str, expected: &str) -> Option<Found<&'d str>> {
        self.value(section, key, expected, DeValue::as_str)
    }

    /// A string that stands for something else: `read` says what, or what it is instead, as in "not a duration".
    pub(super) fn meaning<T>(
        &mut self,
        section: Section<'_, 't>,
        key: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let written = self.string(section, key, expected)?;
        match read(written.value) {
            Ok(meant) => Some(meant),
            Err(problem) => {
                self.refuse(&written, format_args!("{:?} is {problem}", written.value));
                None
            }
        }
    }

    /// One of these words, with what it stands for.
    pub(super) fn word<T: Copy>(
        &mut self,
        section: Section<'_, 't>,
        key: &str,
        expected: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        self.meaning(section, key, expected, |text| {
            let word = words.iter().find(|(word, _)| *word == text);
            word.map(|(_, meant)| *meant).ok_or_else(|| format!("not {expected}"))
        })
    }

    /// A duration from this range.
    pub(super) fn duration(
        &mut self,
        section: Section<'_, 't>,
        key: &str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        self.meaning(section, key, "a duration, as in \"30s\"", |text| {
            let duration = values::duration(text).map_err(|error| error.to_string())?;
            if range.contains(&duration) {
                return Ok(duration);
            }
            let (from, to) = (values::show_duration(*range.start()), values::show_duration(*range.end()));
            Err(format!("out of range: {from} to {to} is allowed"))
        })
    }

    /// An amount of memory that is more than none.
    pub(super) fn size(&mut self, section: Section<'_, 't>, key: &str) -> Option<Size> {
        self.meaning(section, key, "a size, as in \"800MiB\" or \"10%\"", |text| match text.parse() {
            Ok(Size::Bytes(Bytes(0))) => Err("nothing: at least 1B is needed".to_owned()),
            Ok(size) => Ok(size),
            Err(error) => Err(ValueError::to_string(&error)),
        })
    }

    /// A share in per cent, from this range.
    pub(super) fn percent(&mut self, section: Section<'_, 't>, key: &str, range: RangeInclusive<u8>) -> Option<u8> {
        let (least, most) = (*range.start(), *range.end());
        self.meaning(section, key, "a share, as in \"80%\"", |text| {
            let number = text.strip_suffix('%').and_then(|number| number.parse().ok());
            let wrong = || format!("not a share: {least}% to {most}% is allowed, as in \"{most}%\"");
            number.filter(|percent| range.contains(percent)).ok_or_else(wrong)
        })
    }

    /// Globs, none where the key is missing.
    pub(super) fn globs(&mut self, section: Section<'_, 't>, key: &str) -> Option<Globs> {
        let written = self.strings(section, key);
        Globs::new(written.value.clone()).map_err(|error| self.refuse(&written, error)).ok()
    }

    pub(super) fn boolean(&mut self, section: Section<'_, 't>, key: &str) -> Option<Found<bool>> {
        self.value(section, key, "true or false", DeValue::as_bool)
    }

    /// A whole number from this range.
    pub(super) fn integer(&mut self, section: Section<'_, 't>, key: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let found = self.value(section, key, &expected, |value| {
            let integer = value.as_integer()?;
            Some(u32::from_str_radix(integer.as_str(), integer.radix()))
        })?;
        match &found.value {
            Ok(number) if range.contains(number) => Some(*number),
            _ => {
                self.refuse(&found, format_args!("must be {expected}"));
                None
            }
        }
    }

    /// A list of strings, empty where the key is missing.
    pub(super) fn strings(&mut self, section: Section<'_, 't>, key: &str) -> Found<Vec<String>> {
        let found = self.list(section, key, "a list of strings, as in [\"*/my-agent\"]");
        let (value, at) = found.map_or((Vec::new(), section.at), |found| (found.value, found.at));
        Found { value: value.into_iter().flatten().collect(), at, key: key.to_owned() }
    }

    /// A program with its arguments, when each of them is a string.
    pub(super) fn command(&mut self, section: Section<'_, 't>, key: &str) -> Option<Found<Vec<String>>> {
        let found = self.list(section, key, "a list of strings, as in [\"/usr/local/bin/tell-me\", \"--mail\"]")?;
        Some(Found { value: found.value.into_iter().collect::<Option<_>>()?, at: found.at, key: found.key })
    }

    /// A list, with `None` for what is no string, which is reported.
    fn list(&mut self, section: Section<'_, 't>, key: &str, expected: &str) -> Option<Found<Vec<Option<String>>>> {
        let found = self.value(section, key, expected, DeValue::as_array)?;
        let mut strings = Vec::new();
        for item in found.value.iter() {
            let string = item.get_ref().as_str();
            if string.is_none() {
                self.report(item.span().start, mismatch(key, expected, item.get_ref()));
            }
            strings.push(string.map(str::to_owned));
        }
        Some(Found { value: strings, at: found.at, key: found.key })
    }

    /// A table of environment variables, empty where the key is missing.
    pub(super) fn environment(&mut self, section: Section<'_, 't>, key: &str) -> BTreeMap<String, String> {
        let expected = "a table of strings, as in { NODE_OPTIONS = \"--max-old-space-size=2048\" }";
        let mut variables = BTreeMap::new();
        let Some(found) = self.value(section, key, expected, DeValue::as_table) else { return variables };
        for (name, value) in found.value {
            let (at, written) = (name.span().start, name.get_ref());
            if written.is_empty() || written.contains(['=', '\0']) {
                self.report(at, format!("{key}: {written:?} cannot be the name of a variable"));
                continue;
            }
            match value.get_ref().as_str() {
                Some(text) if !text.contains('\0') => {
                    variables.insert(written.to_string(), text.to_owned());
                }
                _ => self.report(value.span().start, mismatch(key, expected, value.get_ref())),
            }
        }
        variables
    }

    fn value<'d, T>(
        &mut self,
        section: Section<'d, 't>,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'d DeValue<'t>) -> Option<T>,
    ) -> Option<Found<T>> {
        let value = section.table.get(key)?;
        let at = value.span().start;
        match read(value.get_ref()) {
            Some(value) => Some(Found { value, at, key: key.to_owned() }),
            None => {
                self.report(at, mismatch(key, expected, value.get_ref()));
                None
            }
        }
    }
}

impl Section<'_, '_> {
    /// Where the table begins in the text.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// How messages call the table.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the table has this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }
}

/// Takes what was found, if anything was.
pub(super) fn set<T>(value: &mut T, found: Option<T>) {
    if let Some(found) = found {
        *value = found;
    }
}

/// Takes the count that was found, if any was.
pub(super) fn set_count(value: &mut usize, found: Option<u32>) {
    set(value, found.and_then(|count| usize::try_from(count).ok()));
}

fn mismatch(key: &str, expected: &str, value: &DeValue<'_>) -> String {
    let article = if matches!(value, DeValue::Integer(_) | DeValue::Array(_)) { "an" } else { "a" };
    format!("{key}: must be {expected}, not {article} {}", value.type_str())
}
