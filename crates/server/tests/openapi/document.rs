//! The OpenAPI 3.1 document, made from the operations and their types.

use fencehold_contract::http::{
    HOLD_CHANGES_PATH, HttpOperation, IDEMPOTENCY_HEADER, Method, NAMESPACE_HEADER, OperationSpec,
    PROBLEM_TYPE, Scope, TIMEOUT_HEADER, Visitor, every, op,
};
use fencehold_contract::problem::{ErrorKind, Problem};
use schemars::JsonSchema as _;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::{example, schema};

/// The statuses that every operation can answer with, apart from success.
const STATUSES: [u16; 8] = [400, 401, 403, 429, 500, 501, 503, 504];
/// The groups of operations: by the first part of their paths.
const TAGS: [(&str, &str); 12] = [
    ("batch", "Several operations in one request."),
    ("leases", "Leases on keys, each with a fencing token."),
    ("jobs", "Jobs, their attempts and what these report."),
    ("queues", "Queues of jobs."),
    ("schedules", "Schedules that enqueue jobs."),
    ("effects", "The ledger of effects that jobs have."),
    ("operations", "Operations under an idempotency key."),
    ("events", "What happened."),
    ("store", "The store behind the server."),
    ("quota", "How much a namespace may have."),
    ("access", "Access tokens and the audit."),
    ("health", "Whether the server works."),
];
/// And those of operations with a body.
const STATUSES_OF_BODIES: [u16; 2] = [413, 415];

/// The OpenAPI document of everything under `/v1`, and of the two probes.
pub(super) fn document() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut pages = Pages { generator: settings.into_generator(), paths: Map::new() };
    every(&mut pages);
    pages.stream();
    pages.probes();
    let Pages { mut generator, paths } = pages;
    generator.subschema_for::<Problem>();
    let moment = generator.subschema_for::<fencehold_core::wire::Moment>().to_value();
    let key = generator.subschema_for::<fencehold_core::Key>().to_value();
    let mut schemas = generator.take_definitions(true);
    let events = schema::flat_events(&schemas["Event"], &moment, &key);
    schemas.insert("Event".to_owned(), events);
    schema::tidy_all(&mut schemas);
    let mut paths = Value::Object(paths);
    schema::tidy(&mut paths);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Fencehold",
            "description": "Leases with fencing tokens, and jobs on them. Every request that changes something can safely \
                be sent again. Keys, queues and jobs live in a namespace, named by a header.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "http://localhost:7117", "description": "A server on this machine." }],
        "tags": TAGS.map(|(name, description)| json!({ "name": name, "description": description })),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": "Needed where the server asks for it." },
            },
        },
        "security": [{}, { "bearer": [] }],
    })
}

struct Pages {
    generator: SchemaGenerator,
    paths: Map<String, Value>,
}

impl Visitor for Pages {
    fn visit<O: HttpOperation>(&mut self) {
        let OperationSpec { name, method, path, scopes, summary, statuses, .. } = O::SPEC;
        let mut parameters = self.headers();
        let mut statuses = [&STATUSES, statuses].concat();
        let mut page = json!({
            "operationId": name,
            "tags": [tag(path)],
            "summary": summary,
            "description": format!("{summary}. {}", needs(scopes)),
        });
        match method {
            Method::Get => parameters.extend(self.query::<O>(path)),
            Method::Post => {
                statuses.extend(STATUSES_OF_BODIES);
                let schema = self.generator.subschema_for::<O::Request>();
                let mut content = json!({ "schema": schema });
                if let Some(example) = example::of(name).request {
                    content["example"] = example;
                }
                page["requestBody"] = json!({ "required": true, "content": { "application/json": content } });
            }
        }
        if [<op::EnqueueJob as HttpOperation>::SPEC.name, <op::EnqueueJobBatch as HttpOperation>::SPEC.name]
            .contains(&name)
        {
            parameters.push(header(
                IDEMPOTENCY_HEADER,
                "Jobs without an id get one made from this and their place in the request: the same request makes the \
                    same jobs.",
                json!({ "type": "string", "minLength": 1, "maxLength": 512, "pattern": "^[!-~]+$" }),
            ));
        }
        page["parameters"] = parameters.into();
        let answer = self.generator.subschema_for::<O::Response>();
        let content = json!({ "schema": answer, "example": example::of(name).response });
        page["responses"] = self.responses(
            json!({ "description": "It was carried out.", "content": { "application/json": content } }),
            &statuses,
        );
        self.add(path, method, page);
    }
}

impl Pages {
    fn add(&mut self, path: &str, method: Method, page: Value) {
        let method = match method {
            Method::Get => "get",
            Method::Post => "post",
        };
        let item = self.paths.entry(path).or_insert_with(|| json!({}));
        item[method] = page;
    }

    fn headers(&mut self) -> Vec<Value> {
        let mut namespace: Value = self.generator.subschema_for::<fencehold_core::Namespace>().into();
        namespace["pattern"] = "^[a-z0-9._-]+$".into();
        vec![
            header(NAMESPACE_HEADER, "The namespace; `default` if it is missing.", namespace),
            header(
                TIMEOUT_HEADER,
                "For how many milliseconds the server retries while the store is unreachable; more than 60000 counts as 60000.",
                json!({ "type": "integer", "minimum": 0 }),
            ),
        ]
    }

    /// The fields of a request that is asked by its path and its query.
    fn query<O: HttpOperation>(&mut self, path: &str) -> Vec<Value> {
        let schema = O::Request::json_schema(&mut self.generator).to_value();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let fields = schema["properties"].as_object().cloned().unwrap_or_default();
        let parameter = |(name, mut schema): (String, Value)| {
            let in_path = path.contains(&format!("{{{name}}}"));
            let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            // A query has no null: what is not known is left out.
            if let Some(kinds) = schema.get_mut("type").and_then(Value::as_array_mut) {
                kinds.retain(|kind| kind != "null");
            }
            if let Some(any) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
                any.retain(|kind| kind["type"] != "null");
            }
            // What is larger than that is refused, so the document has to say so.
            if schema["format"] == "uint64" && schema.get("maximum").is_none() {
                schema["maximum"] = u64::MAX.into();
            }
            json!({
                "name": name,
                "in": if in_path { "path" } else { "query" },
                "required": required.iter().any(|field| field == name.as_str()),
                "description": description,
                "schema": schema,
            })
        };
        fields.into_iter().map(parameter).collect()
    }

    fn responses(&mut self, success: Value, statuses: &[u16]) -> Value {
        let problem = self.generator.subschema_for::<Problem>();
        let mut responses = Map::from_iter([("200".to_owned(), success)]);
        for status in statuses {
            let kinds = ErrorKind::ALL.iter().filter(|kind| kind.status() == *status);
            let kinds: Vec<&str> = kinds.map(|kind| kind.name()).collect();
            let mut response = json!({
                "description": kinds.join(", "),
                "content": { PROBLEM_TYPE: { "schema": problem } },
            });
            if matches!(status, 429 | 503) {
                response["headers"] = json!({
                    "retry-after": { "description": "In seconds.", "schema": { "type": "integer", "minimum": 0 } },
                });
            }
            responses.insert(status.to_string(), response);
        }
        responses.into()
    }

    /// Watching has no type of its own: its answer does not end.
    fn stream(&mut self) {
        let mut parameters = self.headers();
        parameters.push(header(
            "last-event-id",
            "The cursor to go on from, as browsers send it.",
            json!({ "type": "integer", "minimum": 0 }),
        ));
        let of_the_stream = |parameter: &Value| {
            ["cursor", "prefix", "task_prefix"]
                .iter()
                .any(|name| parameter["name"] == *name)
        };
        let fields = self.query::<op::ListEvents>("").into_iter().filter(of_the_stream);
        parameters.extend(fields);
        let schema = json!({ "type": "string" });
        let success = json!({
            "description": "Batches of events as they happen, each with the cursor to go on from as its id.",
            "content": { "text/event-stream": { "schema": schema } },
        });
        let page = json!({
            "operationId": "watch_events",
            "tags": ["events"],
            "summary": "Events as they happen, as server-sent events",
            "description": needs(<op::ListEvents as HttpOperation>::SPEC.scopes),
            "parameters": parameters,
            "responses": self.responses(success, &[&STATUSES[..], &[410]].concat()),
        });
        self.add("/v1/events/stream", Method::Get, page);
        let success = json!({
            "description": "A message for each key on whose hold another caller acted, as `{\"key\":\"…\"}`; \
                without a key, changes may have been missed. It is a hint: renew to learn what happened.",
            "content": { "text/event-stream": { "schema": { "type": "string" } } },
        });
        let page = json!({
            "operationId": "watch_holds",
            "tags": ["events"],
            "summary": "Keys whose holders should renew at once, as server-sent events",
            "description": needs(&[Scope::LeaseWrite, Scope::JobWork]),
            "parameters": self.headers(),
            "responses": self.responses(success, &STATUSES),
        });
        self.add(HOLD_CHANGES_PATH, Method::Get, page);
    }

    fn probes(&mut self) {
        for (path, name, summary, statuses) in [
            ("/livez", "get_liveness", "Whether the server runs", &[][..]),
            ("/readyz", "get_readiness", "Whether the server and its store answer", &[503][..]),
        ] {
            let success = json!({
                "description": "Yes.",
                "content": { "text/plain": { "schema": { "type": "string" } } },
            });
            let page = json!({
                "operationId": name,
                "tags": ["health"],
                "summary": summary,
                "description": summary,
                "security": [],
                "responses": self.responses(success, statuses),
            });
            self.add(path, Method::Get, page);
        }
    }
}

/// The group of an operation.
fn tag(path: &str) -> &str {
    match path.split('/').nth(2).unwrap_or_default() {
        "access-tokens" | "audit" => "access",
        group => group,
    }
}

/// What a token must allow.
fn needs(scopes: &[Scope]) -> String {
    if scopes.len() == Scope::ALL.len() {
        return "Needs a token, whatever it allows, where the server asks for tokens.".to_owned();
    }
    let names: Vec<String> = scopes.iter().map(|scope| format!("`{scope}`")).collect();
    format!("Needs the scope {} where the server asks for tokens.", names.join(" or "))
}

fn header(name: &str, description: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "header", "description": description, "schema": schema })
}
