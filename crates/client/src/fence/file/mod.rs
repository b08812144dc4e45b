//! A file that lets no stale holder write, and makes every append exactly once.
//!
//! Nouns: the *file* is a plain one, read by any program; the *fence* is a folder beside it (`NAME.fence`), with a
//! *journal* of marks and appends and the *lock* that one process at a time holds for one step. How it survives being
//! killed, and power cuts, stands in `journal.rs`.
//!
//! Deliberately absent: reading. What is in the file is anybody's to read; while an append is under way its end may be
//! torn, and a reader should take lines only up to the last newline.

mod batch;
mod disk;
mod folder;
mod frame;
mod journal;
mod state;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use fencehold_core::limits::{APPEND_BYTES_MAX, APPENDS_REMEMBERED, IDEMPOTENCY_KEY_BYTES_MAX};
use fencehold_core::{BadInput, Key, Namespace};
use futures_channel::oneshot;

use self::batch::{BatchWriter, FileRequest, FileResult};
use self::folder::FenceFolder;
use self::frame::AppendId;
use self::journal::{Journal, SLACK_BYTES};
use super::error::FenceError;
use super::key_token::KeyToken;
use super::mark::Mark;

/// How long a step of another process is waited for, by default.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Appended {
    /// It was made now.
    New,
    /// It had been made before, by this holder or an earlier one. What was written then stands.
    Duplicate,
}

/// A file that is written only under tokens that are not older than the highest seen for their key.
///
/// ```
/// use fencehold::fence::file::Appended;
/// use fencehold::fence::{FenceError, FencedFile};
/// use fencehold::Fencehold;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("report.jsonl");
/// let fh = Fencehold::connect("memory:").await?;
/// let file = FencedFile::open(&path).await?;
///
/// let lease = fh.lease("reports/daily").acquire().await?;
/// file.raise(&lease).await?; // from here on every older holder is refused
/// assert_eq!(file.append(&lease, "line-1", "one line\n").await?, Appended::New);
/// assert_eq!(file.append(&lease, "line-1", "one line\n").await?, Appended::Duplicate);
///
/// // The next holder has a larger token; the one before it is refused, and does no harm.
/// let late = lease.key_token();
/// lease.release().await?;
/// let next = fh.lease("reports/daily").acquire().await?;
/// file.raise(&next).await?;
/// assert!(matches!(file.append(&late, "line-2", "too late\n").await, Err(FenceError::Stale { .. })));
/// assert_eq!(std::fs::read_to_string(&path)?, "one line\n");
/// # Ok(())
/// # }
/// ```
///
/// **Exactly once.** An append is known by its key and its idempotency key. Killed at any instruction, or by a power cut,
/// it was either decided or not: if it was, the next process that uses the fence finishes it, and repeating it says
/// [`Duplicate`](Appended::Duplicate); if not, repeating it makes it. An answer means that it is on disk.
///
/// **Among processes.** Any number of processes and handles may use one file, on one machine and as one user. A step
/// takes a lock that goes when its holder dies. One that is *stopped* in the middle of a step keeps the others waiting:
/// after their timeout they get an error that names its pid. Everything that writes to the file must do it through the fence. A file
/// that is moved away is begun anew by the next append.
///
/// **What it costs.** An append is two syncs, and those that arrive together share them. The fence keeps every key's mark for
/// ever, about 60 bytes and its name, until it is [forgotten](FencedFile::forget); and 16 bytes for each of the latest million
/// appends (about 50 in memory). Of older ones a repeat is not recognised any more.
///
/// Futures need no particular executor, and dropping one does not undo what it asked for. The handle's thread ends with
/// its last clone.
#[derive(Clone, Debug)]
pub struct FencedFile {
    requests: mpsc::Sender<FileRequest>,
    path: PathBuf,
}

impl FencedFile {
    /// Opens the fence of a file. The file itself need not be there; its folder must.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, FenceError> {
        FencedFile::options().open(path).await
    }

    /// Opens with options.
    pub fn options() -> FencedFileOptions {
        FencedFileOptions::default()
    }

    /// Raises the fence to this token, so that every older holder of the key is refused from now on. Do it as the first
    /// thing under a new lease: a fence knows only what it was shown.
    pub async fn raise(&self, pass: impl Into<KeyToken>) -> Result<(), FenceError> {
        let pass = checked(pass.into())?;
        let shown = pass.clone();
        shown
            .recorded(self.ask(|answer| FileRequest::Raise { pass, answer }).await)
            .await
    }

    /// Adds bytes to the end of the file, once for this idempotency key under the pass's key. The first one stands: what
    /// a repeat brings is not compared with it.
    ///
    /// Nothing is added to the bytes: a line brings its newline.
    pub async fn append(
        &self,
        pass: impl Into<KeyToken>,
        idempotency_key: &str,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<Appended, FenceError> {
        let pass = checked(pass.into())?;
        let bytes = bytes.into();
        let made = made(&pass, idempotency_key)?;
        if bytes.len() > APPEND_BYTES_MAX {
            let problem = format!("has {} bytes; the limit is {APPEND_BYTES_MAX}", bytes.len());
            return Err(BadInput::new("append", problem).into());
        }
        let shown = pass.clone();
        shown
            .recorded(self.ask(|answer| FileRequest::Append { pass, made, bytes, answer }).await)
            .await
    }

    /// Puts another content in the place of the file, whole or not at all. Readers see the old one or the new one. The
    /// file keeps its permissions, and becomes another inode.
    pub async fn replace(
        &self,
        pass: impl Into<KeyToken>,
        content: impl Into<Vec<u8>>,
    ) -> Result<(), FenceError> {
        let pass = checked(pass.into())?;
        let content = content.into();
        let shown = pass.clone();
        shown
            .recorded(self.ask(|answer| FileRequest::Replace { pass, content, answer }).await)
            .await
    }

    /// How high the fence stands for a key. `None`: it was never shown a token for it.
    pub async fn mark(&self, namespace: &Namespace, key: &Key) -> Result<Option<Mark>, FenceError> {
        let (namespace, key) = (namespace.clone(), key.clone());
        self.ask(|answer| FileRequest::Mark { namespace, key, answer }).await
    }

    /// Forgets the mark of a key that nothing will write under any more: a job that is over, and whose last attempt cannot
    /// be asleep somewhere. Until it is raised again, any token gets through.
    pub async fn forget(&self, namespace: &Namespace, key: &Key) -> Result<(), FenceError> {
        let (namespace, key) = (namespace.clone(), key.clone());
        self.ask(|answer| FileRequest::Forget { namespace, key, answer }).await
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn ask<T>(&self, request: impl FnOnce(FileResult<T>) -> FileRequest) -> Result<T, FenceError> {
        let (answer, answered) = oneshot::channel();
        let sent = self.requests.send(request(answer));
        match (sent, answered.await) {
            (Ok(()), Ok(answer)) => answer,
            _ => Err(broken_off(&self.path)),
        }
    }
}

/// How to open a [`FencedFile`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `open` is awaited"]
pub struct FencedFileOptions {
    timeout: Duration,
    remember_appends: usize,
}

impl Default for FencedFileOptions {
    fn default() -> Self {
        FencedFileOptions { timeout: TIMEOUT_DEFAULT, remember_appends: APPENDS_REMEMBERED }
    }
}

impl FencedFileOptions {
    /// How long a step of another process is waited for. Default: 10 s.
    pub fn timeout(self, timeout: Duration) -> Self {
        FencedFileOptions { timeout, ..self }
    }

    /// How many of the latest appends are recognised when they are repeated. Default: a million. Where the processes that use a file
    /// differ in this, the least of them counts.
    pub fn remember_appends(self, count: usize) -> Self {
        FencedFileOptions { remember_appends: count, ..self }
    }

    /// Opens the fence of a file. The file itself need not be there; its folder must.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<FencedFile, FenceError> {
        let path = path.as_ref().to_owned();
        let (requests, inbox) = mpsc::channel();
        let (opened, opening) = oneshot::channel();
        let folder = path.clone();
        // Disks and locks are waited for here, and never on the caller's executor.
        let thread = move || match self.writer(&folder) {
            Ok(mut writer) => {
                if opened.send(Ok(())).is_ok() {
                    writer.serve(&inbox);
                }
            }
            Err(error) => drop(opened.send(Err(error))),
        };
        let thread = std::thread::Builder::new().name("fencehold-fence".to_owned()).spawn(thread);
        thread.map_err(|error| {
            FenceError::unusable(path.display(), format_args!("no thread could be started: {error}"))
        })?;
        opening.await.map_err(|_| broken_off(&path))??;
        Ok(FencedFile { requests, path })
    }

    fn writer(&self, path: &Path) -> Result<BatchWriter<disk::RealDisk>, FenceError> {
        let folder = FenceFolder::open(path, self.timeout)?;
        let journal = Journal::new(folder.disk(), self.remember_appends, SLACK_BYTES);
        let mut writer = BatchWriter::new(folder, journal);
        writer.look()?;
        Ok(writer)
    }
}

fn checked(pass: KeyToken) -> Result<KeyToken, FenceError> {
    pass.check()?;
    Ok(pass)
}

fn made(pass: &KeyToken, idempotency_key: &str) -> Result<AppendId, BadInput> {
    let bad = |problem| Err(BadInput::new("idempotency key", problem));
    match idempotency_key.len() {
        0 => bad("must not be empty".to_owned()),
        1..=IDEMPOTENCY_KEY_BYTES_MAX => Ok(AppendId::new(&pass.namespace, &pass.key, idempotency_key)),
        length => bad(format!("has {length} bytes; the limit is {IDEMPOTENCY_KEY_BYTES_MAX}")),
    }
}

fn broken_off(path: &Path) -> FenceError {
    FenceError::unknown(path.display(), "the fence's thread broke off")
}
