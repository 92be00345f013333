//! Types of the dashboard's page, made from the API's description. `UPDATE_WEB=1 cargo test -p parda-http` writes them.

use std::path::Path;

use serde_json::Value;
use utoipa::OpenApi as _;

use crate::api::Description;

const HEAD: &str = "// Types of the agent's HTTP API, made from its OpenAPI description: UPDATE_WEB=1 cargo test -p parda-http.\n";

/// Type of a value. An answer has all properties of its object.
fn type_of(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('/').next().unwrap().to_owned();
    }
    if let Some(values) = schema["enum"].as_array() {
        return joined(values.iter().map(Value::to_string), " | ");
    }
    for (key, between) in [("allOf", " & "), ("oneOf", " | ")] {
        if let Some(parts) = schema[key].as_array() {
            return joined(parts.iter().map(type_of), between);
        }
    }
    match &schema["type"] {
        Value::Array(kinds) => {
            let kind = |kind: &Value| {
                let mut one = schema.clone();
                one["type"] = kind.clone();
                type_of(&one)
            };
            joined(kinds.iter().map(kind), " | ")
        }
        Value::String(kind) => match kind.as_str() {
            "integer" => "number".to_owned(),
            "array" => match type_of(&schema["items"]) {
                items if items.contains(' ') => format!("({items})[]"),
                items => format!("{items}[]"),
            },
            "object" => object(schema),
            kind => kind.to_owned(),
        },
        _ => "unknown".to_owned(),
    }
}

fn object(schema: &Value) -> String {
    let Some(properties) = schema["properties"].as_object() else {
        return format!("Record<string, {}>", type_of(&schema["additionalProperties"]));
    };
    let mut lines: Vec<_> =
        properties.iter().map(|(key, schema)| format!("  {key}: {};\n", type_of(schema))).collect();
    lines.sort();
    format!("{{\n{}}}", lines.concat())
}

fn joined(types: impl Iterator<Item = String>, between: &str) -> String {
    types.collect::<Vec<_>>().join(between)
}

#[test]
fn the_types_of_the_page_are_those_of_the_api() {
    let description = serde_json::to_value(Description::openapi()).unwrap();
    let schemas = description["components"]["schemas"].as_object().unwrap();
    let mut types: Vec<_> = schemas
        .iter()
        .map(|(name, schema)| format!("\nexport type {name} = {};\n", type_of(schema)))
        .collect();
    types.sort();
    let made = format!("{HEAD}{}", types.concat());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/src/answers.ts");
    if std::env::var_os("UPDATE_WEB").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(written == made, "run UPDATE_WEB=1 cargo test -p parda-http, then make web");
}
