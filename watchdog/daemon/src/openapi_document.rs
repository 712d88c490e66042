//! Generates the OpenAPI document.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, transform_subschemas};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::openapi::{DocumentedAnswer, Route, RouteOperation, SchemaSource};

const ABOUT: &str = "HTTP/1.1 over the unix socket control.sock in the daemon's runtime directory \
    (/run/agent-watchdog). The kernel identifies the client (SO_PEERCRED): root sees and controls everything, another user \
    only its own processes. Sizes are integers in bytes, times are RFC 3339 strings in UTC, durations are numbers in \
    seconds. Fields may be added, never renamed. An unknown path is answered with 404, an unknown method with 405, both \
    with a Problem.";

/// Schemas of what clients send, and of what they get: a default makes a member optional in the former only.
struct Schemas {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
}

pub(super) fn document(routes: &[Route]) -> Value {
    let settings = || {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        settings
    };
    let mut schemas = Schemas {
        requests: settings().for_deserialize().into_generator(),
        answers: settings().for_serialize().into_generator(),
    };
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        let item = paths.entry(route.path).or_default();
        item.insert(route.method.to_owned(), operation(&route.operation, &mut schemas));
    }
    let mut components = schemas.answers.take_definitions(true);
    for (name, schema) in schemas.requests.take_definitions(true) {
        let known = components.entry(&name).or_insert_with(|| schema.clone());
        assert_eq!(*known, schema, "{name} is not the same in requests and in answers");
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "agent-watchdog control API",
            "version": "1",
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://localhost" }],
        "paths": paths,
        "components": { "schemas": components },
    });
    for schema in document["components"]["schemas"].as_object_mut().unwrap().values_mut() {
        RecursiveTransform(polish).transform_value(schema);
    }
    document
}

/// Applies a transform to a schema that is part of a document.
trait TransformValue {
    fn transform_value(&mut self, schema: &mut Value);
}

impl<F: FnMut(&mut Schema)> TransformValue for RecursiveTransform<F> {
    fn transform_value(&mut self, schema: &mut Value) {
        let schema: &mut Schema = schema.try_into().unwrap();
        schemars::transform::Transform::transform(self, schema);
    }
}

fn operation(operation: &RouteOperation, schemas: &mut Schemas) -> Value {
    let RouteOperation { id, summary, description, query, body, answers } = operation;
    let mut responses: BTreeMap<String, Value> = BTreeMap::new();
    for DocumentedAnswer { status, description, content_type, schema } in answers {
        let schema = schema(&mut schemas.answers).to_value();
        let response = responses.entry(status.to_string()).or_insert_with(|| json!({ "content": {} }));
        response["description"] = json!(description);
        let known = &mut response["content"][content_type]["schema"];
        *known = match known.take() {
            Value::Null => schema,
            same if same == schema => schema,
            other => json!({ "anyOf": [schema, other] }),
        };
    }
    let mut document = json!({ "operationId": id, "summary": summary, "responses": responses });
    if let Some(description) = description {
        document["description"] = json!(description);
    }
    if let Some(query) = query {
        document["parameters"] = parameters(*query);
    }
    if let Some(body) = body {
        let schema = body(&mut schemas.requests).to_value();
        document["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    document
}

/// The members of a query's type as parameters.
fn parameters(query: SchemaSource) -> Value {
    let mut settings = SchemaSettings::draft2020_12().for_deserialize();
    settings.inline_subschemas = true;
    let mut schema = query(&mut settings.into_generator());
    polish(&mut schema);
    transform_subschemas(&mut polish, &mut schema);
    let parameters = schema.get("properties").and_then(Value::as_object).unwrap().iter().map(|(name, schema)| {
        let mut schema = schema.clone();
        let members = schema.as_object_mut().unwrap();
        let description = members.remove("description").unwrap();
        // Left out is the only way not to give a parameter.
        if let Some(Value::Array(types)) = members.get("type") {
            members["type"] = types[0].clone();
        }
        members.retain(|_, value| !value.is_null());
        json!({ "name": name, "in": "query", "required": false, "description": description, "schema": schema })
    });
    parameters.collect()
}

/// Rules that the types cannot express: a text that is described as a time of RFC 3339 is one, and a member that is required
/// has no default. Descriptions lose the marks of links and the line breaks of the source.
fn polish(schema: &mut Schema) {
    let required: Vec<String> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
        .unwrap_or_default();
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (name, property) in properties {
            let Some(property) = property.as_object_mut() else { continue };
            if required.contains(name) {
                property.remove("default");
            }
            let described = property.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
            let is_text = match property.get("type") {
                Some(Value::String(one)) => one == "string",
                Some(Value::Array(types)) => types.contains(&json!("string")),
                _ => false,
            };
            if is_text && described.contains("RFC 3339") {
                property.insert("format".to_owned(), json!("date-time"));
            }
        }
    }
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace("[`", "`").replace("`]", "`").replace('\n', " ");
    }
}
