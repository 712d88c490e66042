//! Checks JSON against the schemas of the OpenAPI document, in tests. It knows the keywords that the document uses, and
//! panics at any other.
//!
//! The crates for JSON Schema bring some forty others, and switch on features of serde_json, hashbrown and zerocopy: the
//! tested daemon would not be the shipped one.

use std::collections::BTreeSet;

use serde_json::Value;

pub(super) struct SchemaCheck<'a> {
    pub(super) document: &'a Value,
}

impl SchemaCheck<'_> {
    /// Where a value breaks a schema. A member without a schema is an error too, unless the schema allows others explicitly:
    /// a new field must be documented.
    pub(super) fn errors(&self, schema: &Value, value: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        self.check(schema, value, "", &mut errors);
        errors
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, errors: &mut Vec<String>) {
        let known = self.apply(schema, value, at, errors);
        let members = value.as_object().into_iter().flatten();
        let unknown = members.filter(|(name, _)| !known.contains(*name));
        errors.extend(unknown.map(|(name, _)| format!("{at}/{name}: not in the schema")));
    }

    /// Applies the keywords of a schema to a value, and returns the members that they describe.
    fn apply(&self, schema: &Value, value: &Value, at: &str, errors: &mut Vec<String>) -> BTreeSet<String> {
        let mut known = BTreeSet::new();
        let schema = schema.as_object().expect("a schema is an object");
        let number = |rule: &Value| rule.as_f64().unwrap();
        for (keyword, rule) in schema {
            let fine = match keyword.as_str() {
                "description" | "default" => true,
                "$ref" => {
                    let pointer = rule.as_str().unwrap().trim_start_matches('#');
                    known.extend(self.apply(self.document.pointer(pointer).unwrap(), value, at, errors));
                    true
                }
                "type" => match rule {
                    Value::Array(types) => types.iter().any(|one| has_type(one, value)),
                    one => has_type(one, value),
                },
                "const" => rule == value,
                "enum" => rule.as_array().unwrap().contains(value),
                "minimum" => value.as_f64().is_none_or(|value| value >= number(rule)),
                "maximum" => value.as_f64().is_none_or(|value| value <= number(rule)),
                "exclusiveMinimum" => value.as_f64().is_none_or(|value| value > number(rule)),
                "minLength" => value.as_str().is_none_or(|text| text.len() as u64 >= rule.as_u64().unwrap()),
                "format" if rule == "date-time" => {
                    value.as_str().is_none_or(|text| text.parse::<jiff::Timestamp>().is_ok())
                }
                "format" => rule.as_str().is_some_and(|name| name.contains("int") || name == "double"),
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(rule, item, &format!("{at}/{index}"), errors);
                    }
                    true
                }
                "anyOf" | "oneOf" => {
                    let matching: Vec<_> = rule
                        .as_array()
                        .unwrap()
                        .iter()
                        .filter_map(|one| {
                            let mut errors = Vec::new();
                            let members = self.apply(one, value, at, &mut errors);
                            errors.is_empty().then_some(members)
                        })
                        .collect();
                    let fine = matching.len() == 1 || keyword == "anyOf" && !matching.is_empty();
                    known.extend(matching.into_iter().flatten());
                    fine
                }
                "required" => rule.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some()),
                "properties" => {
                    for (name, schema) in rule.as_object().unwrap() {
                        if let Some(member) = value.get(name) {
                            self.check(schema, member, &format!("{at}/{name}"), errors);
                            known.insert(name.clone());
                        }
                    }
                    true
                }
                "additionalProperties" => {
                    let named = schema.get("properties").and_then(Value::as_object);
                    let members = value.as_object().into_iter().flatten();
                    for (name, member) in
                        members.filter(|(name, _)| !named.is_some_and(|named| named.contains_key(*name)))
                    {
                        match rule {
                            Value::Bool(true) => {}
                            Value::Bool(false) => errors.push(format!("{at}/{name}: not allowed")),
                            rule => self.check(rule, member, &format!("{at}/{name}"), errors),
                        }
                        known.insert(name.clone());
                    }
                    true
                }
                other => panic!("{at}: the keyword {other} is not known here"),
            };
            if !fine {
                errors.push(format!("{at}: {value} breaks {keyword}: {rule}"));
            }
        }
        known
    }
}

fn has_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        other => panic!("{other} is no type"),
    }
}
