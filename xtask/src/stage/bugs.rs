//! Deliberate bugs: each is turned on in turn, and the layers of checks are run against it. A bug that its check does not
//! notice is a failure: of the checks, not of the product.
//!
//! The bugs are in no build of the product. They are edits (see `edit.rs`), applied together to a copy of the source in
//! `target/bugs`, which is built once; `FENCEHOLD_BUG` says to that copy which one is on. A *layer* is a set of checks that
//! was not written for the bugs; the *control* is a layer with no bug on, which must pass, or its verdict means nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::docs;
use crate::edit::{Bug, Edits};
use crate::{process, workspace};

const VARIABLE: &str = "FENCEHOLD_BUG";

/// A set of checks.
#[derive(Debug)]
struct Layer {
    /// As an edit names it, and the program of proof.
    name: &'static str,
    /// As the table calls it.
    shown: &'static str,
    /// Which test programs, and their arguments. Without: a layer of the program of proof.
    tests: Option<(&'static [&'static str], &'static [&'static str])>,
    /// How long it may take.
    seconds: u64,
}

/// Run against every bug.
const USUAL: [Layer; 5] = [
    Layer { name: "race", shown: "race", tests: None, seconds: 240 },
    Layer { name: "sim", shown: "sim", tests: None, seconds: 240 },
    Layer { name: "sqlite", shown: "sim on SQLite", tests: None, seconds: 240 },
    Layer { name: "model", shown: "model", tests: None, seconds: 240 },
    Layer { name: "conformance", shown: "conformance", tests: None, seconds: 240 },
];

/// Run against a bug that names them.
const NAMED: [Layer; 2] = [
    Layer { name: "rules", shown: "tests of the rules", tests: Some((&["--test=core"], &[])), seconds: 600 },
    Layer {
        name: "file",
        shown: "tests of `file:` and of the writer",
        tests: Some((
            &["--lib", "--test=file", "--test=stores"],
            // The suite has a layer of its own, and no bug is in who may do what.
            &[
                "--skip=file_owner::",
                "--skip=file_socket::",
                "--skip=file_other_users::",
                "--skip=same_second::",
            ],
        )),
        seconds: 600,
    },
];

/// `cargo test` for all layers of tests: with other packages, cargo would choose other features and build them again.
const TEST: &str = "test --package=fencehold-core --package=fencehold-contract --package=fencehold-engine \
                    --package=fencehold-store-file --package=fencehold-stores";

/// The signal that cannot be ignored.
const SIGKILL: i32 = 9;

/// How a layer came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// It had to be ended.
    Hung,
}

/// What the layers said about one bug.
#[derive(Clone, Debug)]
struct Verdict {
    /// The layers that noticed it, as the table calls them.
    noticed: Vec<String>,
    /// Whether the one that must is among them.
    by_its_check: bool,
    seconds: u64,
}

/// Whether an edit may name this layer.
pub(crate) fn is_check(name: &str) -> bool {
    USUAL.iter().chain(&NAMED).any(|layer| layer.name == name)
}

/// Runs the layers against every bug, or against the one that the environment names, and prints a table.
pub(crate) fn run() -> Result<(), String> {
    let mut edits = Edits::read(workspace::root())?;
    let files = edits.applied(workspace::root())?;
    if let Ok(chosen) = std::env::var(VARIABLE) {
        edits.bugs.retain(|bug| bug.name == chosen);
        if edits.bugs.is_empty() {
            return Err(format!("there is no bug `{chosen}`"));
        }
    }
    let bugs = edits.bugs;
    let copy = Copy { folder: workspace::target()?.join("bugs") };
    copy.write(&files)?;
    let named = NAMED.iter().filter(|layer| bugs.iter().any(|bug| bug.check == layer.name));
    let layers: Vec<&Layer> = USUAL.iter().chain(named).collect();
    copy.build(&layers)?;
    for layer in &layers {
        let started = Instant::now();
        control(layer.shown, copy.outcome(layer, None)?)?;
        println!("with no bug on, `{}` passes: {} s", layer.shown, started.elapsed().as_secs());
    }
    let verdicts = in_parallel(&bugs, |bug| {
        let verdict = copy.verdict(bug, &layers)?;
        println!("{}: {} ({} s)", bug.name, verdict.noticed.join(", "), verdict.seconds);
        Ok(verdict)
    })?;
    judge(&bugs, &verdicts)
}

/// Prints the table.
fn judge(bugs: &[Bug], verdicts: &[Verdict]) -> Result<(), String> {
    println!("\n| bug | promise | what is done wrong | noticed by |\n|---|---|---|---|");
    let mut missed = Vec::new();
    for (Bug { name, wrong, breaks, check }, verdict) in bugs.iter().zip(verdicts) {
        let nothing = || "**nothing**".to_owned();
        let by = if verdict.noticed.is_empty() { nothing() } else { verdict.noticed.join(", ") };
        println!("| {name} | {breaks} | {wrong} | {by} |");
        if !verdict.by_its_check {
            missed.push(format!("{name} by `{check}`"));
        }
    }
    println!("\n{} of {} noticed", bugs.len() - missed.len(), bugs.len());
    if missed.is_empty() { Ok(()) } else { Err(format!("not noticed: {}", missed.join(", "))) }
}

/// What a layer says with no bug on.
fn control(layer: &str, outcome: Outcome) -> Result<(), String> {
    match outcome {
        Outcome::Passed => Ok(()),
        Outcome::Failed => Err(format!("with no bug on, `{layer}` fails")),
        Outcome::Hung => Err(format!("with no bug on, `{layer}` does not come to its end")),
    }
}

/// One thread for each core; the results are in the order of the bugs.
fn in_parallel<R: Send>(
    bugs: &[Bug],
    run: impl Fn(&Bug) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, R)>, String> {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(bug) = bugs.get(at) else { return Ok(done) };
            done.push((at, run(bug)?));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a thread panicked".to_owned())??);
        }
        Ok::<_, String>(all)
    })?;
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}

/// The source with every bug in it, and what is built from it.
#[derive(Debug)]
struct Copy {
    folder: PathBuf,
}

impl Copy {
    fn source(&self) -> PathBuf {
        self.folder.join("source")
    }

    /// Brings the copy up to date. What has not changed is not written: cargo would build it again.
    fn write(&self, edited: &BTreeMap<String, String>) -> Result<(), String> {
        let root = workspace::root();
        let mut paths: BTreeSet<&str> = edited.keys().map(String::as_str).collect();
        let committed = docs::committed(root)?;
        paths.extend(committed.iter().filter_map(|path| path.to_str()));
        for path in &paths {
            let to = self.source().join(path);
            let bytes = match edited.get(*path) {
                Some(text) => Ok(text.clone().into_bytes()),
                None => fs::read(root.join(path)),
            };
            let written = bytes.and_then(|bytes| {
                if fs::read(&to).is_ok_and(|there| there == bytes) {
                    return Ok(());
                }
                fs::create_dir_all(to.parent().unwrap_or(&to))?;
                fs::write(&to, bytes)
            });
            written.map_err(|error| format!("{path} cannot be copied: {error}"))?;
        }
        remove_others(&self.source(), &self.source(), &paths).map_err(|error| format!("target/bugs: {error}"))
    }

    /// A cargo in the copy, with a target folder of its own: the copy's programs must never be taken for the real ones.
    fn cargo(&self, words: &str) -> Command {
        let mut cargo = process::cargo(words);
        cargo
            .current_dir(self.source())
            .env("CARGO_TARGET_DIR", self.folder.join("target"));
        cargo.env_remove(VARIABLE);
        cargo
    }

    /// Builds all, first: else what does not compile would pass for a bug that was noticed.
    fn build(&self, layers: &[&Layer]) -> Result<(), String> {
        let words = "build --profile proof -p fencehold-proof --features layers --bin proof";
        process::run(&mut self.cargo(words))?;
        for (args, _) in layers.iter().filter_map(|layer| layer.tests) {
            process::run(self.cargo(TEST).arg("--no-run").args(args))?;
        }
        Ok(())
    }

    fn verdict(&self, bug: &Bug, layers: &[&Layer]) -> Result<Verdict, String> {
        let started = Instant::now();
        let mut verdict = Verdict { noticed: Vec::new(), by_its_check: false, seconds: 0 };
        for layer in layers.iter().filter(|layer| layer.tests.is_none() || layer.name == bug.check) {
            let shown = match self.outcome(layer, Some(bug))? {
                Outcome::Passed => continue,
                Outcome::Failed => layer.shown.to_owned(),
                // The control came to its end in the same time.
                Outcome::Hung => format!("{} (hung)", layer.shown),
            };
            verdict.by_its_check |= layer.name == bug.check;
            verdict.noticed.push(shown);
        }
        verdict.seconds = started.elapsed().as_secs();
        Ok(verdict)
    }

    /// Runs a layer in a process of its own, with a bug on or with none. An error: it could not be run at all.
    fn outcome(&self, layer: &Layer, bug: Option<&Bug>) -> Result<Outcome, String> {
        let run = match layer.tests {
            None => {
                let mut proof = Command::new(self.folder.join("target/proof/proof"));
                proof.args(["layer", layer.name]).current_dir(self.source());
                proof
            }
            Some((args, for_tests)) => {
                let mut cargo = self.cargo(TEST);
                cargo.args(args).arg("--").args(for_tests);
                cargo
            }
        };
        let mut command = within(layer.seconds, &run);
        command.env_remove(VARIABLE);
        if let Some(bug) = bug {
            command.env(VARIABLE, &bug.name);
        }
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.map_err(|error| format!("timeout cannot be started: {error}"))?;
        outcome(status).ok_or_else(|| format!("`{}` cannot be run: {status}", layer.shown))
    }
}

/// Removes what the source does not have any more.
fn remove_others(folder: &Path, source: &Path, paths: &BTreeSet<&str>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let known = path.strip_prefix(source).ok().and_then(Path::to_str);
        if path.is_dir() {
            remove_others(&path, source, paths)?;
        } else if known.is_none_or(|known| !paths.contains(known)) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// The same command, ended after some seconds.
fn within(seconds: u64, run: &Command) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &seconds.to_string()]);
    command.arg(run.get_program()).args(run.get_args());
    if let Some(folder) = run.get_current_dir() {
        command.current_dir(folder);
    }
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// What the end of a layer under `timeout` means. `None`: it was never run.
fn outcome(status: ExitStatus) -> Option<Outcome> {
    match status.code() {
        Some(0) => Some(Outcome::Passed),
        // Its time was up, and it went, or had to be killed: `timeout` goes by the same signal, or says so.
        Some(124 | 137) => Some(Outcome::Hung),
        None if status.signal() == Some(SIGKILL) => Some(Outcome::Hung),
        // `timeout` itself went wrong, or found nothing to run.
        Some(125..=127) => None,
        _ => Some(Outcome::Failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bug(name: &str) -> Bug {
        let word = str::to_owned;
        Bug { name: word(name), wrong: word("all"), breaks: word("P1"), check: word("race") }
    }

    #[test]
    fn a_layer_that_fails_or_hangs_with_no_bug_on_gives_no_table() {
        assert_eq!(control("sim", Outcome::Passed), Ok(()));
        assert!(control("sim", Outcome::Failed).unwrap_err().contains("`sim` fails"));
        assert!(control("sim", Outcome::Hung).unwrap_err().contains("does not come to its end"));
    }

    #[test]
    fn a_bug_that_its_own_check_misses_is_a_failure() {
        let noticed = Verdict { noticed: vec!["race".to_owned()], by_its_check: true, seconds: 0 };
        let elsewhere = Verdict { noticed: vec!["sim".to_owned()], by_its_check: false, seconds: 0 };
        let bugs = [bug("One"), bug("Other")];
        assert_eq!(judge(&bugs, &[noticed.clone(), noticed.clone()]), Ok(()));
        assert_eq!(judge(&bugs, &[noticed, elsewhere]), Err("not noticed: Other by `race`".to_owned()));
    }

    #[test]
    fn results_are_in_the_order_of_the_bugs_and_an_error_ends_it() {
        let bugs: Vec<Bug> = (0..50).map(|nth| bug(&nth.to_string())).collect();
        let names = in_parallel(&bugs, |bug| Ok(bug.name.clone())).unwrap();
        assert!(names.iter().eq(bugs.iter().map(|bug| &bug.name)));
        assert_eq!(in_parallel::<()>(&bugs, |_| Err("no".to_owned())), Err("no".to_owned()));
    }

    fn ends(script: &str, seconds: &str) -> Option<Outcome> {
        let words = ["--kill-after=1", seconds, "sh", "-c", script];
        outcome(Command::new("timeout").args(words).status().expect("coreutils"))
    }

    #[test]
    fn a_layer_that_hangs_is_told_from_one_that_fails_and_from_one_that_cannot_be_run() {
        assert_eq!(ends("true", "60"), Some(Outcome::Passed));
        assert_eq!(ends("exit 101", "60"), Some(Outcome::Failed));
        assert_eq!(ends("kill -ABRT $$", "60"), Some(Outcome::Failed));
        assert_eq!(ends("exec sleep 60", "0.1"), Some(Outcome::Hung));
        assert_eq!(ends("trap '' TERM; while :; do :; done", "0.1"), Some(Outcome::Hung));
        assert_eq!(ends("exec /no/such/program", "60"), None);
    }
}
