//! Checks JSON against the schemas of the OpenAPI document, in tests. It knows the keywords that the document uses, and refuses a
//! schema that has another.
//!
//! A crate for JSON Schema was tried: it brings some forty others, and switches on features of serde_json, hashbrown and zerocopy
//! with which the program under test is not the one that is shipped.

use serde_json::{Map, Value};

/// A document with its schemas.
pub(super) struct Schemas<'a> {
    /// It.
    pub(super) document: &'a Value,
}

impl Schemas<'_> {
    /// What of a value a schema does not allow, with the place where it stands. A member that the schema does not name is not
    /// allowed, unless it says that others are: a field that was added, and is not in the document, is to be found.
    pub(super) fn errors(&self, schema: &Value, value: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        self.check(schema, value, "", &mut errors);
        errors
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, errors: &mut Vec<String>) {
        let schema = schema.as_object().expect("a schema is an object");
        for (keyword, rule) in schema {
            let fine = match keyword.as_str() {
                "description" | "default" | "discriminator" => true,
                "$ref" => {
                    let pointer = rule.as_str().unwrap().trim_start_matches('#');
                    self.check(self.document.pointer(pointer).expect("it is defined"), value, at, errors);
                    true
                }
                "type" => match rule {
                    Value::Array(types) => types.iter().any(|one| has_type(one, value)),
                    one => has_type(one, value),
                },
                "const" => rule == value,
                "enum" => rule.as_array().unwrap().contains(value),
                "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
                "exclusiveMinimum" => value.as_f64().is_none_or(|number| number > rule.as_f64().unwrap()),
                "minLength" => value.as_str().is_none_or(|text| text.len() as u64 >= rule.as_u64().unwrap()),
                "format" => {
                    assert_eq!(rule, "date-time");
                    value.as_str().is_none_or(|text| text.parse::<jiff::Timestamp>().is_ok())
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(rule, item, &format!("{at}/{index}"), errors);
                    }
                    true
                }
                "anyOf" => rule.as_array().unwrap().iter().any(|one| self.errors(one, value).is_empty()),
                "oneOf" => {
                    rule.as_array().unwrap().iter().filter(|one| self.errors(one, value).is_empty()).count() == 1
                }
                "required" => {
                    let missing = |name: &&Value| value.get(name.as_str().unwrap()).is_none();
                    !value.is_object() || rule.as_array().unwrap().iter().find(missing).is_none()
                }
                "properties" | "additionalProperties" => true,
                other => panic!("{at}: the keyword {other} is not known here"),
            };
            if !fine {
                errors.push(format!("{at}: {value} is against {keyword}: {rule}"));
            }
        }
        self.check_members(schema, value, at, errors);
    }

    fn check_members(&self, schema: &Map<String, Value>, value: &Value, at: &str, errors: &mut Vec<String>) {
        let (named, others) = (schema.get("properties"), schema.get("additionalProperties"));
        if named.is_none() && others.is_none() {
            return;
        }
        for (name, member) in value.as_object().into_iter().flatten() {
            let at = format!("{at}/{name}");
            match (named.and_then(|named| named.get(name)), others) {
                (Some(schema), _) => self.check(schema, member, &at, errors),
                (None, Some(Value::Bool(true))) => {}
                (None, Some(schema @ Value::Object(_))) => self.check(schema, member, &at, errors),
                (None, _) => errors.push(format!("{at}: no such member is named")),
            }
        }
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
