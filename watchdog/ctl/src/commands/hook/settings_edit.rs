//! Adds hooks to the text of an agent's settings, and removes them. Pure: text in, text out.

use std::fmt;

use jsonc_parser::ast::{ObjectProp, Value as AstValue};
use jsonc_parser::common::Ranged;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value;

/// The part of the settings that cannot be edited. Line and column count from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SettingsProblem {
    line: usize,
    column: usize,
    message: String,
}

impl fmt::Display for SettingsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// The format of an agent's settings, and how its hooks are recognised.
#[derive(Clone, Copy, Debug)]
pub(super) struct SettingsFormat {
    pub(super) comments: bool,
    /// Our command ends with this: `hook NAME`.
    pub(super) agent: &'static str,
}

impl SettingsFormat {
    fn options(self) -> ParseOptions {
        ParseOptions {
            allow_comments: self.comments,
            allow_loose_object_property_names: false,
            allow_trailing_commas: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        }
    }

    /// The text with these hooks. Events that have a hook of ours already, perhaps changed by the user, are left alone.
    pub(super) fn with_hooks(self, text: &str, settings: &Value) -> Result<String, SettingsProblem> {
        let text = if text.trim().is_empty() { "{}\n" } else { text };
        let root = self.parse(text)?;
        let Some(hooks) = root.object_value().and_then(|settings| settings.object_value_or_create("hooks")) else {
            return Ok(text.to_owned());
        };
        for (event, groups) in settings["hooks"].as_object().into_iter().flatten() {
            let Some(array) = hooks.array_value_or_create(event) else { continue };
            if self.groups(&array).any(|group| !self.handlers(&group).is_empty()) {
                continue;
            }
            for group in groups.as_array().into_iter().flatten() {
                array.append(input(group));
            }
        }
        Ok(root.to_string())
    }

    /// The text without our hooks and the containers that held nothing else.
    pub(super) fn without_hooks(self, text: &str) -> Result<String, SettingsProblem> {
        if text.trim().is_empty() {
            return Ok(text.to_owned());
        }
        let root = self.parse(text)?;
        let found = root.object_value().and_then(|settings| settings.get("hooks"));
        let Some((property, hooks)) = found.and_then(|property| property.object_value().map(|hooks| (property, hooks)))
        else {
            return Ok(text.to_owned());
        };
        let mut removed = false;
        for event in hooks.properties() {
            let Some(array) = event.array_value() else { continue };
            let mut emptied = false;
            for group in self.groups(&array).collect::<Vec<_>>() {
                let ours = self.handlers(&group);
                emptied |= !ours.is_empty();
                let all = group.array_value("hooks").map_or(0, |handlers| handlers.elements().len());
                if !ours.is_empty() && ours.len() == all {
                    group.remove();
                } else {
                    ours.into_iter().for_each(CstNode::remove);
                }
            }
            removed |= emptied;
            if emptied && array.elements().is_empty() {
                event.remove();
            }
        }
        if !removed {
            return Ok(text.to_owned());
        }
        if hooks.properties().is_empty() {
            property.remove();
        }
        Ok(root.to_string())
    }

    /// Whether a hook of ours is in the settings.
    pub(super) fn has_hooks(self, text: &str) -> Result<bool, SettingsProblem> {
        self.without_hooks(text).map(|without| without != text)
    }

    fn groups(self, event: &CstArray) -> impl Iterator<Item = CstObject> {
        event.elements().into_iter().filter_map(|group| group.as_object())
    }

    /// The handlers of a group that run `watchdogctl hook AGENT`, by whatever path.
    fn handlers(self, group: &CstObject) -> Vec<CstNode> {
        let is_ours = |handler: &CstNode| {
            let command = handler.as_object().and_then(|handler| handler.get("command")?.value()?.as_string_lit());
            command.and_then(|command| command.decoded_value().ok()).is_some_and(|command| {
                let words: Vec<&str> = command.split_whitespace().collect();
                let program = words.iter().rev().nth(2).map(|word| word.trim_matches(['"', '\'']));
                words.ends_with(&["hook", self.agent])
                    && program.is_some_and(|program| program.rsplit('/').next() == Some("watchdogctl"))
            })
        };
        let handlers = group.array_value("hooks").map(|handlers| handlers.elements()).unwrap_or_default();
        handlers.into_iter().filter(is_ours).collect()
    }

    /// The document, if its hooks have the shape that agents expect.
    fn parse(self, text: &str) -> Result<CstRootNode, SettingsProblem> {
        let broken = |error: jsonc_parser::errors::ParseError| SettingsProblem {
            line: error.line_display(),
            column: error.column_display(),
            message: format!("invalid JSON: {}", error.kind()),
        };
        let collected = parse_to_ast(text, &CollectOptions::default(), &self.options()).map_err(broken)?;
        let problem = |at: usize, message: &str| {
            let before = &text[..text.floor_char_boundary(at)];
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            SettingsProblem { line, column, message: message.to_owned() }
        };
        let Some(AstValue::Object(settings)) = &collected.value else {
            return Err(problem(collected.value.map_or(0, |value| value.start()), "the settings must be an object"));
        };
        let once = |properties: &[ObjectProp<'_>], name: &str| {
            let mut same = properties.iter().filter(|property| property.name.as_str() == name);
            match same.nth(1) {
                Some(second) => Err(problem(second.start(), &format!("{name}: the key appears twice"))),
                None => Ok(()),
            }
        };
        once(&settings.properties, "hooks")?;
        if let Some(hooks) = settings.get("hooks") {
            let AstValue::Object(events) = &hooks.value else {
                return Err(problem(hooks.value.start(), "hooks: must be an object"));
            };
            for event in &events.properties {
                let name = event.name.as_str();
                once(&events.properties, name)?;
                if name.starts_with(|first: char| first.is_ascii_uppercase()) && event.value.as_array().is_none() {
                    return Err(problem(event.value.start(), &format!("hooks.{name}: must be an array")));
                }
            }
        }
        CstRootNode::parse(text, &self.options()).map_err(broken)
    }
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(value) => CstInputValue::Number(value.to_string()),
        Value::String(value) => CstInputValue::String(value.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input).collect()),
        Value::Object(values) => {
            CstInputValue::Object(values.iter().map(|(key, value)| (key.clone(), input(value))).collect())
        }
    }
}

#[cfg(test)]
#[path = "settings_edit_tests.rs"]
mod tests;
