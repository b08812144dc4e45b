//! How far a store has come: the number of its last batch, in the database and outside its file system.
//!
//! Renewals are acknowledged before they are synced. After a reboot the boot id says that they may be lost. A file system
//! can lose them without a reboot: its device is detached and attached again, or it shuts down on an error. So the owner
//! notes after each batch, in memory that belongs to no disk, how far it has come. The next owner compares that with the
//! database: a database that is behind has lost something. Where there is no such note, renewals count as lost.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::process::Gid;

use super::directory::{PRIVATE, SHARED};
use super::permissions::{SHARED_DIRECTORY, SharedGroup};
use super::sqlite::{from_sql, number, run, to_sql};

/// Memory that outlives every process and no boot.
const SHARED_MEMORY: &str = "/dev/shm";
const TMPFS_MAGIC: u32 = 0x0102_1994;

/// In the first eight bytes of a note.
const FORM: u64 = u64::from_le_bytes(*b"fencehd1");
const NOTE_BYTES: usize = 40;

/// A table of its own, so that earlier versions open the database as before. They do not touch it, so `epoch` is then not
/// the epoch of the last owner.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS progress (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    store TEXT NOT NULL,
    batch INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    unsynced INTEGER NOT NULL
);
INSERT OR IGNORE INTO progress VALUES (1, '', 0, 0, 0);
";

/// What the database says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Which store this is. A restored backup becomes another one.
    pub(super) store: String,
    /// The number of the last batch.
    pub(super) batch: u64,
    /// The epoch of the last owner that keeps count.
    pub(super) epoch: u64,
    /// Whether that owner may have acknowledged batches that were not synced, and has not closed since.
    pub(super) unsynced: bool,
}

pub(super) fn make(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)
}

impl Progress {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Progress> {
        let sql = "SELECT store, batch, epoch, unsynced FROM progress";
        connection.query_row(sql, [], |row| {
            let (batch, epoch) = (from_sql(row.get(1)?), from_sql(row.get(2)?));
            Ok(Progress { store: row.get(0)?, batch, epoch, unsynced: row.get(3)? })
        })
    }

    /// A new owner begins: one batch further, and nothing is unsynced yet.
    pub(super) fn begin(&self, connection: &Connection, epoch: u64, renamed: bool) -> rusqlite::Result<Self> {
        let store = if self.store.is_empty() || renamed {
            connection.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get(0))?
        } else {
            self.store.clone()
        };
        let next = Progress { store, batch: self.batch + 1, epoch, unsynced: false };
        let values = params![next.store, to_sql(next.batch), to_sql(epoch)];
        let sql = "UPDATE progress SET store = ?1, batch = ?2, epoch = ?3, unsynced = 0";
        connection.execute(sql, values)?;
        Ok(next)
    }
}

/// The number of a batch, in its own transaction.
pub(super) fn put(connection: &Connection, batch: u64, unsynced: bool) -> rusqlite::Result<()> {
    let sql = "UPDATE progress SET batch = ?1, unsynced = ?2 WHERE id = 1";
    run(connection, sql, params![to_sql(batch), unsynced])
}

/// Makes a copied database a store of its own.
pub(super) fn rename(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'progress'";
    if number(connection, sql, [])? > 0 {
        connection.execute("UPDATE progress SET store = ''", [])?;
    }
    Ok(())
}

/// What an owner has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AcknowledgedProgress {
    pub(super) epoch: u64,
    /// The last batch that was acknowledged, and the last of those that were synced first.
    pub(super) acknowledged: u64,
    pub(super) synced: u64,
    /// The longest ttl that was ever granted: how long a store that lost grants must stay closed.
    pub(super) longest_ttl_ms: u64,
}

impl AcknowledgedProgress {
    fn bytes(self) -> [u8; NOTE_BYTES] {
        let mut bytes = [0; NOTE_BYTES];
        let numbers = [FORM, self.epoch, self.acknowledged, self.synced, self.longest_ttl_ms];
        for (piece, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            piece.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; NOTE_BYTES]) -> Option<AcknowledgedProgress> {
        let number = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let (epoch, acknowledged, synced, longest_ttl_ms) =
            (number(8)?, number(16)?, number(24)?, number(32)?);
        (number(0)? == FORM).then_some(AcknowledgedProgress { epoch, acknowledged, synced, longest_ttl_ms })
    }

    /// Whether a database has lost what was synced before it was acknowledged.
    pub(super) fn shows_rewound(self, epoch: u64, batch: u64) -> bool {
        self.epoch > epoch || (self.epoch == epoch && self.synced > batch)
    }

    /// Whether a database has everything that its last owner acknowledged.
    pub(super) fn shows_complete(self, epoch: u64, batch: u64) -> bool {
        self.epoch == epoch && self.acknowledged <= batch
    }
}

/// Where the notes of this user are, or those of a group.
#[derive(Clone, Debug)]
pub(super) struct ProgressNotes {
    directory: PathBuf,
    must_be_memory: bool,
    group: Option<u32>,
}

impl ProgressNotes {
    /// In shared memory, in a directory of this user alone, or of the group.
    pub(super) fn in_shared_memory(group: Option<&SharedGroup>) -> ProgressNotes {
        let group = group.map(|group| group.id);
        let name = match group {
            None => format!("fencehold-{}", rustix::process::geteuid().as_raw()),
            Some(group) => format!("fencehold-group-{group}"),
        };
        ProgressNotes { directory: Path::new(SHARED_MEMORY).join(name), must_be_memory: true, group }
    }

    /// In a directory that outlives a simulated file system.
    #[cfg(feature = "sim")]
    pub(super) fn at(directory: &Path) -> ProgressNotes {
        ProgressNotes { directory: directory.to_owned(), must_be_memory: false, group: None }
    }

    /// The directory, if it can be trusted: no other user may have made it, or may write there.
    fn open(&self) -> io::Result<OwnedFd> {
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&self.directory, flags, Mode::empty())?;
        let mut found = rustix::fs::fstat(&directory)?;
        let own = found.st_uid == rustix::process::geteuid().as_raw();
        let shared =
            |found: &Stat, group| found.st_gid == group && found.st_mode & 0o7777 == SHARED_DIRECTORY;
        if let Some(group) = self.group.filter(|group| own && !shared(&found, *group)) {
            rustix::fs::fchown(&directory, None, Some(Gid::from_raw(group)))?;
            rustix::fs::fchmod(&directory, Mode::from_raw_mode(SHARED_DIRECTORY))?;
            found = rustix::fs::fstat(&directory)?;
        }
        let ours = match self.group {
            None => own && !Mode::from_raw_mode(found.st_mode).intersects(Mode::RWXG | Mode::RWXO),
            // Only root and its members can give a directory to a group.
            Some(group) => shared(&found, group),
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the field's type differs between machines; magic numbers have 32 bits"
        )]
        let memory = rustix::fs::fstatfs(&directory)?.f_type as u32 == TMPFS_MAGIC;
        if !ours || (self.must_be_memory && !memory) {
            let whom = self
                .group
                .map_or_else(|| "this user alone".to_owned(), |group| format!("group {group}"));
            let why = format!("{} is not a directory in memory for {whom}", self.directory.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(directory)
    }

    /// The note about a store: by its name and its directory, so that a copy of a directory has a note of its own.
    pub(super) fn about(&self, store: &str, inode: u64) -> io::Result<ProgressNote> {
        let safe = !store.is_empty() && store.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !safe {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mode = if self.group.is_some() { SHARED } else { PRIVATE };
        Ok(ProgressNote { directory: self.open()?, name: format!("{store}-{inode}"), mode, file: None })
    }
}

/// The note about one store.
#[derive(Debug)]
pub(super) struct ProgressNote {
    directory: OwnedFd,
    name: String,
    mode: u32,
    file: Option<File>,
}

impl ProgressNote {
    /// What the last owner of this user noted, if it can be read.
    pub(super) fn read(&self) -> Option<AcknowledgedProgress> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty()).ok()?);
        let mut bytes = [0; NOTE_BYTES];
        file.read_exact_at(&mut bytes, 0).ok()?;
        AcknowledgedProgress::from_bytes(&bytes)
    }

    pub(super) fn write(&mut self, noted: AcknowledgedProgress) -> io::Result<()> {
        if self.file.is_none() {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(self.mode);
            let file: File = rustix::fs::openat(&self.directory, &self.name, flags, mode)?.into();
            // The umask had its say. Another member's file has the right mode already.
            let _ = rustix::fs::fchmod(&file, mode);
            self.file = Some(file);
        }
        match &self.file {
            Some(file) => file.write_all_at(&noted.bytes(), 0),
            None => Ok(()),
        }
    }

    /// Removes it. Without a note, what was not synced counts as lost.
    pub(super) fn remove(self) {
        let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_bytes_of_a_note_are_known() {
        let noted = AcknowledgedProgress { epoch: 3, acknowledged: 500, synced: 499, longest_ttl_ms: 30_000 };
        fencehold_conformance::golden::current(
            env!("CARGO_MANIFEST_DIR"),
            "progress-note.v1.hex",
            &[noted],
            |noted| noted.bytes().to_vec(),
            |bytes| {
                bytes
                    .try_into()
                    .ok()
                    .and_then(AcknowledgedProgress::from_bytes)
                    .ok_or_else(|| "not a note".to_owned())
            },
        );
    }

    #[test]
    fn a_database_that_is_behind_its_note_has_lost_something() {
        let noted = AcknowledgedProgress { epoch: 3, acknowledged: 20, synced: 15, longest_ttl_ms: 7 };
        assert_eq!(AcknowledgedProgress::from_bytes(&noted.bytes()), Some(noted));
        assert_eq!(AcknowledgedProgress::from_bytes(&[7; NOTE_BYTES]), None);
        assert!(noted.shows_complete(3, 20) && noted.shows_complete(3, 21));
        for (epoch, batch) in [(3, 19), (4, 30)] {
            assert!(!noted.shows_complete(epoch, batch), "{epoch} {batch}");
            assert!(!noted.shows_rewound(epoch, batch), "{epoch} {batch}");
        }
        assert!(noted.shows_rewound(3, 14) && noted.shows_rewound(2, 99));
    }

    #[test]
    fn only_a_directory_of_this_user_alone_is_believed() {
        let room = tempfile::tempdir().unwrap();
        let notes = |name: &str| ProgressNotes {
            directory: room.path().join(name),
            must_be_memory: false,
            group: None,
        };
        let mut note = notes("ours").about("5eed", 7).unwrap();
        let reached = AcknowledgedProgress { epoch: 1, acknowledged: 2, synced: 2, longest_ttl_ms: 7 };
        note.write(reached).unwrap();
        assert_eq!(notes("ours").about("5eed", 7).unwrap().read(), Some(reached));
        assert_eq!(notes("ours").about("5eed", 8).unwrap().read(), None, "another directory");
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(room.path().join("ours"), open).unwrap();
        assert!(notes("ours").about("5eed", 7).is_err(), "others may write there");
        std::os::unix::fs::symlink(room.path().join("elsewhere"), room.path().join("link")).unwrap();
        assert!(notes("link").about("5eed", 7).is_err(), "a link");
        assert!(notes("ours").about("../x", 7).is_err() && notes("ours").about("", 7).is_err());
        note.remove();
    }
}
