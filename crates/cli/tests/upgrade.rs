//! Two versions of the program side by side: an earlier one and this one.
//!
//! `cargo xtask long upgrade` builds the earlier one and names it in `FENCEHOLD_EARLIER`. Without that, this one stands for both, and the
//! migration that the earlier one does not know is made up.

use std::path::PathBuf;
use std::process::Command;

use fencehold_test_servers::postgres::{Durable, PostgresServer};
use rustix::process::Signal;

use crate::support::{CommandOutput, RunningProcess, TestDirectory, Words, eventually, said};

/// Waits for a file before it ends.
const HELD: &str = "echo $FENCEHOLD_TOKEN >> begun; while [ ! -e end ]; do sleep 0.05; done; echo '\"once\"'";

const ENQUEUE: &str = "job enqueue --queue q --kind k --payload 1";

#[derive(Clone, Copy, Debug)]
enum Version {
    Earlier,
    This,
}

impl Version {
    fn program(self) -> PathBuf {
        let this = PathBuf::from(env!("CARGO_BIN_EXE_fencehold"));
        match self {
            Version::Earlier => std::env::var_os("FENCEHOLD_EARLIER").map_or(this, PathBuf::from),
            Version::This => this,
        }
    }

    /// On a store that is named, or on the default one of the room's home.
    fn command(self, dir: &TestDirectory, store: Option<&str>, words: impl Words) -> Command {
        let template = dir.command(words);
        let envs = template.get_envs().filter(|(name, _)| *name != "FENCEHOLD_STORE");
        let mut command = Command::new(self.program());
        command
            .args(template.get_args())
            .env_clear()
            .envs(envs.filter_map(|(name, value)| Some((name, value?))))
            .envs(store.map(|store| ("FENCEHOLD_STORE", store)))
            .current_dir(dir.path(""))
            .stdin(std::process::Stdio::null());
        command
    }

    fn says(self, dir: &TestDirectory, store: Option<&str>, words: impl Words) -> CommandOutput {
        said(&mut self.command(dir, store, words))
    }

    /// The same where it must work.
    fn does(self, dir: &TestDirectory, store: Option<&str>, words: impl Words) -> String {
        self.says(dir, store, words).ended(0).out.trim().to_owned()
    }
}

/// A job that was begun before a migration is handed in after it, and is not run again.
#[test]
fn a_worker_of_the_earlier_version_hands_in_its_job_after_a_migration() {
    let cluster = PostgresServer::start(Durable::No);
    let url = cluster.url_text("fencehold");
    let store = Some(url.as_str());
    let dir = TestDirectory::new();
    Version::Earlier.does(&dir, store, "store migrate");
    let id = Version::Earlier.does(&dir, store, ENQUEUE);
    let work = ["work", "--queue", "q", "--ttl", "5s", "--concurrency", "2", "--", "sh", "-c", HELD];
    let mut worker = RunningProcess::start(&mut Version::Earlier.command(&dir, store, &work));
    eventually("a run", || !dir.lines("begun").is_empty());

    let migrated = Version::This.says(&dir, store, "store migrate -o json").ended(0);
    let admin = cluster.admin();
    let made_up = migrated.json()["applied"].as_array().unwrap().is_empty();
    if made_up {
        admin.run("INSERT INTO fencehold.migration (version, name) VALUES (9999, 'of the future')");
    }
    // It must connect anew, to a schema that may have become too new for it.
    admin.end_sessions("application_name = 'fencehold' AND pid <> pg_backend_pid()");
    std::fs::write(dir.path("end"), "").unwrap();
    worker.send(Signal::TERM);
    let ended = worker.finish();
    if made_up {
        admin.run("DELETE FROM fencehold.migration WHERE version = 9999");
    }

    let handed_in = Version::This.says(&dir, store, &["job", "get", &id, "-o", "json"]).json();
    assert_eq!(handed_in["state"], "completed", "{handed_in} {ended:?}");
    assert_eq!(handed_in["result"], "once", "{handed_in} {ended:?}");
    let again = r#"echo again >> begun; echo '"again"'"#;
    Version::This.does(&dir, store, &["work", "--queue", "q", "--until-empty", "--", "sh", "-c", again]);
    assert_eq!(dir.lines("begun").len(), 1, "it ran once");
}

fn token(version: Version, dir: &TestDirectory) -> u64 {
    let token = version.does(dir, None, "run --key k -- sh -c 'echo $FENCEHOLD_TOKEN'");
    token.parse().unwrap()
}

/// Whichever version owns the directory, the other one is served, or learns which versions do not fit; nothing is damaged.
#[test]
fn two_versions_on_one_directory_do_no_damage() {
    let dir = TestDirectory::new();
    let mut last = token(Version::Earlier, &dir);
    let id = Version::Earlier.does(&dir, None, ENQUEUE);
    for (owns, other) in [(Version::Earlier, Version::This), (Version::This, Version::Earlier)] {
        let hold = ["run", "--key", "held", "--", "sh", "-c", HELD];
        let mut owner = RunningProcess::start(&mut owns.command(&dir, None, &hold));
        eventually("an owner", || !dir.lines("begun").is_empty());
        for words in ["lease ls", "run --key other -- true", &format!("job get {id}"), "store status"] {
            let said = other.says(&dir, None, words);
            let told = said.code != 0 && said.err.contains("version");
            assert!(said.code == 0 || told, "{other:?} beside {owns:?}: {said:?}");
        }
        std::fs::write(dir.path("end"), "").unwrap();
        // The owner went on.
        owner.finish().ended(0);
        std::fs::remove_file(dir.path("begun")).unwrap();
        std::fs::remove_file(dir.path("end")).unwrap();
        let next = token(Version::This, &dir);
        assert!(next > last, "token {next} after {last}");
        last = next;
    }
    // The way back: served, or told.
    let back = Version::Earlier.says(&dir, None, "lease ls");
    assert!(back.code == 0 || back.err.contains("version"), "{back:?}");
    Version::This.does(&dir, None, "store check");
    let job = Version::This.says(&dir, None, &["job", "get", &id, "-o", "json"]).json();
    assert_eq!(job["state"], "queued", "{job}");
}
