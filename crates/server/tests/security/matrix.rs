//! Who may ask what over HTTP, seen by tokens of every scope: every operation of the API is asked by each. What was seen
//! stands in `docs/security.md`.

use fencehold_contract::http::{ALL, Method};
use fencehold_server::access::Scope;
use fencehold_test_servers::security_page;

use super::fixture::SecurityFixture;
use super::rights::{path, sample};

/// What is served beside the operations.
const PAGES: [&str; 6] =
    ["/livez", "/readyz", "/v1/openapi.json", "/metrics", "/v1/events/stream", "/v1/holds/stream"];

#[test]
fn the_matrix_of_http_is_what_was_seen() {
    let fixture = SecurityFixture::new();
    let mut columns = vec!["no token".to_owned()];
    let mut callers = vec![String::new()];
    for scope in Scope::ALL {
        columns.push(format!("`{scope}`"));
        callers.push(fixture.token(Some("team"), &[scope]).headers());
    }
    columns.push("`admin` of another namespace".to_owned());
    let other = fixture.admin("other").headers();
    callers.push(other.replace("fencehold-namespace: other", "fencehold-namespace: team"));
    columns.push("`admin` of every namespace".to_owned());
    let operator = fixture.operator().headers();
    callers.push(format!("{operator}fencehold-namespace: team\r\n"));

    let cell = |headers: &String, method: &str, path: &str, body: Option<&serde_json::Value>| {
        // A stream has no end: its first line is enough.
        let status = if path.ends_with("/stream") {
            fixture.first_status(headers, path)
        } else {
            fixture.ask_with(headers, method, path, body).status
        };
        match status {
            401 => "401",
            403 => "–",
            200..=299 | 404 | 409 => "yes",
            other => panic!("{method} {path}: {other}"),
        }
        .to_owned()
    };
    let mut rows = Vec::new();
    for spec in ALL {
        let (method, body) = match spec.method {
            Method::Get => ("GET", None),
            Method::Post => ("POST", Some(sample(spec.name))),
        };
        let cells = callers
            .iter()
            .map(|headers| cell(headers, method, &path(spec.path), body.as_ref()));
        rows.push((format!("`{}`", spec.name), cells.collect()));
        // An advance closes the store for as long as the longest ttl.
        fixture.clock.advance_ms(3_600_000);
    }
    for page in PAGES {
        rows.push((
            format!("`{page}`"),
            callers.iter().map(|headers| cell(headers, "GET", page, None)).collect(),
        ));
    }
    security_page::check("http", "operation", &columns, &rows);
}
