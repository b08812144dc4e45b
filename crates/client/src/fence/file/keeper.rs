//! Requests, decided and carried out under the lock. Those that arrive together share one step, and its syncs.

use std::sync::mpsc::Receiver;

use fencehold_core::{Key, Namespace};
use futures_channel::oneshot::Sender;

use super::Appended;
use super::disk::Disk;
use super::frame::{Entry, Made};
use super::journal::{Fault, Journal};
use super::place::Place;
use crate::fence::error::FenceError;
use crate::fence::mark::Mark;
use crate::fence::pass::KeyToken;

/// What of one batch goes into one step at most.
const STEP_BYTES_MAX: usize = 4 * 1024 * 1024;
const STEP_REQUESTS_MAX: usize = 1_024;

pub(super) type Answer<T> = Sender<Result<T, FenceError>>;

/// Something asked of a fenced file.
#[derive(Debug)]
pub(super) enum Request {
    Raise { pass: KeyToken, answer: Answer<()> },
    Append { pass: KeyToken, made: Made, bytes: Vec<u8>, answer: Answer<Appended> },
    Replace { pass: KeyToken, content: Vec<u8>, answer: Answer<()> },
    Forget { namespace: Namespace, key: Key, answer: Answer<()> },
    Mark { namespace: Namespace, key: Key, answer: Answer<Option<Mark>> },
}

type Answering = Box<dyn FnOnce(Result<(), FenceError>)>;

/// A step that is being put together. Memory is ahead of the disk by what is in it.
#[derive(Default)]
struct Step {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// Called with how the step ended.
    answers: Vec<Answering>,
}

impl Step {
    /// The caller may have gone; the step is carried out all the same.
    fn answer<T: 'static>(&mut self, answer: Answer<T>, value: Result<T, FenceError>) {
        self.answers.push(Box::new(move |ended| drop(answer.send(ended.and(value)))));
    }
}

pub(super) struct Keeper<D> {
    place: Place,
    name: String,
    journal: Journal<D>,
}

impl<D: Disk> Keeper<D> {
    pub(super) fn new(place: Place, journal: Journal<D>) -> Self {
        Keeper { name: place.name(), place, journal }
    }

    /// Looks whether the fence can be used, and finishes what was left unfinished.
    pub(super) fn look(&mut self) -> Result<(), FenceError> {
        let locked = self.place.lock()?;
        let entered = self.journal.enter();
        drop(locked);
        entered.map_err(|fault| told(&self.name, &fault))
    }

    /// Serves until no caller is left.
    pub(super) fn serve(&mut self, requests: &Receiver<Request>) {
        while let Ok(first) = requests.recv() {
            let mut bytes = first.bytes();
            let mut batch = vec![first];
            while bytes < STEP_BYTES_MAX
                && batch.len() < STEP_REQUESTS_MAX
                && let Ok(next) = requests.try_recv()
            {
                bytes += next.bytes();
                batch.push(next);
            }
            self.carry_out(batch);
        }
    }

    pub(super) fn carry_out(&mut self, batch: Vec<Request>) {
        let locked = match self.place.lock() {
            Ok(locked) => locked,
            Err(error) => return batch.into_iter().for_each(|request| request.refuse(error.clone())),
        };
        let ready = carry_out(&self.name, &mut self.journal, batch);
        // A process that is stopped as soon as it has its response is not in the way.
        drop(locked);
        answer_all(ready);
    }
}

/// An answer that can be sent.
pub(super) type Ready = Box<dyn FnOnce()>;

/// Sends answers. The lock is not held any more.
pub(super) fn answer_all(ready: Vec<Ready>) {
    for send in ready {
        send();
    }
}

/// Decides and carries out a batch, and gives the answers to it. The lock is held.
#[must_use = "a caller waits for every answer"]
pub(super) fn carry_out<D: Disk>(place: &str, journal: &mut Journal<D>, batch: Vec<Request>) -> Vec<Ready> {
    let mut standing = journal.enter().map_err(|fault| told(place, &fault));
    let mut work = Work { place, journal, step: Step::default(), ready: Vec::new() };
    for request in batch {
        match &standing {
            Ok(()) => standing = work.take(request),
            Err(error) => {
                let error = error.clone();
                work.ready.push(Box::new(move || request.refuse(error)));
            }
        }
    }
    // Every caller in it is answered; and after a failure there is nothing in it.
    let _ = work.close();
    work.ready
}

/// One batch, under the lock.
struct Work<'a, D> {
    place: &'a str,
    journal: &'a mut Journal<D>,
    step: Step,
    ready: Vec<Ready>,
}

impl<D: Disk> Work<'_, D> {
    /// Decides one request. An error says that the disk failed, and that nothing more can be decided.
    fn take(&mut self, request: Request) -> Result<(), FenceError> {
        match request {
            Request::Raise { pass, answer } => {
                let admitted = self.admit(&pass);
                self.step.answer(answer, admitted);
            }
            Request::Append { pass, made, bytes, answer } => {
                let appended = self.admit(&pass).map(|()| self.add(made, &bytes));
                self.step.answer(answer, appended);
            }
            Request::Forget { namespace, key, answer } => {
                if self.journal.state().mark(&namespace, &key).is_some() {
                    self.note(Entry::Forgotten { namespace, key });
                }
                self.step.answer(answer, Ok(()));
            }
            Request::Mark { namespace, key, answer } => {
                let mark = self.journal.state().mark(&namespace, &key).cloned();
                self.step.answer(answer, Ok(mark));
            }
            Request::Replace { pass, content, answer } => {
                if let Err(error) = self.close() {
                    self.answer(answer, Err(error.clone()));
                    return Err(error);
                }
                let replaced = self.admit(&pass).and_then(|()| {
                    let entries = std::mem::take(&mut self.step.entries);
                    self.journal
                        .replace(entries, &content)
                        .map_err(|fault| told(self.place, &fault))
                });
                let stale = matches!(replaced, Err(FenceError::Stale { .. }));
                self.answer(answer, replaced.clone());
                return if stale { Ok(()) } else { replaced };
            }
        }
        Ok(())
    }

    fn admit(&mut self, pass: &KeyToken) -> Result<(), FenceError> {
        let raised = self.journal.state().admit(pass);
        if let Some(entry) = raised.map_err(|mark| FenceError::stale(self.place, pass, &mark))? {
            self.note(entry);
        }
        Ok(())
    }

    fn add(&mut self, made: Made, bytes: &[u8]) -> Appended {
        if self.journal.state().is_made(made) {
            return Appended::Duplicate;
        }
        self.note(Entry::Made(made));
        self.step.bytes.extend_from_slice(bytes);
        Appended::New
    }

    fn note(&mut self, entry: Entry) {
        self.journal.state().apply(entry.clone());
        self.step.entries.push(entry);
    }

    /// The caller may have gone.
    fn answer(&mut self, answer: Answer<()>, value: Result<(), FenceError>) {
        self.ready.push(Box::new(move || drop(answer.send(value))));
    }

    /// Carries the step out, and has an answer ready for everybody in it.
    fn close(&mut self) -> Result<(), FenceError> {
        let step = std::mem::take(&mut self.step);
        let ended = if step.entries.is_empty() {
            Ok(())
        } else {
            let appended = self.journal.append(step.entries, &step.bytes);
            appended.map_err(|fault| told(self.place, &fault))
        };
        for answer in step.answers {
            let ended = ended.clone();
            self.ready.push(Box::new(move || answer(ended)));
        }
        ended
    }
}

impl Request {
    fn bytes(&self) -> usize {
        match self {
            Request::Append { bytes, .. } => bytes.len(),
            Request::Replace { content, .. } => content.len(),
            Request::Raise { .. } | Request::Forget { .. } | Request::Mark { .. } => 0,
        }
    }

    fn refuse(self, error: FenceError) {
        match self {
            Request::Raise { answer, .. }
            | Request::Replace { answer, .. }
            | Request::Forget { answer, .. } => {
                let _ = answer.send(Err(error));
            }
            Request::Append { answer, .. } => drop(answer.send(Err(error))),
            Request::Mark { answer, .. } => drop(answer.send(Err(error))),
        }
    }
}

fn told(place: &str, fault: &Fault) -> FenceError {
    match fault {
        Fault::Disk(error) => FenceError::Unknown { resource: place.to_owned(), message: error.to_string() },
        Fault::Unusable(why) => FenceError::Unusable { resource: place.to_owned(), message: why.clone() },
    }
}
