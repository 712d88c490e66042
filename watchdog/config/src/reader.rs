//! Typed access to a TOML document that collects every error and warning with its line.
//!
//! Not serde: a derived `Deserialize` stops at its first error, with or without `deny_unknown_fields` and
//! `serde_spanned`, so an administrator would see the second mistake of a file only after fixing the first.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{ConfigError, Diagnostic};
use super::globs::Globs;
use super::values::{self, Size, ValueError};
use watchdog_types::Bytes;

/// Keys that were renamed: the old one is accepted with a warning. The table, the old key, the new key.
const RENAMED: [(&str, &str, &str); 1] = [("[[profile]]", "way", "match")];

pub(super) struct TomlReader<'t> {
    file: &'t Path,
    text: &'t str,
    problems: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

/// A table, with its name in messages and its offset in the text.
#[derive(Clone, Copy)]
pub(super) struct Section<'d, 't> {
    name: &'static str,
    at: usize,
    table: &'d DeTable<'t>,
}

/// A value with its key and its offset in the text.
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) at: usize,
    key: String,
}

impl<'t> TomlReader<'t> {
    pub(super) fn new(file: &'t Path, text: &'t str) -> Self {
        Self { file, text, problems: Vec::new(), warnings: Vec::new() }
    }

    /// `None` when the text is not TOML, which is reported.
    pub(super) fn document(&mut self) -> Option<Spanned<DeTable<'t>>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let at = error.span().map_or(0, |span| span.start);
            self.report(at, format!("invalid TOML: {}", error.message().replace('\n', ", ")));
        }
        // After a syntax error, later keys may be in the wrong table: errors about them would mislead.
        errors.is_empty().then_some(table)
    }

    pub(super) fn report(&mut self, at: usize, message: String) {
        let problem = self.diagnostic(at, message);
        self.problems.push(problem);
    }

    fn diagnostic(&self, at: usize, message: String) -> Diagnostic {
        let before = &self.text[..self.text.floor_char_boundary(at)];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Diagnostic { file: self.file.to_owned(), line, column, message }
    }

    pub(super) fn refuse<T>(&mut self, found: &Located<T>, why: impl Display) {
        self.report(found.at, format!("{}: {why}", found.key));
    }

    /// The result with the warnings, or all errors.
    pub(super) fn finish<T>(mut self, result: T) -> Result<(T, Vec<Diagnostic>), ConfigError> {
        if self.problems.is_empty() {
            self.warnings.sort();
            return Ok((result, self.warnings));
        }
        self.problems.sort();
        Err(ConfigError { problems: self.problems })
    }

    /// Opens a table, and reports its unknown and its renamed keys.
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
            if let Some((_, _, new)) = RENAMED.iter().find(|(table, old, _)| (*table, *old) == (name, written)) {
                let message = format!("{written}: deprecated in {name}, use {new}");
                self.warnings.push(self.diagnostic(key.span().start, message));
                continue;
            }
            let place = if name.is_empty() { String::new() } else { format!(" in {name}") };
            let nearest = allowed.iter().max_by(|a, b| strsim::jaro(a, written).total_cmp(&strsim::jaro(b, written)));
            let similar = nearest.filter(|known| strsim::jaro(known, written) > 0.75);
            let hint = similar.map(|known| format!(" (did you mean {known}?)")).unwrap_or_default();
            let allowed = match allowed {
                [] => "this table has no keys".to_owned(),
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
        let expected = "an array of tables in [[double brackets]]";
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

    pub(super) fn string<'d>(
        &mut self,
        section: Section<'d, 't>,
        key: &str,
        expected: &str,
    ) -> Option<Located<&'d str>> {
        self.value(section, key, expected, DeValue::as_str)
    }

    /// A string that `read` parses; its error completes "VALUE is ...", as in "not a duration".
    pub(super) fn parsed<T>(
        &mut self,
        section: Section<'_, 't>,
        key: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let written = self.string(section, key, expected)?;
        match read(written.value) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.refuse(&written, format_args!("{:?} is {problem}", written.value));
                None
            }
        }
    }

    /// One of these words, mapped to its value.
    pub(super) fn choice<T: Copy>(
        &mut self,
        section: Section<'_, 't>,
        key: &str,
        expected: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        self.parsed(section, key, expected, |text| {
            let word = words.iter().find(|(word, _)| *word == text);
            word.map(|(_, value)| *value).ok_or_else(|| format!("not {expected}"))
        })
    }

    pub(super) fn duration(
        &mut self,
        section: Section<'_, 't>,
        key: &str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        self.parsed(section, key, "a duration, as in \"30s\"", |text| {
            let duration = values::duration(text).map_err(|error| error.to_string())?;
            if range.contains(&duration) {
                return Ok(duration);
            }
            let (from, to) = (values::format_duration(*range.start()), values::format_duration(*range.end()));
            Err(format!("out of range: {from} to {to} is allowed"))
        })
    }

    /// At least one byte.
    pub(super) fn size(&mut self, section: Section<'_, 't>, key: &str) -> Option<Size> {
        self.size_from(section, key, Bytes(1))
    }

    pub(super) fn size_or_zero(&mut self, section: Section<'_, 't>, key: &str) -> Option<Size> {
        self.size_from(section, key, Bytes(0))
    }

    fn size_from(&mut self, section: Section<'_, 't>, key: &str, least: Bytes) -> Option<Size> {
        self.parsed(section, key, "a size, as in \"800MiB\" or \"10%\"", |text| match text.parse() {
            Ok(Size::Bytes(bytes)) if bytes < least => Err("out of range: 1B and more is allowed".to_owned()),
            Ok(size) => Ok(size),
            Err(error) => Err(ValueError::to_string(&error)),
        })
    }

    /// A percentage.
    pub(super) fn percent(&mut self, section: Section<'_, 't>, key: &str, range: RangeInclusive<u8>) -> Option<u8> {
        let (min, max) = (*range.start(), *range.end());
        self.parsed(section, key, "a percentage, as in \"80%\"", |text| {
            let number = text.strip_suffix('%').and_then(|number| number.parse().ok());
            let wrong = || format!("not a percentage: {min}% to {max}% is allowed, as in \"{max}%\"");
            number.filter(|percent| range.contains(percent)).ok_or_else(wrong)
        })
    }

    /// Empty where the key is missing.
    pub(super) fn globs(&mut self, section: Section<'_, 't>, key: &str) -> Option<Globs> {
        let written = self.strings(section, key);
        Globs::new(written.value.clone()).map_err(|error| self.refuse(&written, error)).ok()
    }

    pub(super) fn boolean(&mut self, section: Section<'_, 't>, key: &str) -> Option<Located<bool>> {
        self.value(section, key, "true or false", DeValue::as_bool)
    }

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
    pub(super) fn strings(&mut self, section: Section<'_, 't>, key: &str) -> Located<Vec<String>> {
        let found = self.list(section, key, "a list of strings, as in [\"*/my-agent\"]");
        let (value, at) = found.map_or((Vec::new(), section.at), |found| (found.value, found.at));
        Located { value: value.into_iter().flatten().collect(), at, key: key.to_owned() }
    }

    /// A program with its arguments; `None` unless all of them are strings.
    pub(super) fn command(&mut self, section: Section<'_, 't>, key: &str) -> Option<Located<Vec<String>>> {
        let found = self.list(section, key, "a list of strings, as in [\"/usr/local/bin/tell-me\", \"--mail\"]")?;
        Some(Located { value: found.value.into_iter().collect::<Option<_>>()?, at: found.at, key: found.key })
    }

    /// A list, with `None` for each item that is not a string, which is reported.
    fn list(&mut self, section: Section<'_, 't>, key: &str, expected: &str) -> Option<Located<Vec<Option<String>>>> {
        let found = self.value(section, key, expected, DeValue::as_array)?;
        let mut strings = Vec::new();
        for item in found.value.iter() {
            let string = item.get_ref().as_str();
            if string.is_none() {
                self.report(item.span().start, mismatch(key, expected, item.get_ref()));
            }
            strings.push(string.map(str::to_owned));
        }
        Some(Located { value: strings, at: found.at, key: found.key })
    }

    /// Empty where the key is missing.
    pub(super) fn environment(&mut self, section: Section<'_, 't>, key: &str) -> BTreeMap<String, String> {
        let expected = "a table of strings, as in { NODE_OPTIONS = \"--max-old-space-size=2048\" }";
        let mut variables = BTreeMap::new();
        let Some(found) = self.value(section, key, expected, DeValue::as_table) else { return variables };
        for (name, value) in found.value {
            let (at, written) = (name.span().start, name.get_ref());
            if written.is_empty() || written.contains(['=', '\0']) {
                self.report(at, format!("{key}: {written:?} is not a variable name"));
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

    /// A table of whole numbers in this range. Empty where the key is missing.
    pub(super) fn counts(
        &mut self,
        section: Section<'_, 't>,
        key: &str,
        range: RangeInclusive<u32>,
        example: &str,
    ) -> BTreeMap<String, u32> {
        let expected = format!("a table of whole numbers, as in {example}");
        let mut counts = BTreeMap::new();
        let Some(found) = self.value(section, key, &expected, DeValue::as_table) else { return counts };
        for (name, value) in found.value {
            let number = value.get_ref().as_integer();
            let number = number.and_then(|number| u32::from_str_radix(number.as_str(), number.radix()).ok());
            match number.filter(|number| range.contains(number)) {
                Some(number) => drop(counts.insert(name.get_ref().to_string(), number)),
                None => {
                    let (start, end) = (range.start(), range.end());
                    let message = format!("{key}: {} must be a whole number from {start} to {end}", name.get_ref());
                    self.report(value.span().start, message);
                }
            }
        }
        counts
    }

    fn value<'d, T>(
        &mut self,
        section: Section<'d, 't>,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'d DeValue<'t>) -> Option<T>,
    ) -> Option<Located<T>> {
        let value = section.table.get(key)?;
        let at = value.span().start;
        match read(value.get_ref()) {
            Some(value) => Some(Located { value, at, key: key.to_owned() }),
            None => {
                self.report(at, mismatch(key, expected, value.get_ref()));
                None
            }
        }
    }
}

impl Section<'_, '_> {
    /// Offset in the text.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }
}

/// Keeps the default where the key is missing or invalid.
pub(super) fn assign<T>(value: &mut T, found: Option<T>) {
    if let Some(found) = found {
        *value = found;
    }
}

pub(super) fn assign_count(value: &mut usize, found: Option<u32>) {
    assign(value, found.and_then(|count| usize::try_from(count).ok()));
}

fn mismatch(key: &str, expected: &str, value: &DeValue<'_>) -> String {
    let article = if matches!(value, DeValue::Integer(_) | DeValue::Array(_)) { "an" } else { "a" };
    format!("{key}: must be {expected}, not {article} {}", value.type_str())
}
