//! Every example of the `fencehold` package runs and ends well, and the whole programs of `examples/` pass their tests, some of which run
//! them as processes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::private_postgres::PrivatePostgres;
use crate::{process, workspace};

/// An example shows one thing in seconds; one that runs longer hangs.
const TIME_LIMIT_S: &str = "120";

pub(crate) fn run() -> Result<(), String> {
    snippets()?;
    programs()
}

/// The whole programs: a workspace of their own, with a lock file and dependencies of their own, built into a folder of their own.
fn programs() -> Result<(), String> {
    let server = PrivatePostgres::start(&["fsync=off"])?;
    let mut tests = process::cargo("test --workspace --locked --tests");
    tests
        .current_dir(workspace::root().join("examples"))
        .env("CARGO_TARGET_DIR", workspace::target()?.join("examples"))
        .env("DATABASE_URL", server.url());
    process::run(&mut tests)
}

/// The examples of the package: each shows one thing.
fn snippets() -> Result<(), String> {
    let names = names(&workspace::root().join("crates/client/examples"))?;
    if names.is_empty() {
        println!("no examples yet");
        return Ok(());
    }
    process::run(&mut process::linted_cargo("build --workspace --all-features --examples")?)?;
    let built = workspace::built("debug")?.join("examples");
    let room = ExampleFolder::new()?;
    for name in names {
        // Ctrl-C must still reach the example, hence `--foreground`.
        let mut example = Command::new("timeout");
        example
            .args(["--foreground", "--kill-after=5", TIME_LIMIT_S])
            .arg(built.join(&name));
        // An example must not touch the leases of the user who runs the tests.
        example
            .current_dir(&room.0)
            .env("XDG_STATE_HOME", &room.0)
            .env_remove("FENCEHOLD_STORE");
        process::run(&mut example).map_err(|error| format!("example `{name}`: {error}"))?;
    }
    Ok(())
}

/// The examples in `folder`, as cargo finds them: `NAME.rs` and `NAME/main.rs`. None if there is no such folder.
fn names(folder: &Path) -> Result<Vec<String>, String> {
    let fault = |error| format!("{}: {error}", folder.display());
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        if path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").is_file() {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// A folder of its own for the examples to run in, gone afterwards.
struct ExampleFolder(std::path::PathBuf);

impl ExampleFolder {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("fencehold-examples-{}", std::process::id()));
        // Left over from a run that was killed and had the same process id.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for ExampleFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_found_as_cargo_finds_them() {
        let room = ExampleFolder::new().unwrap();
        fs::write(room.0.join("one.rs"), "").unwrap();
        fs::write(room.0.join("notes.md"), "").unwrap();
        fs::create_dir_all(room.0.join("two")).unwrap();
        fs::write(room.0.join("two/main.rs"), "").unwrap();
        fs::create_dir_all(room.0.join("data")).unwrap();
        assert_eq!(names(&room.0).unwrap(), ["one", "two"]);
        assert!(names(&room.0.join("absent")).unwrap().is_empty());
    }
}
