//! Stages in two lanes. Most run in order, here, and are seen as they run. Those marked `beside` go on meanwhile, each in a process of its
//! own whose output is shown when it ends: they fill the processors while tests wait. Each lane stops at the first failure of either.

use std::io::{PipeReader, Read as _};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::report::{StageOutcome, StageRow};
use crate::stage::{Stage, StageFailure};

/// The command that runs one stage in a process of its own.
pub(crate) const ALONE: &str = "--alone";
/// What such a process says before the reason of a failure, which comes last.
const FAILED: &str = "\nxtask: this stage failed: ";
/// Of what runs beside others, only what others wait for competes with them.
const NICE: [&str; 3] = ["nice", "-n", "10"];

struct Run<'a> {
    stages: &'a [Stage],
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    progress: Vec<Progress>,
    failures: Vec<StageFailure>,
}

enum Progress {
    Waits,
    Runs,
    Ended(StageOutcome),
}

/// Runs them. How each went, how long all took, and what failed.
pub(crate) fn run(stages: &[Stage]) -> (Vec<StageRow>, Duration, Option<StageFailure>) {
    let started = Instant::now();
    let progress = stages.iter().map(|_| Progress::Waits).collect();
    let run =
        Run { stages, state: Mutex::new(State { progress, failures: Vec::new() }), changed: Condvar::new() };
    thread::scope(|scope| {
        if stages.iter().any(|stage| !stage.beside) {
            scope.spawn(|| run.lane(true, alone));
        }
        run.lane(false, here);
        // What is left is done by both.
        run.lane(true, here);
    });
    let State { progress, failures } = run.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let row = |(stage, progress): (&Stage, Progress)| {
        let outcome = if let Progress::Ended(outcome) = progress { outcome } else { StageOutcome::NotRun };
        StageRow { stage: stage.name, outcome }
    };
    (stages.iter().zip(progress).map(row).collect(), started.elapsed(), together(failures))
}

/// Both lanes may fail: then both are named.
fn together(failures: Vec<StageFailure>) -> Option<StageFailure> {
    let mut failures = failures.into_iter();
    let mut first = failures.next()?;
    for StageFailure { stage, why } in failures {
        first.why = format!("{}\nand stage `{stage}` failed: {why}", first.why);
    }
    Some(first)
}

impl Run<'_> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs those stages that are `beside`, or those that are not, one after the other.
    fn lane(&self, beside: bool, run: impl Fn(&Stage, bool) -> Result<(), String>) {
        while let Some(nth) = self.next(beside) {
            let stage = &self.stages[nth];
            let awaited = self.stages.iter().any(|other| other.after.contains(&stage.name));
            let started = Instant::now();
            let result = run(stage, awaited);
            let took = started.elapsed();
            let outcome = match result {
                Ok(()) => StageOutcome::Passed(took),
                Err(_) => StageOutcome::Failed(took),
            };
            let failure = result.err().map(|why| StageFailure { stage: stage.name, why });
            let mut seen = self.state();
            seen.progress[nth] = Progress::Ended(outcome);
            seen.failures.extend(failure);
            self.changed.notify_all();
        }
    }

    /// The next stage of a lane, once it may run. `None`: there is none left, or one has failed.
    fn next(&self, beside: bool) -> Option<usize> {
        let mut state = self.state();
        loop {
            if !state.failures.is_empty() {
                return None;
            }
            let waits = |nth: &usize| {
                self.stages[*nth].beside == beside && matches!(state.progress[*nth], Progress::Waits)
            };
            let nth = (0..self.stages.len()).find(waits)?;
            if self.stages[nth].after.iter().all(|name| self.has_passed(&state, name)) {
                state.progress[nth] = Progress::Runs;
                return Some(nth);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether a stage has passed, if it is to run at all.
    fn has_passed(&self, state: &State, name: &str) -> bool {
        let nth = self.stages.iter().position(|stage| stage.name == name);
        nth.is_none_or(|nth| matches!(state.progress[nth], Progress::Ended(StageOutcome::Passed(_))))
    }
}

fn here(stage: &Stage, _awaited: bool) -> Result<(), String> {
    println!("\n=== {} ===", stage.name);
    stage.run()
}

/// Runs a stage in a process of its own, and shows what it said at the end, all at once.
fn alone(stage: &Stage, awaited: bool) -> Result<(), String> {
    // Of this very program: what lies at its path may have been built anew by now.
    let mut words = if awaited { Vec::new() } else { NICE.to_vec() };
    let itself = format!("/proc/{}/exe", std::process::id());
    words.extend([itself.as_str(), ALONE, stage.name]);
    let fault = |error| format!("stage `{}` cannot be started: {error}", stage.name);
    let (said, success) = said(&words).map_err(fault)?;
    let (shown, why) = said.rsplit_once(FAILED).unwrap_or((&said, "it ended without a reason"));
    println!("\n=== {} (beside) ===\n{}", stage.name, shown.trim_end());
    if success { Ok(()) } else { Err(why.trim_end().to_owned()) }
}

/// What a program prints, in either way, and whether it ends well.
fn said(words: &[&str]) -> std::io::Result<(String, bool)> {
    let (mut reader, writer): (PipeReader, _) = std::io::pipe()?;
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let mut child = command.spawn()?;
    // The ends of the pipe that are here would keep it open.
    drop(command);
    let mut said = Vec::new();
    reader.read_to_end(&mut said)?;
    Ok((String::from_utf8_lossy(&said).into_owned(), child.wait()?.success()))
}

/// The process for one stage.
pub(crate) fn run_alone(stage: &Stage) -> ExitCode {
    match stage.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{FAILED}{why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const PASSES: Stage = Stage::new("passes", || Ok(()));
    const FAILS: Stage = Stage::new("fails", || Err("on purpose".to_owned()));

    /// As it runs them, but that all run in this process.
    fn run_here(stages: &[Stage]) -> Vec<StageFailure> {
        let progress = stages.iter().map(|_| Progress::Waits).collect();
        let state = Mutex::new(State { progress, failures: Vec::new() });
        let run = Run { stages, state, changed: Condvar::new() };
        thread::scope(|scope| {
            scope.spawn(|| run.lane(true, here));
            run.lane(false, here);
        });
        run.state.into_inner().unwrap().failures
    }

    #[test]
    fn the_first_failure_is_named_and_ends_the_run() {
        static LATER_RUNS: AtomicU32 = AtomicU32::new(0);
        let count = || {
            LATER_RUNS.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let later = Stage::new("later", count);
        let beside = Stage::new("beside", count).beside(&["fails"]);

        let (rows, _, failure) = run(&[PASSES, FAILS, later, beside]);

        let failure = failure.unwrap();
        assert_eq!((failure.stage, failure.why.as_str()), ("fails", "on purpose"));
        assert_eq!(LATER_RUNS.load(Ordering::SeqCst), 0);
        assert!(matches!(rows[2].outcome, StageOutcome::NotRun));
        assert!(matches!(rows[3].outcome, StageOutcome::NotRun));
    }

    #[test]
    fn a_run_without_failure_is_ok() {
        assert!(run(&[PASSES, PASSES]).2.is_none());
        assert!(run(&[PASSES.beside(&["not among them"])]).2.is_none(), "alone, it runs here");
    }

    #[test]
    fn both_lanes_run_at_once_and_both_failures_are_named() {
        static BOTH: Barrier = Barrier::new(2);
        fn fails() -> Result<(), String> {
            BOTH.wait();
            Err("on purpose".to_owned())
        }
        let failures = run_here(&[Stage::new("one", fails), Stage::new("two", fails).beside(&[])]);
        let failure = together(failures).unwrap();
        let (other, why) = failure.why.split_once(" failed: ").unwrap();
        assert_eq!(why, "on purpose");
        let other = other.strip_prefix("on purpose\nand stage ").unwrap();
        assert!([("one", "`two`"), ("two", "`one`")].contains(&(failure.stage, other)));
    }

    #[test]
    fn a_stage_runs_after_those_that_it_needs() {
        static ORDER: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        fn note(name: &'static str) {
            ORDER.lock().unwrap().push(name);
        }
        let stages = [
            Stage::new("servers", || {
                note("servers");
                Ok(())
            })
            .beside(&["format"]),
            Stage::new("format", || {
                note("format");
                Ok(())
            }),
            Stage::new("tests", || {
                note("tests");
                Ok(())
            })
            .after(&["servers"]),
        ];
        assert!(run_here(&stages).is_empty());
        assert_eq!(*ORDER.lock().unwrap(), ["format", "servers", "tests"]);
    }

    #[test]
    fn of_another_process_all_that_it_says_is_shown_and_whether_it_failed() {
        let (told, success) = said(&["sh", "-c", "echo out; echo err >&2; exit 1"]).unwrap();
        assert_eq!((told.as_str(), success), ("out\nerr\n", false));
        assert!(said(&["true"]).unwrap().1);
    }
}
