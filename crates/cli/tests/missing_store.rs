//! A store at a path that was named is created only when that is asked for: a mistyped path excludes nothing.
#![cfg(feature = "file")]

use std::path::Path;

use crate::support::{CommandOutput, RunningProcess, TestDirectory, found, said};

/// Every verb that only looks, or acts on what must be there.
const LOOKING: &[&str] = &[
    "lease ls",
    "lease get k",
    "lease revoke k --reason r",
    "job ls",
    "job count",
    "job get 00000000000000000000000000000000",
    "queue ls",
    "queue get q",
    "schedule ls",
    "schedule get s",
    "schedule rm s",
    "event ls",
    "explain k",
    "effect ls",
    "quota get",
    "store status",
    "doctor",
];
/// Verbs that wait for what happens.
const WAITING: &[&str] = &["lease watch", "event watch", "job wait 00000000000000000000000000000000"];
/// Verbs that put something into the store.
const ACTING: &[&str] = &[
    "run --key k -- true",
    "lease acquire k",
    "job enqueue --queue q --kind k --payload 1",
    "job claim --queue q",
    "work --queue q --until-empty -- true",
    "queue pause q",
    "quota set --max-keys 5",
    "schedule set s --cron '0 * * * *' --queue q --kind k --payload 1",
];

/// In a room, with a store that is named by a flag.
fn named(dir: &TestDirectory, store: &str, line: &str) -> CommandOutput {
    default(dir, &format!("--store {store} {line}"))
}

/// In a room, with the default store.
fn default(dir: &TestDirectory, line: &str) -> CommandOutput {
    said(dir.command(line).env_remove("FENCEHOLD_STORE"))
}

fn is_refused(said: &CommandOutput, path: &Path, line: &str) {
    assert_eq!(said.code, 74, "{line}: {said:?}");
    let all = format!("{}{}", said.out, said.err);
    assert!(all.contains(&format!("there is no store in {}", path.display())), "{line}: {said:?}");
    assert!(all.contains("`fencehold --store file:typo/x store create`"), "{line}: {said:?}");
}

#[test]
fn no_verb_creates_a_store_that_was_only_named() {
    let dir = TestDirectory::new();
    let path = std::fs::canonicalize(dir.path("")).unwrap().join("typo/x");
    let all = LOOKING.iter().chain(WAITING).chain(ACTING);
    for line in all
        .clone()
        .chain(&["access-token create t --scope admin", "serve --listen 127.0.0.1:0"])
    {
        is_refused(&named(&dir, "file:typo/x", line), &path, line);
        assert!(!dir.path("typo").exists(), "{line}");
    }
    // By the variable too; and an empty directory is no store.
    std::fs::create_dir_all(dir.path("typo/x")).unwrap();
    for &line in all {
        let said = said(dir.command(line).env("FENCEHOLD_STORE", "file:typo/x"));
        is_refused(&said, &path, line);
        assert_eq!(std::fs::read_dir(dir.path("typo/x")).unwrap().count(), 0, "{line}");
    }
}

#[test]
fn a_server_whose_settings_name_a_missing_store_does_not_start() {
    let dir = TestDirectory::new();
    let path = std::fs::canonicalize(dir.path("")).unwrap().join("typo/x");
    std::fs::write(dir.path("server.toml"), "store = \"file:typo/x\"\nlisten = \"127.0.0.1:0\"\n").unwrap();
    let line = "serve --config server.toml";
    is_refused(&default(&dir, line), &path, line);
    assert!(!dir.path("typo").exists());
}

#[test]
fn the_printed_command_creates_it_and_so_does_create() {
    let dir = TestDirectory::new();
    for _ in 0..2 {
        named(&dir, "file:typo/x", "store create").ended(0);
    }
    let listed = named(&dir, "file:typo/x", "lease ls");
    assert_eq!((listed.code, listed.err.contains("no store")), (0, false), "{listed:?}");
    for (nth, line) in ACTING.iter().enumerate() {
        let store = format!("file:deep/{nth}");
        let line = match line.split_once(" -- ") {
            Some((line, command)) => format!("{line} --create -- {command}"),
            None => format!("{line} --create"),
        };
        let said = named(&dir, &store, &line);
        assert!([0, 75].contains(&said.code), "{line}: {said:?}");
        assert_eq!(named(&dir, &store, "store status").code, 0, "{line}");
    }
}

#[test]
fn the_default_store_creates_itself_and_looking_does_not_create_it() {
    let dir = TestDirectory::new();
    let state = dir.path(".local/state/fencehold");
    for line in LOOKING {
        let said = default(&dir, line);
        let all = format!("{}{}", said.out, said.err);
        assert!(all.contains("there is no store in") && all.contains("yet"), "{line}: {said:?}");
        assert!(said.code != 74 && said.code != 69, "{line}: {said:?}");
        assert!(!state.exists(), "{line}");
    }
    let listed = default(&dir, "lease ls -o json");
    assert_eq!((listed.code, listed.json()), (0, serde_json::json!({ "leases": [] })), "{listed:?}");
    for line in WAITING {
        default(&dir, line).ended(74).says(&["yet"]);
        assert!(!state.exists(), "{line}");
    }
    assert_eq!(default(&dir, "run --key k -- true").code, 0);
    assert!(state.is_dir());
    let listed = default(&dir, "lease ls");
    assert_eq!((listed.code, listed.err.contains("yet")), (0, false), "{listed:?}");
}

#[test]
fn all_who_create_a_store_at_the_same_time_have_the_same_one() {
    let dir = TestDirectory::new();
    let words = "--store file:new/x run --create --key k --wait 60s -- sh -c 'echo $FENCEHOLD_TOKEN'";
    let mut all: Vec<RunningProcess> = (0..8).map(|_| dir.start(words)).collect();
    let token = |running: &mut RunningProcess| running.finish().ended(0).out.trim().parse().unwrap();
    let mut tokens: Vec<u64> = all.iter_mut().map(token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [1, 2, 3, 4, 5, 6, 7, 8], "one store, one counter");
}

#[test]
fn a_store_that_a_reboot_takes_is_created_with_a_warning() {
    let shared = Path::new("/dev/shm");
    if fencehold_contract::memory_file_system(shared).is_none() {
        eprintln!("/dev/shm is not in memory here: nothing to see");
        return;
    }
    let dir = TestDirectory::new();
    let directory = tempfile::tempdir_in(shared).unwrap();
    let store = format!("file:{}", directory.path().join("leases").display());
    let created = named(&dir, &store, "store create").ended(0);
    created.says(&["it is on tmpfs: a reboot takes all of it"]);
    let other = format!("file:{}", directory.path().join("other").display());
    named(&dir, &other, "run -v --create --key k -- true").says(&["created on tmpfs"]);
    let report = named(&dir, &store, "doctor -o json").json();
    assert_eq!(found(&report["checks"], "name", "file system")["verdict"], "warning", "{report}");
}
