//! Any story of raises, appends and replacements by two processes, with kills, power cuts and failing syncs anywhere in
//! it, held against a model: what was answered is there, exactly once; what was not is there once or not at all.

use std::collections::HashSet;
use std::fmt;

use fencehold_core::{Key, Namespace, Token};
use futures_channel::oneshot::{self, Receiver};
use proptest::prelude::*;

use super::super::Appended;
use super::super::batch::{FileRequest, answer_all, carry_out};
use super::super::disk::Name;
use super::super::frame::AppendId;
use super::super::journal::Journal;
use super::simulated_disk::SimDisk;
use crate::fence::error::FenceError;
use crate::fence::key_token::KeyToken;

/// Small, so that journals are written anew all the time.
const SLACK_BYTES: u64 = 200;

#[derive(Clone, Debug)]
enum FileStep {
    /// One step of these: key, token, and the number of the line if it is an append.
    Step(Vec<(u8, u64, Option<u8>)>),
    Replace(u8, u64, u8),
}

/// What befalls a process: after so many operations it is killed, if it is still at work; then the power may go.
#[derive(Clone, Debug)]
struct ProcessFault {
    kill_after: Option<u32>,
    power: Option<u64>,
    failing_sync: Option<u32>,
}

#[derive(Clone, Debug)]
struct PowerCase {
    by: usize,
    step: FileStep,
    /// The first befalls the deed, the others those who come after it.
    mishaps: Vec<ProcessFault>,
}

#[derive(Clone, Default, PartialEq)]
struct FileModel {
    content: Vec<u8>,
    marks: [u64; 3],
    made: HashSet<(u8, u8)>,
}

#[derive(Debug, PartialEq)]
enum StepResult {
    Done(Option<Appended>),
    Stale { highest: u64 },
    Unknown,
}

fn key(number: u8) -> Key {
    Key::new(format!("job/{number}")).unwrap()
}

fn line(key: u8, number: u8) -> Vec<u8> {
    format!("line {number} of job {key}{}\n", ".".repeat(usize::from(number) * 7)).into_bytes()
}

impl FileModel {
    fn admit(&mut self, key: u8, token: u64) -> Result<(), StepResult> {
        let mark = &mut self.marks[usize::from(key)];
        if token < *mark {
            return Err(StepResult::Stale { highest: *mark });
        }
        *mark = token;
        Ok(())
    }

    fn act(&mut self, step: &FileStep) -> Vec<StepResult> {
        match step {
            FileStep::Replace(key, token, number) => {
                let replaced = self.admit(*key, *token).map(|()| {
                    self.content = line(*key, *number);
                    StepResult::Done(None)
                });
                vec![replaced.unwrap_or_else(|stale| stale)]
            }
            FileStep::Step(parts) => parts
                .iter()
                .map(|(key, token, number)| match (self.admit(*key, *token), number) {
                    (Err(stale), _) => stale,
                    (Ok(()), None) => StepResult::Done(None),
                    (Ok(()), Some(number)) if self.made.insert((*key, *number)) => {
                        self.content.extend(line(*key, *number));
                        StepResult::Done(Some(Appended::New))
                    }
                    (Ok(()), Some(_)) => StepResult::Done(Some(Appended::Duplicate)),
                })
                .collect(),
        }
    }
}

struct PowerTest {
    disk: SimDisk,
    processes: [Journal<SimDisk>; 2],
}

fn process(disk: &SimDisk) -> Journal<SimDisk> {
    Journal::new(disk.clone(), 1_000, SLACK_BYTES)
}

impl fmt::Debug for FileModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = String::from_utf8_lossy(&self.content).replace('.', "");
        write!(f, "{content:?} marks {:?} made {:?}", self.marks, self.made)
    }
}

impl PowerTest {
    fn new() -> Self {
        let disk = SimDisk::default();
        PowerTest { processes: [process(&disk), process(&disk)], disk }
    }

    fn act(&mut self, by: usize, step: &FileStep) -> Vec<StepResult> {
        let mut batch = Vec::new();
        let mut answers: Vec<Box<dyn FnOnce() -> StepResult>> = Vec::new();
        let pass = |key: u8, token: u64| KeyToken::new(super::power_cuts::key(key), Token::new(token));
        match step {
            FileStep::Replace(key, token, number) => {
                let (answer, receiver) = oneshot::channel();
                let (pass, content) = (pass(*key, *token), line(*key, *number));
                batch.push(FileRequest::Replace { pass, content, answer });
                answers.push(Box::new(|| told(receiver, |()| None)));
            }
            FileStep::Step(parts) => {
                for (key, token, number) in parts {
                    let pass = pass(*key, *token);
                    if let Some(number) = number {
                        let made = AppendId::new(&pass.namespace, &pass.key, &number.to_string());
                        let (answer, receiver) = oneshot::channel();
                        batch.push(FileRequest::Append { pass, made, bytes: line(*key, *number), answer });
                        answers.push(Box::new(|| told(receiver, Some)));
                    } else {
                        let (answer, receiver) = oneshot::channel();
                        batch.push(FileRequest::Raise { pass, answer });
                        answers.push(Box::new(|| told(receiver, |()| None)));
                    }
                }
            }
        }
        answer_all(carry_out("sim", &mut self.processes[by], batch));
        answers.into_iter().map(|answer| answer()).collect()
    }

    /// What is remembered and what is in the file, after whatever was left unfinished has been finished. `None`: the one
    /// who looked was killed too.
    fn look(&mut self, by: usize) -> Option<FileModel> {
        if let Err(fault) = self.processes[by].enter() {
            let expected = self.disk.was_killed() || format!("{fault:?}").contains("the disk fails");
            assert!(expected, "no other process may find it unusable: {fault:?}");
            return None;
        }
        let mut model = FileModel { content: self.disk.content(Name::Data), ..FileModel::default() };
        let state = self.processes[by].state();
        for number in 0..3 {
            let mark = state.mark(&Namespace::default(), &key(number));
            model.marks[usize::from(number)] = mark.map_or(0, |mark| mark.token.get());
            for line in 0..8 {
                if state.is_made(AppendId::new(&Namespace::default(), &key(number), &line.to_string())) {
                    model.made.insert((number, line));
                }
            }
        }
        Some(model)
    }

    fn befall(&mut self, by: usize, mishap: &ProcessFault) {
        if self.disk.was_killed() {
            self.processes[by] = process(&self.disk);
        }
        self.disk.kill_after(None);
        self.disk.fail_sync_after(None);
        if let Some(seed) = mishap.power {
            self.disk.cut_power(seed);
            self.processes = [process(&self.disk), process(&self.disk)];
        }
    }
}

fn told<T>(
    mut receiver: Receiver<Result<T, FenceError>>,
    value: impl FnOnce(T) -> Option<Appended>,
) -> StepResult {
    match receiver.try_recv().unwrap().expect("everybody is answered") {
        Ok(answer) => StepResult::Done(value(answer)),
        Err(FenceError::Stale { highest_token, .. }) => StepResult::Stale { highest: highest_token.get() },
        Err(FenceError::Unknown { .. }) => StepResult::Unknown,
        Err(other) => panic!("{other}"),
    }
}

fn play(story: &[PowerCase]) {
    let mut world = PowerTest::new();
    let mut model = FileModel::default();
    for PowerCase { by, step, mishaps } in story {
        let mut after = model.clone();
        let expected = after.act(step);
        let first = &mishaps[0];
        world.disk.kill_after(first.kill_after);
        world.disk.fail_sync_after(first.failing_sync);
        let answers = world.act(*by, step);
        let answered = answers == expected;
        if !answered {
            assert!(answers.contains(&StepResult::Unknown), "{answers:?} instead of {expected:?}");
        }
        world.befall(*by, first);
        let mut seen = None;
        for mishap in &mishaps[1..] {
            world.disk.kill_after(mishap.kill_after);
            world.disk.fail_sync_after(mishap.failing_sync);
            seen = world.look(1 - by);
            world.befall(1 - by, mishap);
        }
        let found = world.look(*by).expect("nothing befalls this one");
        if let Some(seen) = seen {
            assert_eq!(seen, found, "what was seen once stays");
        }
        let half_replaced = FileModel { content: model.content.clone(), ..after.clone() };
        let allowed = match step {
            _ if answered => vec![after],
            FileStep::Step(_) => vec![model, after],
            FileStep::Replace(..) => vec![model, half_replaced, after],
        };
        assert!(allowed.contains(&found), "after {step:?}: {found:?} is none of {allowed:?}");
        model = found;
    }
}

fn mishap() -> impl Strategy<Value = ProcessFault> {
    let kill_after = prop_oneof![1 => Just(None), 3 => (1..30_u32).prop_map(Some)];
    let power = prop_oneof![1 => Just(None), 1 => any::<u64>().prop_map(Some)];
    let failing_sync = prop_oneof![3 => Just(None), 1 => (0..4_u32).prop_map(Some)];
    let fault = |(kill_after, power, failing_sync)| ProcessFault { kill_after, power, failing_sync };
    (kill_after, power, failing_sync).prop_map(fault)
}

fn step() -> impl Strategy<Value = FileStep> {
    let part = (0..3_u8, 1..5_u64, prop::option::weighted(0.7, 0..8_u8));
    prop_oneof![
        4 => prop::collection::vec(part, 1..4).prop_map(FileStep::Step),
        1 => (0..3_u8, 1..5_u64, 0..8_u8).prop_map(|(key, token, number)| FileStep::Replace(key, token, number)),
    ]
}

fn scene() -> impl Strategy<Value = PowerCase> {
    let case = |(by, step, mishaps)| PowerCase { by, step, mishaps };
    (0..2_usize, step(), prop::collection::vec(mishap(), 1..4)).prop_map(case)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_answered_is_there_exactly_once_whatever_befalls_the_disk(
        story in prop::collection::vec(scene(), 1..16)
    ) {
        play(&story);
    }
}

/// Not left to chance: every operation of a fixed story is the one in which the process is killed, each with many power cuts.
#[test]
fn a_kill_or_a_power_cut_at_any_operation_loses_nothing_and_doubles_nothing() {
    let deeds = [
        FileStep::Step(vec![(0, 1, Some(1)), (1, 1, Some(2))]),
        FileStep::Replace(0, 2, 3),
        FileStep::Step(vec![(2, 7, None)]),
        FileStep::Step(vec![(2, 7, Some(7)), (0, 2, Some(4))]),
        FileStep::Step(vec![(0, 2, Some(4)), (0, 1, Some(5))]),
    ];
    for at in 0..deeds.len() {
        for kill_after in 1..40 {
            for power in [None].into_iter().chain((0..25).map(Some)) {
                let fine = ProcessFault { kill_after: None, power: None, failing_sync: None };
                let struck = ProcessFault { kill_after: Some(kill_after), power, failing_sync: None };
                let scene = |number: usize| {
                    let (by, step) = (number % 2, deeds[number].clone());
                    let mishaps = if number == at { vec![&struck, &fine] } else { vec![&fine] };
                    PowerCase { by, step, mishaps: mishaps.into_iter().cloned().collect() }
                };
                play(&(0..deeds.len()).map(scene).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn those_who_come_together_share_the_syncs() {
    let mut world = PowerTest::new();
    world.processes[0] = Journal::new(world.disk.clone(), 1_000, 100_000);
    world.act(0, &FileStep::Step(vec![(0, 1, None)]));
    let before = world.disk.syncs();
    let lines = (0..8).map(|number| (0, 1, Some(number))).collect();
    world.act(0, &FileStep::Step(lines));
    // The file is made: that is one of the folder.
    assert_eq!(world.disk.syncs() - before, 3);
    let before = world.disk.syncs();
    world.act(0, &FileStep::Step(vec![(1, 1, Some(1))]));
    assert_eq!(world.disk.syncs() - before, 2, "one of the journal, one of the file");
    let before = world.disk.syncs();
    world.act(0, &FileStep::Step(vec![(1, 1, Some(1)), (1, 1, None)]));
    assert_eq!(world.disk.syncs() - before, 0, "nothing new, nothing written");
}

#[test]
fn whatever_stands_behind_a_step_that_failed_is_not_tried() {
    let disk = SimDisk::default();
    let mut journal = process(&disk);
    journal.enter().unwrap();
    disk.fail_sync_after(Some(0));
    let pass = KeyToken::new(key(0), Token::new(1));
    let made = AppendId::new(&pass.namespace, &pass.key, "1");
    let (appended, replaced, raised) = (oneshot::channel(), oneshot::channel(), oneshot::channel());
    let batch = vec![
        FileRequest::Append { pass: pass.clone(), made, bytes: line(0, 1), answer: appended.0 },
        FileRequest::Replace { pass: pass.clone(), content: line(0, 2), answer: replaced.0 },
        FileRequest::Raise { pass, answer: raised.0 },
    ];
    answer_all(carry_out("sim", &mut journal, batch));
    assert_eq!(told(appended.1, Some), StepResult::Unknown);
    assert_eq!(told(replaced.1, |()| None), StepResult::Unknown);
    assert_eq!(told(raised.1, |()| None), StepResult::Unknown);
    journal.enter().unwrap();
    assert_eq!(disk.content(Name::Data), line(0, 1), "it was written, and is finished by the next process");
}
