//! Keeping batches in SQLite: one transaction each, in which the owner first makes sure that it still is the owner.

use std::io;
use std::sync::Arc;

use fencehold_contract::StoreError;
use fencehold_core::limits::EVENTS_KEPT;
use fencehold_core::{Event, Namespace, Timestamp};
use fencehold_engine::{Archive, Change, Changes, PersistError, Persistence, StoredEvents, StoredJobs};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Params, Row};

use super::directory::{FileIdentities, MissingFile, StoreDirectory};
use super::disk_lock::DiskLock;
use super::job::BodyCache;
use super::load::Trust;
use super::old_events::OldEventChanges;
use super::progress::{self, AcknowledgedProgress, ProgressNote};
use super::schema::{is_busy, sorry};
use super::takeover::pause;
use super::{boot_clock, lease_rows, test_points};

/// How many pages the log may have before it is copied back between batches, and before it is copied back although
/// others wait.
const LOG_PAGES_IDLE: i64 = 1_000;
const LOG_PAGES_BUSY: i64 = 8_000;
/// A log of so many pages stays when an owner begins: it is copied back when the owner ends, or has written more.
pub(super) const LOG_PAGES_LEFT: i64 = 64;

/// How often a log that was removed is tried to be saved, while a process reads: for a minute.
const RESCUES_MAX: usize = 3_000;

/// The owner's hold on the database. It is itself a leaseholder with a fence: the epoch.
#[derive(Debug)]
pub(super) struct SqlitePersistence {
    pub(super) connection: Connection,
    place: Arc<StoreDirectory>,
    disk_lock: DiskLock,
    /// Once the disk has failed: how, and why that could not be noted, where it could not.
    failure: Option<(String, Option<io::Error>)>,
    epoch: i64,
    /// What is open.
    files: FileIdentities,
    /// The number of the last batch.
    batch: u64,
    /// The last batch that was synced before it was acknowledged.
    synced_batch: u64,
    /// The longest ttl that was ever granted.
    longest_ttl_ms: u64,
    /// Whether the database says that batches of this epoch may be acknowledged before they are synced.
    says_unsynced: bool,
    /// Says outside the file system how far this owner has come.
    note: Option<ProgressNote>,
    /// Whether commits wait for the disk at the moment.
    syncs: bool,
    /// How long the last commit took, of which nearly all is the disk's.
    commit_us: Option<u64>,
    /// How many pages were written to the log since it was last copied back, roughly.
    log_pages: i64,
    /// Events up to here have been forgotten.
    forgotten_seq: u64,
    /// What namespaces have lost of them.
    losses: OldEventChanges,
    buffer: Vec<u8>,
    pub(super) bodies: BodyCache,
    /// What is noted of the clock.
    clock: boot_clock::NotedClock,
}

/// How far an owner has come when it begins.
pub(super) struct StartingPoint {
    pub(super) epoch: u64,
    pub(super) batch: u64,
    pub(super) longest_ttl_ms: u64,
    pub(super) note: Option<ProgressNote>,
    pub(super) oldest_seq: u64,
    /// How many pages the log has.
    pub(super) log_pages: i64,
    /// What is noted of the clock.
    pub(super) clock: boot_clock::NotedClock,
}

/// The disk failed. Nothing is asked of it any more.
#[derive(Debug)]
pub(super) struct DiskFailed {
    pub(super) why: String,
    /// `None`: the next owner learns by a mark.
    pub(super) unnoted: Option<NoMark>,
}

/// No mark could be made.
#[derive(Debug)]
pub(super) struct NoMark {
    pub(super) error: io::Error,
    /// Kept, so that no process starts from what is there.
    pub(super) disk_lock: DiskLock,
}

impl SqlitePersistence {
    pub(super) fn new(
        connection: Connection,
        place: Arc<StoreDirectory>,
        disk_lock: DiskLock,
        files: FileIdentities,
        came: StartingPoint,
    ) -> Self {
        let StartingPoint { epoch, batch, longest_ttl_ms, note, oldest_seq, log_pages, clock } = came;
        SqlitePersistence {
            connection,
            files,
            place,
            disk_lock,
            failure: None,
            epoch: to_sql(epoch),
            batch,
            synced_batch: batch,
            longest_ttl_ms,
            says_unsynced: false,
            note,
            syncs: true,
            commit_us: None,
            log_pages,
            forgotten_seq: oldest_seq.saturating_sub(1),
            losses: OldEventChanges::default(),
            buffer: Vec::new(),
            bodies: BodyCache::default(),
            clock,
        }
    }

    /// Does something with the disk in this process's turn. Where it fails, the mark is there before the turn ends.
    fn with_disk_lock(
        &mut self,
        act: impl FnOnce(&mut Self) -> rusqlite::Result<Option<()>>,
    ) -> Result<(), PersistError> {
        if let Some((why, _)) = &self.failure {
            return Err(PersistError::Failed(why.clone()));
        }
        if !self.disk_lock.take() {
            return Err(PersistError::Busy(self.place.blocked_by()));
        }
        let outcome = match act(self) {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(PersistError::Superseded),
            Err(error) if is_busy(&error) => Err(PersistError::Busy(self.place.blocked_by())),
            Err(error) => Err(PersistError::Failed(self.place.why(&error))),
        };
        if let Err(PersistError::Failed(why)) = &outcome {
            self.failure = Some((why.clone(), self.place.mark().err()));
        }
        // An error in the middle may have left a transaction open, or not: after some, SQLite ends it by itself.
        if outcome.is_err() && !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        if !matches!(self.failure, Some((_, Some(_)))) {
            self.disk_lock.end();
        }
        outcome
    }

    /// Reads the jobs, in one transaction. No one else writes: what this owner has not kept yet is about leases.
    pub(super) fn load_jobs(&mut self, now: Timestamp) -> Result<(StoredJobs, u64), StoreError> {
        let read = self.read_at_once(|connection| {
            let written = || number(connection, "SELECT total_changes()", []);
            let before = written()?;
            let loaded = super::job::load(connection, now, Trust::Exact)?;
            Ok((loaded, written()? > before))
        });
        match read {
            Ok((loaded, false)) => Ok(loaded),
            // Rows that cannot be read are set aside, in turn and on the disk.
            Ok((_, true)) => self.load_damaged_jobs(now),
            Err(error) if is_busy(&error) => self.load_damaged_jobs(now),
            Err(error) => Err(sorry(&self.place, &error)),
        }
    }

    /// Reads the events up to this one.
    pub(super) fn load_events(&mut self, until_seq: u64) -> Result<StoredEvents, StoreError> {
        let read = self.read_at_once(|connection| super::load::load_events(connection, until_seq));
        read.map_err(|error| sorry(&self.place, &error))
    }

    /// In one transaction, which is then rolled back.
    fn read_at_once<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let result = self.connection.execute_batch("BEGIN").and_then(|()| read(&self.connection));
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        result
    }

    fn load_damaged_jobs(&mut self, now: Timestamp) -> Result<(StoredJobs, u64), StoreError> {
        let mut loaded = None;
        let outcome = self.with_disk_lock(|keep| {
            if !keep.begin(true)? {
                return Ok(None);
            }
            loaded = Some(super::job::load(&keep.connection, now, Trust::Exact)?);
            keep.commit()?;
            keep.log_pages = keep.log_pages.saturating_add(1);
            Ok(Some(()))
        });
        let path = self.place.path().display();
        match (outcome, loaded) {
            (Ok(()), Some(loaded)) => Ok(loaded),
            (Err(PersistError::Busy(why) | PersistError::Failed(why)), _) => {
                Err(StoreError::Unavailable { message: why })
            }
            _ => Err(StoreError::Unavailable { message: format!("{path}: another process took it over") }),
        }
    }

    /// Ends the hold on the database, with everything copied back where that can be done. `Some`: the disk failed.
    pub(super) fn close(mut self) -> Option<DiskFailed> {
        let lost = self.what_is_lost();
        if self.says_unsynced {
            // Where this is found, everything before it in the log is there as well. Where it cannot be written, the note stands.
            let _ = self.with_disk_lock(Self::say_synced);
        }
        let is_copied = self.copies_all_back(lost);
        if is_copied {
            if let Some(note) = self.note.take() {
                note.remove();
            }
            // Nothing is left to sync: SQLite may tidy up after itself.
            let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        }
        let (why, error) = self.failure?;
        let disk_lock = self.disk_lock;
        Some(DiskFailed { why, unnoted: error.map(|error| NoMark { error, disk_lock }) })
    }

    /// This owner acknowledges nothing more, and the log is synced as it is copied back.
    fn say_synced(&mut self) -> rusqlite::Result<Option<()>> {
        if !self.begin(false)? {
            return Ok(None);
        }
        progress::put(&self.connection, self.batch, false)?;
        self.commit()?;
        self.says_unsynced = false;
        self.log_pages = self.log_pages.saturating_add(1);
        Ok(Some(()))
    }

    /// Says outside the file system how far this owner has come, before anybody is answered.
    fn note_batch(&mut self) {
        let epoch = from_sql(self.epoch);
        let (acknowledged, synced, longest_ttl_ms) = (self.batch, self.synced_batch, self.longest_ttl_ms);
        let noted = AcknowledgedProgress { epoch, acknowledged, synced, longest_ttl_ms };
        if self.note.as_mut().is_some_and(|note| note.write(noted).is_err()) {
            // Without a note, what was not synced counts as lost.
            if let Some(note) = self.note.take() {
                note.remove();
            }
        }
    }

    /// What is no longer in its place. The log of a database that was replaced is set aside, in turn: a process that opens the other one
    /// does that in a turn of its own, and SQLite would play the log into it.
    fn what_is_lost(&self) -> MissingFile {
        if self.failure.is_some() {
            // Nothing is asked of the disk any more, and the turn may have to be kept.
            return MissingFile::Nothing;
        }
        let with_disk_lock = self.disk_lock.take();
        let lost = self.place.files().lost_since(self.files);
        if lost == MissingFile::Database {
            let scratch = if with_disk_lock {
                self.place.set_log_aside()
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            };
            if let Err(error) = scratch {
                let place = self.place.path().display();
                tracing::error!(%error, %place, "the log of a database that was replaced lies beside the other one: remove it");
            }
        }
        if with_disk_lock {
            self.disk_lock.end();
        }
        lost
    }

    /// Whether nothing is left in the log. One that is left is copied back by the next owner; one that was removed is nowhere else, so
    /// a process that is in the way is waited for.
    fn copies_all_back(&mut self, lost: MissingFile) -> bool {
        for _ in 0..RESCUES_MAX {
            match self.with_disk_lock(Self::copy_back_if_owner) {
                Ok(()) if self.log_pages == 0 => return true,
                Ok(()) | Err(PersistError::Busy(_)) if lost == MissingFile::Log => pause(),
                _ => return false,
            }
        }
        tracing::error!(place = %self.place.path().display(), "its log was removed while a process read; what was written last is lost");
        false
    }

    /// Makes commits wait for the disk, or not. A power cut then loses what was not waited for; a killed process
    /// loses nothing either way.
    fn set_syncs(&mut self, syncs: bool) -> rusqlite::Result<()> {
        if self.syncs != syncs {
            let level = if syncs { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            self.connection.execute_batch(level)?;
            self.syncs = syncs;
        }
        Ok(())
    }

    /// Begins a transaction that is synced when it ends, or not. False: another process owns the store.
    fn begin(&mut self, synced: bool) -> rusqlite::Result<bool> {
        self.set_syncs(synced)?;
        run(&self.connection, "BEGIN IMMEDIATE", [])?;
        self.still_owner()
    }

    /// Whether this process still owns the store.
    fn still_owner(&self) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare_cached("SELECT epoch FROM meta WHERE id = 1")?;
        let current: i64 = statement.query_row([], |row| row.get(0))?;
        Ok(current == self.epoch)
    }

    /// Whether the next owner will find what was written. Asked after it was written, and before any answer.
    fn is_in_place(&self) -> bool {
        self.place.files() == self.files
    }

    fn try_keep(&mut self, changes: &Changes) -> rusqlite::Result<Option<()>> {
        // The first batch that is not to be synced is, so that the database says that others are not.
        let unsynced = self.says_unsynced || !changes.durable;
        let synced = changes.durable || !self.says_unsynced;
        let batch = self.batch + 1;
        if !self.begin(synced)? {
            return Ok(None);
        }
        let written = self
            .write(changes)
            .and_then(|()| progress::put(&self.connection, batch, unsynced));
        test_points::pass(&self.place, "commit");
        written?;
        test_points::fail(&self.place, "commit")?;
        self.commit()?;
        (self.batch, self.says_unsynced) = (batch, unsynced);
        if synced {
            self.synced_batch = batch;
        }
        test_points::pass(&self.place, "kept");
        let rows = changes.rows.len() + 2 * changes.jobs.len() + 1;
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        self.log_pages = self.log_pages.saturating_add(rows.min(2 + rows / 4));
        Ok(self.is_in_place().then_some(()))
    }

    /// Ends the transaction, on disk if it is to be, and notes how long that took.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long the disk took is for people, and decides nothing"
    )]
    fn commit(&mut self) -> rusqlite::Result<()> {
        let started = std::time::Instant::now();
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        self.commit_us = u64::try_from(started.elapsed().as_micros()).ok();
        Ok(())
    }

    fn write(&mut self, changes: &Changes) -> rusqlite::Result<()> {
        let Self { connection, buffer, longest_ttl_ms, clock, .. } = self;
        for change in &changes.rows {
            if let Change::LongestTtl { ttl_ms } = change {
                *longest_ttl_ms = *ttl_ms;
            }
            if let Change::Seen { now } = change {
                clock.seen = *now;
                run(connection, "UPDATE meta SET boot = ?1", [clock.text()])?;
                continue;
            }
            lease_rows::write(connection, buffer, change)?;
        }
        let mut writing = super::job::JobStatements::new(connection, buffer);
        for change in &changes.jobs {
            writing.write(change)?;
        }
        drop(writing);
        self.write_events(changes)
    }

    fn write_events(&mut self, changes: &Changes) -> rusqlite::Result<()> {
        let Some(last) = changes.events.last() else { return Ok(()) };
        let events: Vec<&Event> = changes.events.iter().map(AsRef::as_ref).collect();
        lease_rows::put_events(&self.connection, &mut self.buffer, &events)?;
        self.losses.write(&self.connection, &mut self.buffer, &changes.old_events)?;
        // Forgotten by the hundred: deleting one for each one written would touch a page more in every batch.
        let forget_until = last.seq.saturating_sub(EVENTS_KEPT as u64);
        if forget_until > self.forgotten_seq + 256 && !changes.old_events.unread {
            lease_rows::forget_events(&self.connection, forget_until)?;
            self.losses.forget(&self.connection, forget_until)?;
            self.forgotten_seq = forget_until;
        }
        Ok(())
    }

    fn copy_back_if_owner(&mut self) -> rusqlite::Result<Option<()>> {
        if self.still_owner()? { self.copy_back().map(Some) } else { Ok(None) }
    }

    /// Copies the log back into the database, as far as no other process is in the way.
    fn copy_back(&mut self) -> rusqlite::Result<()> {
        self.set_syncs(true)?;
        test_points::pass(&self.place, "checkpoint");
        test_points::fail(&self.place, "checkpoint")?;
        let mut statement = self.connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?;
        let (busy, log, copied): (i64, i64, i64) =
            statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        if busy == 0 && log == copied {
            self.log_pages = 0;
        } else {
            // Tried again when as much has come on top. Never 0: something is left.
            self.log_pages = (self.log_pages / 2).max(1);
        }
        Ok(())
    }
}

impl Persistence for SqlitePersistence {
    const KEEPS: bool = true;

    fn keep(&mut self, changes: &mut Changes) -> Result<(), PersistError> {
        self.with_disk_lock(|keep| keep.try_keep(changes))?;
        self.note_batch();
        self.bodies.learn(&changes.jobs);
        Ok(())
    }

    fn archive(&mut self) -> &mut dyn Archive {
        self
    }

    fn disk_us(&self) -> Option<u64> {
        self.commit_us
    }

    fn confirm(&mut self) -> Result<(), PersistError> {
        test_points::pass(&self.place, "confirm");
        self.with_disk_lock(|keep| Ok((keep.still_owner()? && keep.is_in_place()).then_some(())))
    }

    fn tidy(&mut self, idle: bool) -> Result<(), PersistError> {
        if self.log_pages < if idle { LOG_PAGES_IDLE } else { LOG_PAGES_BUSY } {
            return Ok(());
        }
        match self.with_disk_lock(Self::copy_back_if_owner) {
            // It is tried again after the next batch.
            Err(PersistError::Busy(_)) => Ok(()),
            end => end,
        }
    }
}

/// Runs a statement that is used over and over.
pub(super) fn run(connection: &Connection, sql: &str, values: impl Params) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

/// Every row that a statement gives, each as `read` does.
pub(super) fn rows<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare_cached(sql)?.query_map(values, read)?.collect()
}

/// The rows that can be read, and how many cannot.
pub(super) fn readable_rows<T>(
    connection: &Connection,
    sql: &str,
    read: impl Fn(&Row<'_>) -> Option<T>,
) -> rusqlite::Result<(Vec<T>, usize)> {
    let all = rows(connection, sql, [], |row| Ok(read(row)))?;
    let unreadable = all.iter().filter(|row| row.is_none()).count();
    Ok((all.into_iter().flatten().collect(), unreadable))
}

/// The namespace that a column names, if it can be read.
pub(super) fn namespace_at(row: &Row<'_>, column: usize) -> Option<Namespace> {
    Namespace::new(row.get::<_, String>(column).ok()?).ok()
}

/// The one number that a statement gives.
pub(super) fn number(connection: &Connection, sql: &str, values: impl Params) -> rusqlite::Result<u64> {
    connection.query_row(sql, values, |row| row.get(0)).map(from_sql)
}

/// SQLite's integers are signed; everything kept is far below the sign.
pub(super) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
