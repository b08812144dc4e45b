//! Schemas as generators of clients like them: no nulls, enumerations as lists of texts, and unions whose variants have names.

use serde_json::{Map, Value, json};

/// What the variants of a union are called: its own name stands before theirs, but for these.
const PREFIXES: [(&str, &str); 4] = [
    ("LedgerEntry", "Ledger"),
    ("LedgerResponse", "Ledger"),
    ("OperationStatus", "Operation"),
    ("EffectResolution", "Effect"),
];

/// The one field of an event that is a moment: as the rules have it, and in JSON.
const DUE: (&str, &str) = ("due_at_ms", "due_at");

/// Events as they are sent, from what they say: each kind is an object with its `type` and what every event has; the last one is for those
/// that a newer server has.
pub(super) fn flat_events(data: &Value, moment: &Value, key: &Value) -> Value {
    let common = json!({
        "seq": { "type": "integer", "minimum": 0, "description": "Its number." },
        "at": moment,
        "key": key,
    });
    let mut kinds = Vec::new();
    for kind in data["oneOf"].as_array().into_iter().flatten() {
        for (name, fields) in kind["properties"].as_object().into_iter().flatten() {
            let mut event = fields.clone();
            event["description"] = kind["description"].clone();
            let mut required = vec!["seq".into(), "at".into(), "key".into(), "type".into()];
            required.extend(fields["required"].as_array().into_iter().flatten().cloned());
            event["required"] = required.into();
            event["properties"]["type"] = json!({ "type": "string", "const": name });
            if let Some(due) = event["properties"].as_object_mut().and_then(|fields| fields.remove(DUE.0)) {
                event["properties"][DUE.1] = json!({ "description": due["description"] });
                for (field, value) in moment.as_object().into_iter().flatten() {
                    event["properties"][DUE.1][field] = value.clone();
                }
                for field in event["required"].as_array_mut().into_iter().flatten() {
                    if field == DUE.0 {
                        *field = DUE.1.into();
                    }
                }
            }
            for (field, schema) in common.as_object().into_iter().flatten() {
                event["properties"][field] = schema.clone();
            }
            if let Some(event) = event.as_object_mut() {
                event.remove("additionalProperties");
            }
            kinds.push(event);
        }
    }
    kinds.push(json!({
        "description": "An event of a kind that is newer than this document.",
        "type": "object",
        "properties": {
            "seq": common["seq"], "at": common["at"], "key": common["key"], "type": { "type": "string" },
        },
        "required": ["seq", "at", "key", "type"],
    }));
    json!({
        "description": "One event: what happened to a key, a job, a queue or a schedule.",
        "anyOf": kinds,
    })
}

/// Puts all schemas of a document into the form.
pub(super) fn tidy_all(schemas: &mut Map<String, Value>) {
    let mut named = Map::new();
    for (name, schema) in schemas.iter_mut() {
        tidy(schema);
        name_variants(name, schema, &mut named);
        if name == "Event" {
            name_events(schema, &mut named);
        }
    }
    schemas.append(&mut named);
}

/// Puts a schema, and all in it, into the form.
pub(super) fn tidy(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Object(fields) => {
            fields.values_mut().for_each(tidy);
            without_null(fields);
            as_enumeration(fields);
        }
        _ => {}
    }
}

/// A field that may be missing is left out, and never null.
fn without_null(fields: &mut Map<String, Value>) {
    if let Some(Value::Array(kinds)) = fields.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [one] = kinds.as_slice() {
            let one = one.clone();
            fields.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(any)) = fields.get_mut("anyOf") {
        any.retain(|kind| kind["type"] != "null");
        if let [Value::Object(one)] = any.as_slice() {
            let one = one.clone();
            fields.remove("anyOf");
            for (name, value) in one {
                fields.entry(name).or_insert(value);
            }
        }
    }
}

/// A choice of constant texts is a text with a list of values.
fn as_enumeration(fields: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = fields.get("oneOf") else { return };
    let mut values = Vec::new();
    for choice in choices {
        match (choice.get("const"), choice.get("enum")) {
            (Some(Value::String(one)), _) => values.push(json!(one)),
            (None, Some(Value::Array(some))) if choice["type"] == "string" => {
                values.extend(some.iter().cloned());
            }
            _ => return,
        }
    }
    fields.remove("oneOf");
    fields.insert("type".to_owned(), "string".into());
    fields.insert("enum".to_owned(), values.into());
}

/// Events refer to their kinds by name. There is no discriminator: the last kind takes every type, and so those of a newer server.
fn name_events(schema: &mut Value, named: &mut Map<String, Value>) {
    for kind in schema["anyOf"].as_array_mut().into_iter().flatten() {
        let title = match kind["properties"]["type"]["const"].as_str() {
            Some(name) => format!("{}Event", title(name)),
            None => "OtherEvent".to_owned(),
        };
        let place = format!("#/components/schemas/{title}");
        named.insert(title, std::mem::replace(kind, json!({ "$ref": place })));
    }
}

fn title(name: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').filter(|part| !part.is_empty()).map(word).collect()
}

/// A union refers to its variants by name.
fn name_variants(name: &str, schema: &mut Value, named: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = schema.get_mut("oneOf") else { return };
    let kinds: Option<Vec<String>> = variants
        .iter()
        .map(|variant| variant["properties"]["type"]["const"].as_str().map(str::to_owned))
        .collect();
    let Some(kinds) = kinds else { return };
    let prefix = PREFIXES.iter().find(|(union, _)| *union == name);
    let prefix = prefix.map_or(name, |(_, prefix)| prefix);
    let mut mapping = Map::new();
    for (kind, variant) in kinds.into_iter().zip(variants.iter_mut()) {
        let title = format!("{prefix}{}", title(&kind));
        let place = format!("#/components/schemas/{title}");
        mapping.insert(kind, place.clone().into());
        named.insert(title, std::mem::replace(variant, json!({ "$ref": place })));
    }
    schema["discriminator"] = json!({ "propertyName": "type", "mapping": mapping });
}
