//! Requests, decided and carried out under the lock. Those that arrive together share one step, and its syncs.

use std::sync::mpsc::Receiver;

use fencehold_core::{Key, Namespace};
use futures_channel::oneshot::Sender;

use super::Appended;
use super::disk::Disk;
use super::folder::FenceFolder;
use super::frame::{AppendId, JournalEntry};
use super::journal::{Journal, StepError};
use crate::fence::error::FenceError;
use crate::fence::key_token::KeyToken;
use crate::fence::mark::Mark;

/// What of one batch goes into one step at most.
const STEP_BYTES_MAX: usize = 4 * 1024 * 1024;
const STEP_REQUESTS_MAX: usize = 1_024;

pub(super) type FileResult<T> = Sender<Result<T, FenceError>>;

/// Something asked of a fenced file.
pub(super) enum FileRequest {
    Raise { pass: KeyToken, answer: FileResult<()> },
    Append { pass: KeyToken, made: AppendId, bytes: Vec<u8>, answer: FileResult<Appended> },
    Replace { pass: KeyToken, content: Vec<u8>, answer: FileResult<()> },
    Forget { namespace: Namespace, key: Key, answer: FileResult<()> },
    Mark { namespace: Namespace, key: Key, answer: FileResult<Option<Mark>> },
}

type ResultSender = Box<dyn FnOnce(Result<(), FenceError>)>;

/// A step that is being put together. Memory is ahead of the disk by what is in it.
#[derive(Default)]
struct BatchStep {
    entries: Vec<JournalEntry>,
    bytes: Vec<u8>,
    /// Called with how the step ended.
    answers: Vec<ResultSender>,
}

impl BatchStep {
    /// The caller may have gone; the step is carried out all the same.
    fn answer<T: 'static>(&mut self, answer: FileResult<T>, value: Result<T, FenceError>) {
        self.answers.push(Box::new(move |ended| drop(answer.send(ended.and(value)))));
    }
}

pub(super) struct BatchWriter<D> {
    folder: FenceFolder,
    name: String,
    journal: Journal<D>,
}

impl<D: Disk> BatchWriter<D> {
    pub(super) fn new(folder: FenceFolder, journal: Journal<D>) -> Self {
        BatchWriter { name: folder.name(), folder, journal }
    }

    /// Looks whether the fence can be used, and finishes what was left unfinished.
    pub(super) fn look(&mut self) -> Result<(), FenceError> {
        let locked = self.folder.lock()?;
        let entered = self.journal.enter();
        drop(locked);
        entered.map_err(|fault| told(&self.name, &fault))
    }

    /// Serves until no caller is left.
    pub(super) fn serve(&mut self, requests: &Receiver<FileRequest>) {
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

    pub(super) fn carry_out(&mut self, batch: Vec<FileRequest>) {
        let locked = match self.folder.lock() {
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
pub(super) type ReadyResult = Box<dyn FnOnce()>;

/// Sends answers. The lock is not held any more.
pub(super) fn answer_all(ready: Vec<ReadyResult>) {
    for send in ready {
        send();
    }
}

/// Decides and carries out a batch, and gives the answers to it. The lock is held.
#[must_use = "a caller waits for every answer"]
pub(super) fn carry_out<D: Disk>(
    folder: &str,
    journal: &mut Journal<D>,
    batch: Vec<FileRequest>,
) -> Vec<ReadyResult> {
    let mut standing = journal.enter().map_err(|fault| told(folder, &fault));
    let mut work = BatchRun { folder, journal, step: BatchStep::default(), ready: Vec::new() };
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
struct BatchRun<'a, D> {
    folder: &'a str,
    journal: &'a mut Journal<D>,
    step: BatchStep,
    ready: Vec<ReadyResult>,
}

impl<D: Disk> BatchRun<'_, D> {
    /// Decides one request. An error says that the disk failed, and that nothing more can be decided.
    fn take(&mut self, request: FileRequest) -> Result<(), FenceError> {
        match request {
            FileRequest::Raise { pass, answer } => {
                let admitted = self.admit(&pass);
                self.step.answer(answer, admitted);
            }
            FileRequest::Append { pass, made, bytes, answer } => {
                let appended = self.admit(&pass).map(|()| self.add(made, &bytes));
                self.step.answer(answer, appended);
            }
            FileRequest::Forget { namespace, key, answer } => {
                if self.journal.state().mark(&namespace, &key).is_some() {
                    self.note(JournalEntry::Forgotten { namespace, key });
                }
                self.step.answer(answer, Ok(()));
            }
            FileRequest::Mark { namespace, key, answer } => {
                let mark = self.journal.state().mark(&namespace, &key).cloned();
                self.step.answer(answer, Ok(mark));
            }
            FileRequest::Replace { pass, content, answer } => {
                if let Err(error) = self.close() {
                    self.answer(answer, Err(error.clone()));
                    return Err(error);
                }
                let replaced = self.admit(&pass).and_then(|()| {
                    let entries = std::mem::take(&mut self.step.entries);
                    let replaced = self.journal.replace(entries, &content);
                    replaced.map_err(|fault| told(self.folder, &fault))
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
        if let Some(entry) = raised.map_err(|mark| FenceError::stale(self.folder, pass, &mark))? {
            self.note(entry);
        }
        Ok(())
    }

    fn add(&mut self, made: AppendId, bytes: &[u8]) -> Appended {
        if self.journal.state().is_made(made) {
            return Appended::Duplicate;
        }
        self.note(JournalEntry::Made(made));
        self.step.bytes.extend_from_slice(bytes);
        Appended::New
    }

    fn note(&mut self, entry: JournalEntry) {
        self.journal.state().apply(entry.clone());
        self.step.entries.push(entry);
    }

    /// The caller may have gone.
    fn answer(&mut self, answer: FileResult<()>, value: Result<(), FenceError>) {
        self.ready.push(Box::new(move || drop(answer.send(value))));
    }

    /// Carries the step out, and has an answer ready for everybody in it.
    fn close(&mut self) -> Result<(), FenceError> {
        let step = std::mem::take(&mut self.step);
        let ended = if step.entries.is_empty() {
            Ok(())
        } else {
            let appended = self.journal.append(step.entries, &step.bytes);
            appended.map_err(|fault| told(self.folder, &fault))
        };
        for answer in step.answers {
            let ended = ended.clone();
            self.ready.push(Box::new(move || answer(ended)));
        }
        ended
    }
}

impl FileRequest {
    fn bytes(&self) -> usize {
        match self {
            FileRequest::Append { bytes, .. } => bytes.len(),
            FileRequest::Replace { content, .. } => content.len(),
            FileRequest::Raise { .. } | FileRequest::Forget { .. } | FileRequest::Mark { .. } => 0,
        }
    }

    fn refuse(self, error: FenceError) {
        match self {
            FileRequest::Raise { answer, .. }
            | FileRequest::Replace { answer, .. }
            | FileRequest::Forget { answer, .. } => drop(answer.send(Err(error))),
            FileRequest::Append { answer, .. } => drop(answer.send(Err(error))),
            FileRequest::Mark { answer, .. } => drop(answer.send(Err(error))),
        }
    }
}

fn told(folder: &str, fault: &StepError) -> FenceError {
    match fault {
        StepError::Disk(error) => FenceError::unknown(folder, error),
        StepError::Unusable(why) => FenceError::unusable(folder, why),
    }
}
