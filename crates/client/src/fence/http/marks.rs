//! The highest token of every key, as a server keeps it, and the requests that are at work under it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};

use fencehold_core::{Key, Namespace, Token};

use crate::fence::error::FenceError;
use crate::fence::file::FencedFile;
use crate::fence::key_token::KeyToken;
use crate::fence::mark::{Mark, Marks};
use crate::wake::{WatchValue, lock};

/// The highest token of every key that this service was shown. Clones share it.
///
/// One in memory forgets everything when its process ends: until the next raise, an old holder gets through again. One in
/// a file does not, and several processes of the machine can share it.
#[derive(Clone, Debug)]
pub struct FenceMarks {
    marks: MarkStorage,
    at_work: Arc<ActiveRequests>,
}

#[derive(Clone, Debug)]
enum MarkStorage {
    Memory(Arc<Mutex<Marks>>),
    File(FencedFile),
}

/// How many requests are at work under which token of which key.
type ActiveRequests = WatchValue<HashMap<(Namespace, Key), BTreeMap<Token, usize>>>;

impl FenceMarks {
    /// Marks that last as long as this process.
    pub fn in_memory() -> Self {
        FenceMarks::new(MarkStorage::Memory(Arc::default()))
    }

    /// Marks that are kept on disk, in the folder `PATH.fence`. What it costs: a sync for each token that is new, and
    /// a look at the lock for each that is not.
    pub async fn in_file(path: impl AsRef<Path>) -> Result<Self, FenceError> {
        Ok(FenceMarks::new(MarkStorage::File(FencedFile::open(path).await?)))
    }

    fn new(marks: MarkStorage) -> Self {
        FenceMarks { marks, at_work: Arc::default() }
    }

    /// How high the fence stands for a key.
    pub async fn mark(&self, namespace: &Namespace, key: &Key) -> Result<Option<Mark>, FenceError> {
        match &self.marks {
            MarkStorage::Memory(marks) => Ok(lock(marks).get(namespace, key).cloned()),
            MarkStorage::File(file) => file.mark(namespace, key).await,
        }
    }

    /// Checks a token and raises the fence to it, in one step. `Ok` is only about now: what is done under it should be
    /// done by way of [`FenceLayer`](super::FenceLayer), which knows who is at work.
    pub async fn raise(&self, pass: &KeyToken) -> Result<(), FenceError> {
        pass.check()?;
        match &self.marks {
            MarkStorage::File(file) => file.raise(pass).await,
            MarkStorage::Memory(marks) => {
                let mut marks = lock(marks);
                let stale = |mark| FenceError::stale("this service", pass, mark);
                if let Some(mark) = marks.admit(pass).map_err(stale)? {
                    marks.raise(pass.namespace.clone(), pass.key.clone(), mark);
                }
                Ok(())
            }
        }
    }

    /// Lets a pass through when its token is the newest and nothing older is at work any more. For as long as the guard
    /// lives, it is at work itself.
    pub(super) async fn enter(&self, pass: &KeyToken) -> Result<ActiveRequest, FenceError> {
        // Counted before it is checked: one that is checked first could be overlooked by a newer one in between.
        let entered = ActiveRequest::new(&self.at_work, pass);
        self.raise(pass).await?;
        let mut waited = false;
        let subject = &entered.subject;
        let newest = self.at_work.when(|at_work, _| {
            let tokens = at_work.get(subject);
            let older = tokens.is_some_and(|tokens| tokens.range(..pass.token).next().is_some());
            waited |= older;
            (!older).then_some(())
        });
        newest.await;
        if waited {
            // Time has passed: it need not be the newest any more.
            self.raise(pass).await?;
        }
        Ok(entered)
    }
}

/// A request that is at work, or about to be.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    at_work: Arc<ActiveRequests>,
    subject: (Namespace, Key),
    token: Token,
}

impl ActiveRequest {
    fn new(at_work: &Arc<ActiveRequests>, pass: &KeyToken) -> Self {
        let subject = (pass.namespace.clone(), pass.key.clone());
        // No caller waits for one more.
        at_work.update(|at_work| {
            *at_work.entry(subject.clone()).or_default().entry(pass.token).or_default() += 1;
            None::<()>
        });
        ActiveRequest { at_work: Arc::clone(at_work), subject, token: pass.token }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.at_work.update(|at_work| {
            let tokens = at_work.get_mut(&self.subject)?;
            let count = tokens.get_mut(&self.token)?;
            *count -= 1;
            if *count > 0 {
                return None;
            }
            tokens.remove(&self.token);
            if tokens.is_empty() {
                at_work.remove(&self.subject);
            }
            Some(())
        });
    }
}
