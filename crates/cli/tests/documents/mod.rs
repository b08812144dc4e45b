//! The scenarios of five documents from which people come, end to end on the real binary. Each file is named after its
//! document, has a table of that document's words at its top, and prints what happened, one JSON object a line:
//!
//! ```sh
//! cargo test --workspace --all-features --test cli -- documents:: --nocapture
//! ```
//!
//! Order is made by barriers: a write that is held up at the storage, a worker that waits for a line, a claim that waits
//! until the job is there. Nothing sleeps for it.
#![allow(clippy::print_stdout, reason = "a document's scenario prints its trace")]

mod every_lock_is_a_lease;
mod faultline_lease_expiry_race;
mod gcs_race_conditions_and_generation_fenced_leases;
mod leases_and_ownership;
mod lock_timeout_and_lease_management;

use serde_json::Value;

/// What happened, in order. Each line is printed when it is added.
#[derive(Default)]
struct Trace(Vec<Value>);

impl Trace {
    fn add(&mut self, line: Value) {
        println!("{line}");
        self.0.push(line);
    }

    /// It must have these lines and no others, each with these fields beside others.
    #[track_caller]
    fn is(&self, expected: &[Value]) {
        let has = |seen: &Value, fields: &Value| {
            let mut fields = fields.as_object().unwrap().iter();
            fields.all(|(name, value)| seen[name] == *value)
        };
        for (nth, (seen, fields)) in self.0.iter().zip(expected).enumerate() {
            assert!(has(seen, fields), "line {nth} of the trace must have {fields}: {seen}");
        }
        assert_eq!(self.0.len(), expected.len(), "lines of the trace: {:#?}", self.0);
    }
}

/// Events as a store keeps them.
impl From<Vec<Value>> for Trace {
    fn from(events: Vec<Value>) -> Self {
        let mut trace = Trace::default();
        for event in events {
            trace.add(event);
        }
        trace
    }
}

/// One request to a server on a connection of its own: the status, and the body.
#[cfg(feature = "server")]
fn http(address: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = "host: localhost\r\nconnection: close\r\ncontent-type: application/json";
    let length = body.len();
    let request = format!("{method} /v1{path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let status = response.split(' ').nth(1).unwrap().parse().unwrap();
    let body = response.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}")))
}
