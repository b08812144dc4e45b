//! The directory of a store: what may be in it, and what must not be touched.

use std::fmt::Display;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fencehold_contract::{StoreError, network_file_system};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags, StatVfsMountFlags};
use rustix::process::Gid;

use super::foreign_files::refuse_foreign;
use super::permissions::{SHARED_DIRECTORY, SharedGroup, what_is_unsafe};
use super::progress::{Progress, ProgressNote, ProgressNotes};
use super::test_points;

const DATABASE: &str = "fencehold.db";
/// A page of the log, without its header.
const PAGE_BYTES: u64 = 4096;
const MARK: &str = "uncertain";
const TURNS: &str = "disk.lock";
/// What is in it once a store was kept here.
const KEPT: &[u8] = b"a store is kept here\n";
/// The mode of every file: for its user alone.
pub(super) const PRIVATE: u32 = 0o600;
/// The mode of every file that a group shares.
pub(super) const SHARED: u32 = 0o660;

/// SQLite's own limit on the length of a path, less room for the names beside the database.
const PATH_BYTES_MAX: usize = 480;

/// With less than this to write to, an error is taken to mean that the disk is full: a log is begun by as much.
const FREE_BYTES_MIN: u64 = 64 << 10;
/// How often the table of locks is looked at before the one who blocks a write stays unnamed.
const LOOKS_AT_LOCKS: usize = 8;

/// A store's directory, opened.
#[derive(Debug)]
pub(super) struct StoreDirectory {
    path: PathBuf,
    /// Reached through its descriptor: a socket's path may have only 108 bytes.
    directory: OwnedFd,
    write_again: Rewrite,
    notes: ProgressNotes,
    /// Whether to open a store that was rewound.
    pub(super) accept_rewound: bool,
    /// Whether to create a store where there is none.
    pub(super) create: bool,
    /// The group that shares it.
    pub(super) group: Option<SharedGroup>,
}

/// Files by what they are, not by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentities {
    database: Option<(u64, u64)>,
    log: Option<(u64, u64)>,
}

/// What is no longer where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingFile {
    Nothing,
    /// Its log alone was removed or replaced.
    Log,
    /// Another database has its name, and beside it lies the log of the one before.
    Database,
    /// Whatever is there, none of it was ours.
    All,
}

impl FileIdentities {
    pub(super) fn lost_since(self, before: FileIdentities) -> MissingFile {
        match (self.database == before.database, self.log == before.log) {
            (true, true) => MissingFile::Nothing,
            (true, false) => MissingFile::Log,
            (false, true) if self.database.is_some() => MissingFile::Database,
            (false, _) => MissingFile::All,
        }
    }
}

/// Writes what can be read of a file once more, and syncs it. No file: nothing to do.
pub(crate) type Rewrite = fn(&Path) -> io::Result<()>;

impl StoreDirectory {
    /// Opens a directory and looks whether it can be a store. Changes nothing in one that cannot. If a store may be created,
    /// a missing directory is made; else there must be a store in it.
    pub(super) fn open(path: &Path, create: bool, group: Option<&str>) -> Result<StoreDirectory, StoreError> {
        let group = group.map(SharedGroup::find).transpose().map_err(|why| unusable(path, why))?;
        let path = std::path::absolute(path).map_err(|error| unusable(path, error))?;
        if create {
            make_directory(&path, group.as_ref())
                .map_err(|error| unusable(&path, format!("the directory cannot be made: {error}")))?;
        }
        let path = fs::canonicalize(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => no_store(&path),
            _ => unusable(&path, error),
        })?;
        if path.as_os_str().len() > PATH_BYTES_MAX {
            let why = format!("its path has {} bytes; the limit is {PATH_BYTES_MAX}", path.as_os_str().len());
            return Err(unusable(&path, why));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|error| unusable(&path, format!("it cannot be opened: {error}")))?;
        let notes = ProgressNotes::in_shared_memory(group.as_ref());
        let place =
            StoreDirectory { path, directory, write_again, notes, accept_rewound: false, create, group };
        place.refuse_network()?;
        if let Some(why) = what_is_unsafe(&place.path, place.group.as_ref()) {
            return Err(unusable(&place.path, why));
        }
        rustix::fs::access(&place.path, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
            .map_err(|error| unusable(&place.path, place.why_not_writable(&error)))?;
        refuse_foreign(&place.database())?;
        if !create {
            place.refuse_lost()?;
            // A look, for a clear answer at once: the takeover looks again, in the transaction that would create it.
            is_filled(&place.database())
                .map_err(|error| place.unavailable(&error))
                .and_then(|filled| if filled { Ok(()) } else { Err(place.no_store()) })?;
        }
        Ok(place)
    }

    /// The refusal of a directory without a store.
    pub(super) fn no_store(&self) -> StoreError {
        no_store(&self.path)
    }

    fn why_not_writable(&self, error: &impl Display) -> String {
        let why = self
            .trouble()
            .unwrap_or_else(|| "this user may not write there: let it".to_owned());
        format!("{why}, or name another directory ({error})")
    }

    /// What an error of the disk means for people: what the file system says of itself, where that explains it.
    pub(super) fn why(&self, error: &impl Display) -> String {
        self.trouble()
            .map_or_else(|| error.to_string(), |trouble| format!("{trouble} ({error})"))
    }

    /// Why nothing can be written here, where the file system itself says so, and what to do about it.
    pub(super) fn trouble(&self) -> Option<String> {
        let system = rustix::fs::statvfs(&self.path).ok()?;
        if system.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Some("its file system is read-only: remount it for writing".to_owned());
        }
        let free_bytes = system.f_bavail.saturating_mul(system.f_frsize);
        // Some file systems do not count their files.
        let files_are_used_up = system.f_files > 0 && system.f_favail == 0;
        (free_bytes < FREE_BYTES_MIN || files_are_used_up)
            .then(|| "its disk is full: free some space, and the store goes on by itself".to_owned())
    }

    /// Refuses to put another database in the place of one that is being served.
    pub(super) fn refuse_served(&self) -> Result<(), StoreError> {
        match self.numbered(".lock").find(|(epoch, _)| self.is_locked(*epoch)) {
            None => Ok(()),
            Some((_, lock)) => {
                let pid = fs::read_to_string(lock).unwrap_or_default();
                Err(unusable(&self.path, format!("pid {} still serves it: end that first", pid.trim())))
            }
        }
    }

    /// Removes a database that was lost but for its name. Others refuse it as long as it is so.
    pub(super) fn remove_lost(&self) -> io::Result<()> {
        if self.was_kept()? && self.database().exists() && !is_filled(&self.database())? {
            fs::remove_file(self.database())?;
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    fn log(&self) -> PathBuf {
        self.path.join(format!("{DATABASE}-wal"))
    }

    /// How many pages the log has, or had when it was longest since it was last cut off. One that cannot be asked counts as long.
    pub(super) fn log_pages(&self) -> i64 {
        let bytes = fs::metadata(self.log()).map_or(u64::MAX, |log| log.len());
        i64::try_from(bytes / PAGE_BYTES).unwrap_or(i64::MAX)
    }

    /// Makes the log what everybody reads of it, on the disk as well. After a sync that failed, the end of the log can be read and yet
    /// never reach the disk, whatever is synced later: the system takes it for written. If it were copied into the database, and the power
    /// went, what is left of the log would be played back over newer pages. Only what is written once more is written.
    ///
    /// For the process that has SQLite's write lock: no other may be writing there. SQLite has no lock on this file that closing it would drop.
    pub(super) fn write_log_again(&self) -> rusqlite::Result<()> {
        let log = self.log();
        (self.write_again)(&log).map_err(|error| {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_WRITE);
            rusqlite::Error::SqliteFailure(code, Some(format!("{}: {error}", log.display())))
        })
    }

    /// The same place on a simulated disk, with notes in a directory that is not on it.
    #[cfg(feature = "sim")]
    pub(super) fn simulated(self, write_again: Rewrite, notes: &Path) -> StoreDirectory {
        StoreDirectory { write_again, notes: ProgressNotes::at(notes), ..self }
    }

    /// The note about a store in this directory, outside its file system. `None`: there is no place for it.
    pub(super) fn note_about(&self, store: &str) -> Option<ProgressNote> {
        let inode = rustix::fs::fstat(&self.directory).ok()?.st_ino;
        let note = self.notes.about(store, inode);
        note.inspect_err(|error| tracing::debug!(%error, "no note of acknowledged batches"))
            .ok()
    }

    /// The refusal of a database that has lost what was acknowledged from it.
    pub(super) fn rewound(&self, found: &Progress) -> StoreError {
        let path = self.path.display();
        let why = format!(
            "it ends with batch {}, and a later one was acknowledged from it: its log was removed, or an older copy was put in its place. \
             Put back what was there; or, if that is lost, run `fencehold --store file:{path} store advance --by NAME --yes`: it ends every \
             lease and lifts every token above those that were given",
            found.batch
        );
        unusable(&self.database(), why)
    }

    /// Lets the database and the files that SQLite has beside it be used by those alone who may, whatever the umask was
    /// when they were made.
    pub(super) fn set_modes(&self) {
        for beside in ["", "-wal", "-shm"] {
            let name = format!("{DATABASE}{beside}");
            match self.set_mode(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Another user's file cannot be changed. Whether it can be used is for SQLite to find out.
                Err(error) => tracing::debug!(%error, name, "its mode cannot be changed"),
                Ok(()) => {}
            }
        }
    }

    /// The mode of every file in the directory.
    pub(super) fn mode(&self) -> u32 {
        if self.group.is_some() { SHARED } else { PRIVATE }
    }

    /// Gives an entry of the directory its mode, and the group that shares it. Through a descriptor, so that no link is followed
    /// that a member of the group puts there meanwhile; and one that cannot be read: closing any other would drop SQLite's locks.
    pub(super) fn set_mode(&self, name: &str) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&file)?;
        self.refuse_planted(name, &found)?;
        let through = format!("/proc/self/fd/{}", file.as_raw_fd());
        if let Some(group) = self.group.as_ref().filter(|group| group.id != found.st_gid) {
            let to = Some(Gid::from_raw(group.id));
            rustix::fs::chownat(CWD, &through, None, to, AtFlags::empty())?;
        }
        if found.st_mode & 0o7777 != self.mode() {
            fs::set_permissions(&through, Permissions::from_mode(self.mode()))?;
        }
        Ok(())
    }

    /// Refuses what a member of the group can put in the directory to have a file outside of it changed.
    fn refuse_planted(&self, name: &str, found: &rustix::fs::Stat) -> io::Result<()> {
        let kind = FileType::from_raw_mode(found.st_mode);
        let known = matches!(kind, FileType::RegularFile | FileType::Socket);
        let elsewhere = self.group.is_some() && found.st_nlink > 1;
        if known && !elsewhere {
            return Ok(());
        }
        let why = format!("{name} is a link, or has other names elsewhere: remove it");
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }

    /// The short way to a socket in the directory.
    pub(super) fn socket(&self, epoch: u64) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{}", self.directory.as_raw_fd(), socket_name(epoch)))
    }

    /// Opens a file of this directory, made for those alone who may use it if it is missing. A link is not followed.
    fn open_private(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(self.mode());
        let file: File = rustix::fs::openat(&self.directory, name, flags, mode)?.into();
        if self.group.is_some() {
            self.refuse_planted(name, &rustix::fs::fstat(&file)?)?;
            // The umask had its say. Of another member's file, that member sees to it.
            if let Err(error) = self.set_mode(name) {
                tracing::debug!(%error, name, "its mode cannot be changed");
            }
        }
        Ok(file)
    }

    /// The epochs whose sockets are in the directory, newest first.
    pub(super) fn epochs(&self) -> Vec<u64> {
        let mut epochs: Vec<u64> = self.numbered(".sock").map(|(epoch, _)| epoch).collect();
        epochs.sort_unstable_by(|a, b| b.cmp(a));
        epochs
    }

    fn numbered(&self, ending: &'static str) -> impl Iterator<Item = (u64, PathBuf)> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix("owner-")?.strip_suffix(ending)?;
            Some((number.parse().ok()?, entry.path()))
        })
    }

    /// Takes the lock of an epoch. It lasts as long as the file is open, so it tells that its owner has died.
    pub(super) fn lock(&self, epoch: u64) -> io::Result<File> {
        let file = self.open_private(&lock_name(epoch))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.set_len(0)?;
        io::Write::write_all(&mut &file, std::process::id().to_string().as_bytes())?;
        Ok(file)
    }

    /// Whether the owner of an epoch still runs.
    pub(super) fn is_locked(&self, epoch: u64) -> bool {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(&self.directory, lock_name(epoch), flags, Mode::empty()) else {
            return false;
        };
        // A shared lock for a moment: those who look do not get into each other's way.
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err()
    }

    /// The process that last said it was the owner, for people.
    pub(super) fn last_owner_pid(&self) -> Option<u32> {
        let (_, newest) = self.numbered(".lock").max_by_key(|(epoch, _)| *epoch)?;
        fs::read_to_string(newest).ok()?.trim().parse().ok()
    }

    /// Who stands in the way of a write, for people.
    pub(super) fn blocked_by(&self) -> String {
        let path = self.path.display();
        match self.writer_pid() {
            Some(pid) => format!(
                "{path} is in the middle of a write by pid {pid}: if it is stopped, continue it (kill -CONT {pid}) or end it"
            ),
            None => format!("{path} is in the middle of a write by another process"),
        }
    }

    /// The process that has the lock of the disk, or that of SQLite's writer, as the system tells it.
    fn writer_pid(&self) -> Option<u32> {
        let inode = |name: &str| fs::metadata(self.path.join(name)).ok().map(|file| file.ino());
        let locked = [inode(TURNS), inode(&format!("{DATABASE}-shm"))];
        // The kernel goes on by number from one read to the next, so a lock that ends in between hides another one: large reads,
        // and more than one look.
        (0..LOOKS_AT_LOCKS).find_map(|_| {
            let mut locks = Vec::with_capacity(64 * 1024);
            File::open("/proc/locks").ok()?.read_to_end(&mut locks).ok()?;
            String::from_utf8_lossy(&locks).lines().find_map(|line| {
                // 1: FLOCK  ADVISORY  WRITE 712 00:1a:4711 0 EOF
                let mut words = line.split_ascii_whitespace().skip(3);
                let (kind, pid, file) = (words.next()?, words.next()?, words.next()?);
                let inode: u64 = file.rsplit(':').next()?.parse().ok()?;
                (kind == "WRITE" && locked.contains(&Some(inode))).then(|| pid.parse().ok())?
            })
        })
    }

    /// Removes what earlier owners left.
    pub(super) fn forget_before(&self, epoch: u64) {
        let old = self.numbered(".sock").chain(self.numbered(".lock"));
        for (_, path) in old.filter(|(number, _)| *number < epoch) {
            let _ = fs::remove_file(path);
        }
    }

    /// Removes what this owner leaves, when it ends in good order.
    pub(super) fn forget(&self, epoch: u64) {
        let _ = fs::remove_file(self.socket(epoch));
        let _ = fs::remove_file(self.path.join(lock_name(epoch)));
    }

    /// The file whose lock says whose turn it is at the disk.
    pub(super) fn turns(&self) -> io::Result<File> {
        self.open_private(TURNS)
    }

    /// Notes that a store is kept here, once that is on the disk. Without its database the directory is then no new one: tokens would
    /// begin anew, and a holder from before would pass for the newest.
    pub(super) fn note_kept(&self) -> io::Result<()> {
        let file = self.turns()?;
        if file.metadata()?.len() > 0 {
            return Ok(());
        }
        let noted = file
            .write_all_at(KEPT, 0)
            .and_then(|()| file.sync_all())
            .and_then(|()| File::open(&self.path)?.sync_all());
        // What is not known to be on the disk is noted again by the next owner.
        noted.inspect_err(|_| drop(file.set_len(0)))
    }

    /// Whether a store was kept here before.
    pub(super) fn was_kept(&self) -> io::Result<bool> {
        is_filled(&self.path.join(TURNS))
    }

    /// Refuses a directory whose database is empty or gone, before SQLite makes a new one. In this order: it may be made meanwhile, and
    /// the database is there before the note.
    pub(super) fn refuse_lost(&self) -> Result<(), StoreError> {
        self.refuse_replaced()?;
        let lost = || Ok(self.was_kept()? && !is_filled(&self.database())?);
        lost()
            .map_err(|error: io::Error| self.unavailable(&error))
            .and_then(|lost| if lost { Err(self.lost()) } else { Ok(()) })
    }

    /// Which files the database and its log are. A process that has them open goes on writing after they were removed or replaced, and
    /// no other process would see it. On a simulated disk there are none.
    pub(super) fn files(&self) -> FileIdentities {
        let which = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        FileIdentities { database: which(&self.database()), log: which(&self.log()) }
    }

    /// Takes the log away from beside a database that it does not belong to: SQLite would play it into that one.
    pub(super) fn set_log_aside(&self) -> io::Result<()> {
        for beside in ["-wal", "-shm"] {
            let name = |ending: &str| self.path.join(format!("{DATABASE}{beside}{ending}"));
            fs::rename(name(""), name(".replaced"))?;
        }
        Ok(())
    }

    /// Refuses where the directory that was opened is no longer the one of its name: others look for its sockets and locks there.
    fn refuse_replaced(&self) -> Result<(), StoreError> {
        let gone = "it was removed while it was in use: put a backup back (fencehold store restore), and start this process again";
        let other = "another directory was put in its place while it was in use: start this process again";
        let refused = |why| Err(unusable(&self.path, why));
        match (rustix::fs::stat(&self.path), rustix::fs::fstat(&self.directory)) {
            (Err(rustix::io::Errno::NOENT), _) => refused(gone),
            (Ok(named), Ok(opened)) if (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino) => {
                refused(other)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn unavailable(&self, error: &io::Error) -> StoreError {
        StoreError::Unavailable { message: format!("{}: {}", self.path.display(), self.why(error)) }
    }

    pub(super) fn lost(&self) -> StoreError {
        let why = "it is empty or gone, and a store was kept here: in a new one tokens would begin anew, and stale holders pass; put a \
                   backup back (fencehold store restore), or, if nothing that knows its tokens is left, remove disk.lock as well";
        unusable(&self.database(), why)
    }

    /// Notes that the disk failed: renewals that were acknowledged may be lost.
    pub(super) fn mark(&self) -> io::Result<()> {
        test_points::pass(self, "mark");
        test_points::fail(self, "mark").map_err(io::Error::other)?;
        self.open_private(MARK)?.sync_all()?;
        File::open(&self.path)?.sync_all()
    }

    pub(super) fn is_marked(&self) -> bool {
        self.path.join(MARK).exists()
    }

    pub(super) fn unmark(&self) -> io::Result<()> {
        match fs::remove_file(self.path.join(MARK)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Locks and shared memory do not work across machines: on a network file system two owners could serve.
    fn refuse_network(&self) -> Result<(), StoreError> {
        let found = network_file_system(&self.path).map_err(|error| unusable(&self.path, error))?;
        match found {
            None => Ok(()),
            Some(name) => Err(unusable(
                &self.path,
                format!(
                    "it is on {name}, and a network file system cannot keep two machines apart; \
                          use a local directory and reach it from elsewhere through a server"
                ),
            )),
        }
    }
}

/// Makes a directory that is missing, for this user alone or for the group, and has its name on the disk: a store in a directory
/// that a power cut takes away would be lost with everything that was acknowledged from it.
pub(super) fn make_directory(path: &Path, group: Option<&SharedGroup>) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
    match group {
        Some(group) if !missing.is_empty() => make_shared_directory(path, group)?,
        _ => DirBuilder::new().recursive(true).mode(0o700).create(path)?,
    }
    for parent in missing.into_iter().filter_map(Path::parent) {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Under another name until it is the group's: another member may look for it meanwhile. Those above it are not made: who may
/// pass through them is for others to say.
fn make_shared_directory(path: &Path, group: &SharedGroup) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    // What a process of the same number left when it was killed.
    let _ = fs::remove_dir(&beside);
    DirBuilder::new().mode(0o700).create(&beside)?;
    let made = share_directory(&beside, group).and_then(|()| {
        match rustix::fs::renameat_with(CWD, &beside, CWD, path, RenameFlags::NOREPLACE) {
            // Another member was faster.
            Err(rustix::io::Errno::EXIST) => fs::remove_dir(&beside),
            renamed => Ok(renamed?),
        }
    });
    made.inspect_err(|_| drop(fs::remove_dir(&beside)))
}

/// Gives a directory of this user to the group.
pub(super) fn share_directory(path: &Path, group: &SharedGroup) -> io::Result<()> {
    std::os::unix::fs::lchown(path, None, Some(group.id))?;
    fs::set_permissions(path, Permissions::from_mode(SHARED_DIRECTORY))
}

/// Whether a file is there, with something in it.
fn is_filled(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(file) => Ok(file.len() > 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn lock_name(epoch: u64) -> String {
    format!("owner-{epoch}.lock")
}

pub(super) fn socket_name(epoch: u64) -> String {
    format!("owner-{epoch}.sock")
}

pub(super) fn no_store(place: &Path) -> StoreError {
    StoreError::NoStore { store: place.display().to_string() }
}

pub(super) fn unusable(place: &Path, why: impl Display) -> StoreError {
    StoreError::Unusable { store: place.display().to_string(), message: why.to_string() }
}

fn write_again(path: &Path) -> io::Result<()> {
    let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
    let file = match OpenOptions::new().read(true).write(true).custom_flags(nofollow).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let read = file.read_at(&mut piece, at)?;
        if read == 0 {
            break;
        }
        file.write_all_at(&piece[..read], at)?;
        at += read as u64;
    }
    if at > 0 { file.sync_data() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_again_is_written_and_stays_as_it_was() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("log");
        assert!(write_again(&path).is_ok() && !path.exists(), "no file, nothing to do");
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|nth| nth.to_le_bytes()[1]).collect();
        fs::write(&path, &bytes).unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        write_again(&path).unwrap();
        assert!(fs::metadata(&path).unwrap().modified().unwrap() > long_ago, "nothing was written");
        assert!(fs::read(&path).unwrap() == bytes, "it is another file now");
    }
}
