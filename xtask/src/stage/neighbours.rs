//! The library beside other users of SQLite, which a program can link only once: a small program for each compiles and runs. And the tests of
//! `file:` on the oldest binding that we accept; `cargo xtask test` runs them on the newest.
//!
//! Not part of `test`: it builds half a dozen frameworks.

use std::fs;
use std::path::Path;

use super::upgrade;
use crate::{process, workspace};

/// The oldest version of `rusqlite` that `Cargo.toml` allows.
const OLDEST: &str = "0.32.1";

/// Another user of SQLite.
struct Neighbour {
    name: &'static str,
    /// As in `Cargo.toml`.
    dependencies: &'static str,
    /// Asks SQLite for 1, as an `i64`.
    asks: &'static str,
}

const NEIGHBOURS: [Neighbour; 8] = [
    Neighbour { name: "rusqlite-0-32", dependencies: "rusqlite = \"0.32\"", asks: RUSQLITE },
    Neighbour { name: "rusqlite-0-37", dependencies: "rusqlite = \"0.37\"", asks: RUSQLITE },
    Neighbour { name: "rusqlite-0-41", dependencies: "rusqlite = \"0.41\"", asks: RUSQLITE },
    Neighbour {
        name: "sqlx-0-8",
        dependencies: "sqlx = { version = \"0.8\", features = [\"runtime-tokio\", \"sqlite\", \"postgres\"] }",
        asks: SQLX,
    },
    Neighbour {
        name: "sqlx-0-9",
        dependencies: "sqlx = { version = \"0.9\", features = [\"runtime-tokio\", \"sqlite\", \"postgres\"] }",
        asks: SQLX,
    },
    Neighbour {
        name: "diesel-2",
        dependencies: "diesel = { version = \"2.3\", features = [\"sqlite\"] }",
        asks: "{
            use diesel::prelude::*;
            let mut connection = diesel::SqliteConnection::establish(\":memory:\")?;
            i64::from(diesel::select(1.into_sql::<diesel::sql_types::Integer>()).get_result::<i32>(&mut connection)?)
        }",
    },
    Neighbour {
        name: "sea-orm-1",
        dependencies: "sea-orm = { version = \"1.1\", features = [\"runtime-tokio\", \"sqlx-sqlite\"] }",
        asks: "runtime.block_on(async {
            use sea_orm::{ConnectionTrait, Database, DatabaseBackend, Statement};
            let database = Database::connect(\"sqlite::memory:\").await?;
            let one = Statement::from_string(DatabaseBackend::Sqlite, \"SELECT 1 AS one\");
            let row = database.query_one(one).await?.ok_or(\"no row\")?;
            Ok::<i64, Box<dyn std::error::Error>>(row.try_get(\"\", \"one\")?)
        })?",
    },
    Neighbour {
        name: "apalis-0-7",
        dependencies: "apalis = \"0.7\"\napalis-sql = { version = \"0.7\", features = [\"sqlite\", \"tokio-comp\"] }",
        asks: "runtime.block_on(async {
            use apalis::prelude::Storage;
            let pool = apalis_sql::sqlite::SqlitePool::connect(\"sqlite::memory:\").await?;
            apalis_sql::sqlite::SqliteStorage::setup(&pool).await?;
            let mut storage = apalis_sql::sqlite::SqliteStorage::new(pool);
            storage.push(\"a job\".to_owned()).await?;
            storage.len().await
        })?",
    },
];

const RUSQLITE: &str =
    "rusqlite::Connection::open_in_memory()?.query_row(\"SELECT 1\", [], |row| row.get(0))?";
const SQLX: &str = "runtime.block_on(async {
            let pool = sqlx::SqlitePool::connect(\"sqlite::memory:\").await?;
            sqlx::query_scalar::<_, i64>(\"SELECT 1\").fetch_one(&pool).await
        })?";

pub(crate) fn run() -> Result<(), String> {
    let place = workspace::target()?.join("neighbours");
    for neighbour in &NEIGHBOURS {
        neighbour.runs(&place)?;
    }
    // A copy with a lock file of its own.
    let source = place.join("source");
    upgrade::unpack("HEAD", &source)?;
    let cargo = |words: &str| {
        let mut command = process::cargo(words);
        command.current_dir(&source).env("CARGO_TARGET_DIR", place.join("oldest"));
        command
    };
    process::run(&mut cargo(&format!("update --package rusqlite --precise {OLDEST}")))?;
    process::run(&mut cargo("test --package fencehold-store-file --all-features --test file"))
}

impl Neighbour {
    /// Writes the program, builds it against the library as it is, and runs it.
    fn runs(&self, place: &Path) -> Result<(), String> {
        let Neighbour { name, dependencies, asks } = self;
        let (package, client) =
            (place.join(name), workspace::root().join("crates/client").display().to_string());
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n\
             fencehold = {{ path = \"{client}\", features = [\"postgres\"] }}\n\
             tokio = {{ version = \"1\", features = [\"full\"] }}\n{dependencies}\n\n[workspace]\n"
        );
        let program = format!(
            "fn main() -> Result<(), Box<dyn std::error::Error>> {{
    let runtime = tokio::runtime::Runtime::new()?;
    let directory = std::env::args().nth(1).ok_or(\"which directory?\")?;
    let url = format!(\"file:{{directory}}?create=true\");
    let fh = runtime.block_on(fencehold::Fencehold::connect(&url))?;
    let token = runtime.block_on(fh.lease(\"k\").run(async |lease| lease.token()))?;
    let one: i64 = {asks};
    runtime.block_on(fh.close());
    println!(\"{name}: token {{token}}, SQLite answers {{one}}\");
    Ok(())
}}
"
        );
        let written = fs::create_dir_all(package.join("src"))
            .and_then(|()| fs::write(package.join("Cargo.toml"), manifest))
            .and_then(|()| fs::write(package.join("src/main.rs"), program));
        written.map_err(|error| format!("{}: {error}", package.display()))?;
        let mut cargo = process::cargo("run --quiet --");
        cargo.arg(package.join("store")).current_dir(&package);
        process::run(cargo.env("CARGO_TARGET_DIR", place.join("built")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_binding_is_the_first_that_the_manifest_allows() {
        let manifest = include_str!("../../../Cargo.toml");
        let (minor, _) = OLDEST.rsplit_once('.').unwrap();
        assert!(manifest.contains(&format!("rusqlite = {{ version = \">={minor}, <")), "{OLDEST}");
    }
}
