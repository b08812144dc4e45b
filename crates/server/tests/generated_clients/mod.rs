//! Clients in other languages are generated from the document: each lives the life of a lease and of a job against a real
//! server, by generated types alone. A union that a generator drops, or an answer that is not of its type, ends it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::clocked::ClockedServer;

/// The programs that use the generated clients.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/generated_clients");
/// What both print at the end.
const END: &str = "a lease and a job have lived";

fn installed(program: &str) -> PathBuf {
    fencehold_test_servers::installed(program)
}

/// Runs a program in a folder, with those that were installed from PyPI on its path, and gives what it printed.
fn run(folder: &Path, program: &Path, args: &[&str]) -> String {
    let path = installed("openapi/bin/python").with_file_name("");
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .env("PATH", format!("{}:{}", path.display(), std::env::var("PATH").unwrap_or_default()))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_PROXY", "*")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    printed
}

#[test]
fn a_generated_python_client_lives_through_a_lease_and_a_job() {
    let server = ClockedServer::start("memory:", None);
    let folder = tempfile::tempdir().unwrap();
    let document = format!("{}/v1/openapi.json", server.url);
    run(
        folder.path(),
        &installed("openapi/bin/openapi-python-client"),
        &[
            "generate",
            "--url",
            &document,
            "--meta",
            "none",
            "--output-path",
            "fencehold_client",
            "--fail-on-warning",
        ],
    );
    let program = format!("{PROGRAMS}/life.py");
    let printed = run(folder.path(), &installed("openapi/bin/python"), &[&program, &server.url, "."]);
    assert_eq!(printed.trim(), END);
}

#[test]
fn a_generated_typescript_client_lives_through_a_lease_and_a_job() {
    let server = ClockedServer::start("memory:", None);
    let folder = tempfile::tempdir().unwrap();
    for file in ["life.ts", "tsconfig.json"] {
        fs::copy(Path::new(PROGRAMS).join(file), folder.path().join(file)).unwrap();
    }
    let modules = installed("node/node_modules/typescript").with_file_name("");
    std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).unwrap();
    let document = format!("{}/v1/openapi.json", server.url);
    let generator = installed("node/node_modules/.bin/openapi-ts");
    run(folder.path(), &generator, &["-i", &document, "-o", "client", "-c", "@hey-api/client-fetch"]);
    run(folder.path(), &installed("node/node_modules/.bin/tsc"), &["-p", "."]);
    let printed = run(folder.path(), Path::new("node"), &["out/life.js", &server.url]);
    assert_eq!(printed.trim(), END);
}

#[test]
fn the_document_is_valid() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http");
    run(&document, &installed("openapi/bin/openapi-spec-validator"), &["openapi.json"]);
}
