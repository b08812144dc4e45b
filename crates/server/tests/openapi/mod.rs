//! The document that the server serves is the one that its types make. `openapi.json` is made here and committed, so that nothing
//! that makes it is in the program.

mod document;
pub(crate) mod example;
mod schema;

use std::fs;

use crate::api::local_server::LocalServer;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/openapi.json");

#[test]
fn the_document_is_what_the_types_say() {
    let made = serde_json::to_string_pretty(&document::document()).unwrap() + "\n";
    if std::env::var_os("FENCEHOLD_WRITE_GOLDENS").is_some() {
        fs::write(PATH, made).unwrap();
        return;
    }
    let kept = fs::read_to_string(PATH).unwrap();
    let differs = kept.lines().zip(made.lines()).find(|(kept, made)| kept != made);
    let (kept_line, made_line) = differs.unwrap_or(("(its end)", "(its end)"));
    assert!(
        kept == made,
        "crates/server/src/http/openapi.json differs:\n- {kept_line}\n+ {made_line}\nif that is meant: \
         FENCEHOLD_WRITE_GOLDENS=1 cargo test --workspace --all-features --test server openapi::"
    );
}

#[tokio::test]
async fn the_server_serves_the_document() {
    let server = LocalServer::open().await;
    let (status, document) = server.ask("GET", "/v1/openapi.json", "", "").await;
    let kept: serde_json::Value = serde_json::from_str(include_str!("../../src/http/openapi.json")).unwrap();
    assert_eq!((status, document), (200, kept));
}
