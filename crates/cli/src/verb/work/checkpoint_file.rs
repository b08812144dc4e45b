//! The checkpoint of a job as a file: the last one for the command to read, and a new one whenever the command replaces the
//! file.
//!
//! Only a file that was *renamed* into place is taken, since only that is whole at every moment: one that is written in
//! place may be half of a checkpoint, also when its command was killed. The kernel says which it was (inotify), in order,
//! and the bytes count only if nothing was written in place by the time they have been read.
//!
//! Each attempt has a directory of its own inside that of the process, which is locked while the process lives. What a
//! killed one left behind is removed by the next. A directory in which nothing has happened serves another attempt, under another
//! name: most commands leave no checkpoint, and renaming is less than making and removing.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencehold::Job;
use fencehold_core::limits::CHECKPOINT_BYTES_MAX;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, watch};

use super::job_line::JobLines;
use crate::hold_id::random;

/// The variable that names the file.
pub(super) const VARIABLE: &str = "FENCEHOLD_CHECKPOINT_FILE";
/// The file's name in the directory of its attempt.
const NAME: &str = "checkpoint";
/// How the directory of a process begins.
const PREFIX: &str = "fencehold-work-";
/// The pause after a checkpoint was stored: a command that writes them in a loop does not keep the store busy.
const PAUSE: Duration = Duration::from_millis(100);

/// The checkpoint files of a process.
#[derive(Debug, Default)]
pub(super) struct CheckpointFiles(Mutex<Option<Arc<Watcher>>>);

impl CheckpointFiles {
    /// A file with what an earlier attempt left; empty if there is nothing.
    pub(super) fn create(&self, last: Option<&[u8]>) -> io::Result<CheckpointFile> {
        let watcher = {
            let mut watcher = lock(&self.0);
            match &*watcher {
                Some(watcher) => Arc::clone(watcher),
                None => Arc::clone(watcher.insert(Arc::new(Watcher::start()?))),
            }
        };
        CheckpointFile::create(watcher, last.unwrap_or_default())
    }
}

/// Hears what happens in the directories of all attempts: the kernel allows a user few watchers.
#[derive(Debug)]
struct Watcher {
    directory: LockedDirectory,
    inotify: AsyncFd<OwnedFd>,
    /// By watch descriptor.
    watched: Mutex<HashMap<i32, Arc<Seen>>>,
    /// Directories in which nothing has happened.
    spare: Mutex<Vec<AttemptDirectory>>,
}

/// What was seen of a file.
#[derive(Debug, Default)]
struct Seen {
    changes: Mutex<Changes>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    /// How often another file was renamed into its place.
    replaced: u64,
    /// Up to which of these it was taken.
    taken: u64,
    /// It was written in place since.
    torn: bool,
    /// Something has happened in its directory.
    touched: bool,
}

impl Watcher {
    #[allow(
        deprecated,
        reason = "its successor is unsafe; an `OwnedFd` is one descriptor for as long as it lives"
    )]
    fn start() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Watcher {
            directory: LockedDirectory::create(&std::env::temp_dir())?,
            inotify: AsyncFd::new(inotify)?,
            watched: Mutex::default(),
            spare: Mutex::default(),
        })
    }

    /// Notes everything that has happened by now.
    fn catch_up(&self) -> io::Result<()> {
        // Held meanwhile, so that events are noted in their order.
        let watched = lock(&self.watched);
        let mut buffer = [MaybeUninit::uninit(); 4 << 10];
        let mut events = Reader::new(self.inotify.get_ref(), &mut buffer);
        loop {
            match events.next() {
                // Some were lost: what stands there now may be anything, until the next rename.
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    watched.values().for_each(|seen| seen.note(ReadFlags::MODIFY));
                }
                Ok(event) => {
                    let is_checkpoint =
                        event.file_name().is_some_and(|name| name.to_bytes() == NAME.as_bytes());
                    let Some(seen) = watched.get(&event.wd()) else { continue };
                    seen.note(if is_checkpoint { event.events() } else { ReadFlags::empty() });
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Seen {
    /// Notes what has happened to the file, or that something has beside it.
    fn note(&self, events: ReadFlags) {
        let mut changes = lock(&self.changes);
        changes.touched = true;
        if events.contains(ReadFlags::MOVED_TO) {
            changes.replaced += 1;
            changes.torn = false;
        } else if events.intersects(ReadFlags::CREATE | ReadFlags::MODIFY) {
            changes.torn = true;
        } else {
            return;
        }
        self.changed.notify_one();
    }
}

/// A directory with a checkpoint in it, and what was seen there.
#[derive(Debug)]
struct AttemptDirectory {
    directory: PathBuf,
    watch: i32,
    seen: Arc<Seen>,
}

impl Watcher {
    /// A directory with this checkpoint in it.
    fn directory_with(&self, last: &[u8]) -> io::Result<AttemptDirectory> {
        if last.is_empty()
            && let Some(renamed) = self.spare_directory()
        {
            return Ok(renamed);
        }
        let directory = self.directory.path.join(random_name()?);
        DirBuilder::new().mode(0o700).create(&directory)?;
        let begin = || -> io::Result<(i32, Arc<Seen>)> {
            // It can be replaced and not written: a command that tries to write in place hears so at once.
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o400)
                .open(directory.join(NAME))?;
            file.write_all(last)?;
            let flags = WatchFlags::MOVED_TO
                | WatchFlags::CREATE
                | WatchFlags::MODIFY
                | WatchFlags::MOVED_FROM
                | WatchFlags::DELETE
                | WatchFlags::ATTRIB
                | WatchFlags::ONLYDIR;
            // Noted before it is unlocked: no event of it can come sooner.
            let mut seen_by_watch = lock(&self.watched);
            let watch = inotify::add_watch(self.inotify.get_ref(), &directory, flags)?;
            let seen = Arc::new(Seen::default());
            seen_by_watch.insert(watch, Arc::clone(&seen));
            Ok((watch, seen))
        };
        match begin() {
            Ok((watch, seen)) => Ok(AttemptDirectory { directory, watch, seen }),
            Err(error) => {
                let _ = fs::remove_dir_all(&directory);
                Err(error)
            }
        }
    }

    /// One in which nothing has happened, under a name that no earlier attempt has seen.
    fn spare_directory(&self) -> Option<AttemptDirectory> {
        let spare = lock(&self.spare).pop()?;
        let name = random_name().map(|name| self.directory.path.join(name));
        let is_untouched = self.catch_up().is_ok() && !lock(&spare.seen.changes).touched;
        match name {
            Ok(name) if is_untouched && fs::rename(&spare.directory, &name).is_ok() => {
                Some(AttemptDirectory { directory: name, ..spare })
            }
            _ => {
                self.remove(&spare);
                None
            }
        }
    }

    fn remove(&self, attempt: &AttemptDirectory) {
        lock(&self.watched).remove(&attempt.watch);
        let _ = inotify::remove_watch(self.inotify.get_ref(), attempt.watch);
        let _ = fs::remove_dir_all(&attempt.directory);
    }
}

/// The file of one attempt. Dropped, it is removed, or serves another one.
#[derive(Debug)]
pub(super) struct CheckpointFile {
    watcher: Arc<Watcher>,
    /// Until it is dropped.
    attempt: Option<AttemptDirectory>,
    pub(super) path: PathBuf,
    seen: Arc<Seen>,
    began_empty: bool,
}

impl CheckpointFile {
    fn create(watcher: Arc<Watcher>, last: &[u8]) -> io::Result<Self> {
        let attempt = watcher.directory_with(last)?;
        let (path, seen) = (attempt.directory.join(NAME), Arc::clone(&attempt.seen));
        Ok(CheckpointFile { watcher, attempt: Some(attempt), path, seen, began_empty: last.is_empty() })
    }

    /// Waits until something may have happened to it.
    async fn changed(&self) -> io::Result<()> {
        tokio::select! {
            // Another attempt may have heard it.
            () = self.seen.changed.notified() => Ok(()),
            ready = self.watcher.inotify.readable() => {
                self.watcher.catch_up()?;
                ready?.clear_ready();
                Ok(())
            }
        }
    }

    /// What has happened to it by now.
    fn changes(&self) -> io::Result<Changes> {
        self.watcher.catch_up()?;
        Ok(*lock(&self.seen.changes))
    }

    /// The checkpoint that the command put into place and that was not taken yet, and which one it is.
    fn newest(&self) -> io::Result<Option<(u64, Vec<u8>)>> {
        let before = self.changes()?;
        if before.torn || before.replaced == before.taken {
            return Ok(None);
        }
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags.cast_signed())
            .open(&self.path)?;
        if !opened.metadata()?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let mut bytes = Vec::new();
        opened.take(CHECKPOINT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        // One that was renamed into place meanwhile is whole, too, and has its turn after this one.
        Ok((!self.changes()?.torn).then_some((before.replaced, bytes)))
    }

    fn taken(&self, nth: u64) {
        lock(&self.seen.changes).taken = nth;
    }

    /// Stores every checkpoint that the command leaves, until the command has ended: then the last one.
    pub(super) async fn follow(&self, job: &Job, lines: &JobLines, mut ended: watch::Receiver<bool>) {
        let mut notes = Notes { job, lines, is_torn_said: false };
        loop {
            let is_over = tokio::select! {
                _ = ended.wait_for(|ended| *ended) => true,
                changed = self.changed() => match changed {
                    Ok(()) => false,
                    Err(error) => return notes.unreadable(&error),
                }
            };
            self.store_newest(&mut notes).await;
            if is_over {
                return;
            }
            tokio::select! {
                _ = ended.wait_for(|ended| *ended) => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    async fn store_newest(&self, notes: &mut Notes<'_>) {
        let job = notes.job;
        match self.newest() {
            Ok(Some((nth, bytes))) if bytes.len() > CHECKPOINT_BYTES_MAX => {
                self.taken(nth);
                notes.say(&format!(
                    "its command left a checkpoint of more than {CHECKPOINT_BYTES_MAX} bytes (256 KiB), which was not taken; \
                     keep what is large elsewhere, and where it is in the checkpoint"
                ));
            }
            Ok(Some((nth, bytes))) => tokio::select! {
                biased;
                // Another attempt may have the job, and its own checkpoint.
                _ = job.lost() => {}
                stored = job.checkpoint(bytes) => match stored {
                    Ok(()) => self.taken(nth),
                    Err(error) => notes.say(&format!("its checkpoint was not stored: {error}")),
                }
            },
            Ok(None) if lock(&self.seen.changes).torn => notes.torn(),
            Ok(None) => {}
            // It was taken away again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => notes.unreadable(&error),
        }
    }
}

impl Drop for CheckpointFile {
    fn drop(&mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        if self.began_empty && self.changes().is_ok_and(|changes| !changes.touched) {
            lock(&self.watcher.spare).push(attempt);
        } else {
            self.watcher.remove(&attempt);
        }
    }
}

/// What is said to people of the checkpoints of a job.
struct Notes<'a> {
    job: &'a Job,
    lines: &'a JobLines,
    is_torn_said: bool,
}

impl Notes<'_> {
    fn say(&self, what: &str) {
        self.lines.note(&format!("job {}: {what}", self.job.id()));
    }

    fn unreadable(&self, error: &io::Error) {
        self.say(&format!("the checkpoint that its command left cannot be read: {error}"));
    }

    fn torn(&mut self) {
        if !std::mem::replace(&mut self.is_torn_said, true) {
            self.say(&format!(
                "its command wrote ${VARIABLE} in place, which was not taken: it may be half of a checkpoint. Write another \
                 file beside it, and rename that (mv)"
            ));
        }
    }
}

/// The directory of this process, locked while the process lives.
#[derive(Debug)]
struct LockedDirectory {
    path: PathBuf,
    _lock: OwnedFd,
}

impl LockedDirectory {
    fn create(place: &Path) -> io::Result<Self> {
        remove_left_behind(place);
        loop {
            let path = place.join(format!("{PREFIX}{}", random_name()?));
            DirBuilder::new().mode(0o700).create(&path)?;
            // One that was just made and not locked yet may be taken for one that was left behind. Then another is made.
            match lock_directory(&path) {
                Ok(Some(lock)) => return Ok(LockedDirectory { path, _lock: lock }),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for LockedDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Locks a directory, unless another process has it locked or removed it meanwhile.
fn lock_directory(path: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty())?;
    match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let (locked, there) = (rustix::fs::fstat(&opened)?, fs::symlink_metadata(path)?);
    Ok((locked.st_dev == there.dev() && locked.st_ino == there.ino()).then_some(opened))
}

/// Removes the directories of processes that were killed.
fn remove_left_behind(place: &Path) {
    let ours = geteuid().as_raw();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && entry
                .metadata()
                .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == ours)
            && let Ok(Some(_lock)) = lock_directory(&path)
        {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn random_name() -> io::Result<String> {
    let bytes = random().map_err(|_| io::Error::other("the system gives no randomness"))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_runtime(test: impl FnOnce()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { test() });
    }

    /// The bytes that would be stored now.
    fn newest(file: &CheckpointFile) -> Option<Vec<u8>> {
        let (nth, bytes) = file.newest().unwrap()?;
        file.taken(nth);
        Some(bytes)
    }

    fn rename(file: &CheckpointFile, bytes: &[u8]) {
        let beside = file.path.with_file_name("new");
        fs::write(&beside, bytes).unwrap();
        fs::rename(beside, &file.path).unwrap();
    }

    #[test]
    fn only_what_was_renamed_into_place_is_taken_and_once() {
        on_runtime(|| {
            let files = CheckpointFiles::default();
            let (file, other) = (files.create(Some(b"7")).unwrap(), files.create(None).unwrap());
            assert_eq!(fs::read(&file.path).unwrap(), b"7");
            assert_eq!(fs::read(&other.path).unwrap(), b"");
            assert_eq!(newest(&file), None, "nothing was left yet");
            rename(&file, b"8");
            assert_eq!(newest(&other), None, "each attempt has a file of its own");
            assert_eq!(newest(&file).as_deref(), Some(b"8".as_slice()));
            assert_eq!(newest(&file), None, "it was taken");

            fs::write(&file.path, "half").unwrap();
            assert_eq!(newest(&file), None, "it was written in place");
            fs::remove_file(&file.path).unwrap();
            fs::write(&file.path, "half").unwrap();
            assert_eq!(newest(&file), None, "it was made in place");
            rename(&file, b"9");
            fs::OpenOptions::new()
                .append(true)
                .open(&file.path)
                .unwrap()
                .write_all(b"9")
                .unwrap();
            assert_eq!(newest(&file), None, "it was written in place after it had been renamed");
            rename(&file, b"10");
            rename(&file, b"11");
            assert_eq!(newest(&file).as_deref(), Some(b"11".as_slice()), "only the newest");
            let directory = file.path.parent().unwrap().to_owned();
            drop(file);
            assert!(!directory.exists());
        });
    }

    #[test]
    fn a_directory_in_which_nothing_has_happened_serves_another_attempt_under_another_name() {
        on_runtime(|| {
            let files = CheckpointFiles::default();
            let inode = |file: &CheckpointFile| fs::metadata(&file.path).unwrap().ino();
            let first = files.create(None).unwrap();
            let (path, same) = (first.path.clone(), inode(&first));
            drop(first);
            let second = files.create(None).unwrap();
            assert_eq!(inode(&second), same);
            assert!(second.path != path && !path.exists());
            rename(&second, b"1");
            assert_eq!(newest(&second).as_deref(), Some(b"1".as_slice()));

            let changes: [fn(&CheckpointFile); 4] = [
                |file| fs::write(file.path.with_file_name("beside"), "").unwrap(),
                |file| fs::remove_file(&file.path).unwrap(),
                |file| fs::rename(&file.path, file.path.with_file_name("away")).unwrap(),
                |file| rename(file, b"7"),
            ];
            for change in changes {
                let touched = files.create(None).unwrap();
                let path = touched.path.clone();
                change(&touched);
                drop(touched);
                assert!(!path.parent().unwrap().exists(), "removed");
                let next = files.create(None).unwrap();
                assert_eq!(fs::read(&next.path).unwrap(), b"");
                assert_eq!(fs::read_dir(next.path.parent().unwrap()).unwrap().count(), 1);
                change(&next);
            }
            // What was left by an attempt that still holds the name of its directory.
            let left = files.create(None).unwrap();
            let path = left.path.clone();
            drop(left);
            fs::write(path.with_file_name("late"), "").unwrap();
            let next = files.create(None).unwrap();
            assert!(!path.exists());
            assert_eq!(fs::read_dir(next.path.parent().unwrap()).unwrap().count(), 1);
            drop(files.create(Some(b"7")).unwrap());
            assert_eq!(fs::read(&files.create(None).unwrap().path).unwrap(), b"");
        });
    }

    #[test]
    fn what_a_killed_process_left_behind_is_removed_and_what_a_living_one_has_stays() {
        let place = tempfile::tempdir().unwrap();
        let left = place.path().join(format!("{PREFIX}left"));
        fs::create_dir_all(left.join("attempt")).unwrap();
        fs::write(left.join("attempt").join(NAME), "7").unwrap();
        let other = place.path().join("of-somebody-else");
        fs::create_dir(&other).unwrap();
        let first = LockedDirectory::create(place.path()).unwrap();
        assert!(!left.exists() && other.exists());
        let second = LockedDirectory::create(place.path()).unwrap();
        assert!(first.path.exists() && second.path.exists());
        let path = first.path.clone();
        drop(first);
        assert!(!path.exists() && second.path.exists());
    }
}
