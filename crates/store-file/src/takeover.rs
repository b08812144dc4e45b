//! Becoming the owner: raise the epoch, load what is kept, and make sure that all of it is on disk.
//!
//! Everything up to the commit happens in one write transaction of the database, so two contenders cannot both
//! succeed, and an owner of an earlier epoch that wakes up finds itself superseded at its next commit or answer. It
//! happens in one turn at the disk too: a disk that failed under an earlier owner has been marked by then.

use std::fs::File;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::clock::Clock;
use fencehold_contract::{KeepFinished, StoreError};
use fencehold_core::Timestamp;
use fencehold_engine::{Engine, StoredState};
use rusqlite::Connection;

use super::boot_clock::{self, ClockContinuity};
use super::directory::{StoreDirectory, socket_name};
use super::disk_lock::DiskLock;
use super::load::{Trust, lift_floors, load};
use super::progress::{AcknowledgedProgress, Progress, ProgressNote};
use super::schema::{self, is_busy, sorry};
use super::sqlite::{LOG_PAGES_LEFT, SqlitePersistence, StartingPoint, from_sql, number, to_sql};
use super::{lease_rows, test_points};

/// What an owner has.
pub(super) struct Ownership {
    pub(super) epoch: u64,
    pub(super) engine: Engine,
    /// How far the store time of the engine is ahead of the clock.
    pub(super) ahead_ms: u64,
    pub(super) keep: SqlitePersistence,
    /// Tells others, by being locked, that this process lives.
    pub(super) lock: File,
}

/// How an attempt to take over came out.
pub(super) enum TakeoverResult {
    Became(Box<Ownership>),
    /// The owner of this epoch lives and has not been silent.
    OwnerLives(u64),
    /// Another process is in the middle of a write, or of a read that keeps the log from being copied back.
    Blocked(String),
    /// The store cannot be used.
    Unusable(StoreError),
}

/// Tries once. `silent` is the epoch of an owner that was asked and has not answered for too long; `keep_finished` is this
/// process's setting that no owner has got yet; `listening` gets the socket as soon as there is one, so that others can be made
/// to wait.
pub(super) fn attempt(
    place: &Arc<StoreDirectory>,
    clock: &dyn Clock,
    silent: Option<u64>,
    keep_finished: KeepFinished,
    listening: impl FnOnce(UnixListener),
    waits_for: &dyn Fn(String) -> bool,
) -> TakeoverResult {
    match try_attempt(place, clock, silent, keep_finished, listening, waits_for) {
        Ok(attempt) => attempt,
        Err(TakeoverError::Database(error)) if is_busy(&error) => TakeoverResult::Blocked(place.blocked_by()),
        Err(TakeoverError::Database(error)) => TakeoverResult::Unusable(sorry(place, &error)),
        Err(TakeoverError::Store(error)) => TakeoverResult::Unusable(error),
        Err(TakeoverError::File(error)) => TakeoverResult::Unusable(place.unavailable(&error)),
    }
}

enum TakeoverError {
    Database(rusqlite::Error),
    Store(StoreError),
    File(std::io::Error),
}

impl From<rusqlite::Error> for TakeoverError {
    fn from(error: rusqlite::Error) -> Self {
        TakeoverError::Database(error)
    }
}

impl From<StoreError> for TakeoverError {
    fn from(error: StoreError) -> Self {
        TakeoverError::Store(error)
    }
}

impl From<std::io::Error> for TakeoverError {
    fn from(error: std::io::Error) -> Self {
        TakeoverError::File(error)
    }
}

/// Whether all that the last owner acknowledged is there.
fn lost_nothing(progress: &Progress, noted: Option<AcknowledgedProgress>, epoch: u64) -> bool {
    let complete = noted.is_some_and(|noted| noted.shows_complete(epoch, progress.batch));
    // An earlier version keeps no count, and an owner that closed has synced everything.
    progress.epoch == epoch && (!progress.unsynced || complete)
}

fn try_attempt(
    place: &Arc<StoreDirectory>,
    clock: &dyn Clock,
    silent: Option<u64>,
    keep_finished: KeepFinished,
    listening: impl FnOnce(UnixListener),
    waits_for: &dyn Fn(String) -> bool,
) -> Result<TakeoverResult, TakeoverError> {
    let connection = match schema::open(place) {
        Ok(connection) => connection,
        Err(StoreError::Unavailable { .. })
            if place.trouble().is_none() && place.last_owner_pid().is_some() =>
        {
            return Ok(TakeoverResult::Blocked(place.blocked_by()));
        }
        Err(error) => return Err(error.into()),
    };
    let disk_lock = DiskLock::at(place)?;
    if !disk_lock.take() {
        return Ok(TakeoverResult::Blocked(place.blocked_by()));
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    schema::make(place, &connection)?;
    let files = place.files();
    let sql = "SELECT epoch, boot FROM meta";
    let (epoch, boot): (i64, String) = connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let epoch = from_sql(epoch);
    if epoch > 0 && place.is_locked(epoch) && silent != Some(epoch) {
        return Ok(TakeoverResult::OwnerLives(epoch));
    }
    let next = epoch + 1;
    let lock = match place.lock(next) {
        Ok(lock) => lock,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            return Ok(TakeoverResult::OwnerLives(next));
        }
        Err(error) => return Err(error.into()),
    };
    // What an owner-to-be of this very epoch left when it died before its commit.
    let socket = place.socket(next);
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)?;
    // A client that connects before this is asked who it is.
    place.set_mode(&socket_name(next))?;
    listener.set_nonblocking(true)?;
    listening(listener);

    let identity = clock.boot().unwrap_or_else(boot_clock::identity);
    let marked = place.is_marked();
    let progress = Progress::read(&connection)?;
    let noted = place.note_about(&progress.store).as_ref().and_then(ProgressNote::read);
    let rewound = noted.is_some_and(|noted| noted.shows_rewound(epoch, progress.batch));
    if rewound && !place.accept_rewound {
        return Err(place.rewound(&progress).into());
    }
    let nothing_lost = lost_nothing(&progress, noted, epoch);
    let (clock_note, follows) = boot_clock::NotedClock::followed(&boot, identity, clock.now());
    let trust = match (follows, marked || !nothing_lost) {
        (ClockContinuity::Unknown, _) => Trust::NewBoot,
        (ClockContinuity::Reboot, _) => Trust::Reboot,
        (ClockContinuity::SameBoot, true) => Trust::Lengthen,
        (ClockContinuity::SameBoot, false) => Trust::Exact,
    };
    let ahead_ms = clock_note.ahead_ms;
    let now = || {
        let now = clock.now();
        Timestamp { store_ms: now.store_ms.saturating_add(ahead_ms), ..now }
    };
    sync(place, &disk_lock, waits_for, || place.write_log_again())?;
    let pid = std::process::id();
    connection.execute(
        "UPDATE meta SET epoch = ?1, owner_pid = ?2, boot = ?3",
        rusqlite::params![to_sql(next), pid, clock_note.text()],
    )?;
    if let Some(ms) = keep_finished.named_ms() {
        lease_rows::put_keep_finished(&connection, ms)?;
    }
    let mut kept = load(&connection, now(), trust)?;
    if let Some(noted) = noted.filter(|_| rewound) {
        lift(&connection, now(), noted.longest_ttl_ms, &mut kept)?;
    }
    // Under a new name the note of the lost batches is no longer about this store.
    let begun = progress.begin(&connection, next, rewound)?;
    test_points::pass(place, "takeover");
    sync(place, &disk_lock, waits_for, || connection.execute_batch("COMMIT"))?;
    disk_lock.end();
    let may_stay = !marked && trust == Trust::Exact;
    let log_pages = first_log(place, &connection, &disk_lock, may_stay, waits_for)?;
    let mut note = place.note_about(&begun.store);
    let (batch, longest_ttl_ms) = (begun.batch, kept.longest_ttl_ms);
    let first = AcknowledgedProgress { epoch: next, acknowledged: batch, synced: batch, longest_ttl_ms };
    if note.as_mut().is_some_and(|note| note.write(first).is_err()) {
        note = None;
    }
    if let Err(error) = place.note_kept() {
        // The next owner tries again.
        tracing::warn!(%error, directory = %place.path().display(), "that a store is kept here could not be noted");
    }
    place.forget_before(next);
    let (oldest_seq, _) = lease_rows::first_and_last_seq(&connection)?;
    let mut engine = Engine::from_kept(now(), kept);
    engine.served_by = Some((pid, next));
    if place.files() != files {
        let why =
            format!("{}: its files were removed or replaced while it was opened", place.path().display());
        return Err(StoreError::Unavailable { message: why }.into());
    }
    let came =
        StartingPoint { epoch: next, batch, longest_ttl_ms, note, oldest_seq, log_pages, clock: clock_note };
    let keep = SqlitePersistence::new(connection, Arc::clone(place), disk_lock, files, came);
    Ok(TakeoverResult::Became(Box::new(Ownership { epoch: next, engine, ahead_ms, keep, lock })))
}

/// Does what makes the disk sync. A failure is marked before the turn ends, as an owner would: what the earlier owner
/// had written may be lost by it.
fn sync<T>(
    place: &StoreDirectory,
    disk_lock: &DiskLock,
    waits_for: &dyn Fn(String) -> bool,
    act: impl FnOnce() -> rusqlite::Result<T>,
) -> Result<T, TakeoverError> {
    let error = match act() {
        Ok(done) => return Ok(done),
        Err(error) if is_busy(&error) => return Err(error.into()),
        Err(error) => error,
    };
    while let Err(unnoted) = place.mark() {
        let path = place.path().display();
        if !waits_for(format!("{path}: {}; nor could that be noted ({unnoted})", place.why(&error))) {
            break;
        }
        pause();
    }
    disk_lock.end();
    Err(error.into())
}

/// A store that was rewound has forgotten tokens that it gave, and leases that others may believe in.
fn lift(
    connection: &Connection,
    now: Timestamp,
    noted_ttl_ms: u64,
    kept: &mut StoredState,
) -> rusqlite::Result<()> {
    if noted_ttl_ms > kept.longest_ttl_ms {
        // It was granted in the time that was lost: in which namespace is not known.
        kept.longest_ttl_ms = noted_ttl_ms;
        kept.namespaces.iter_mut().for_each(|known| known.longest_ttl_ms = noted_ttl_ms);
    }
    lift_floors(None, kept);
    for (namespace, floor) in &kept.floors {
        lease_rows::put_floor(connection, namespace, *floor)?;
    }
    lease_rows::put_longest_ttl(connection, kept.longest_ttl_ms)?;
    for known in &mut kept.namespaces {
        known.closed_until_ms = None;
        lease_rows::put_namespace(connection, known)?;
    }
    kept.closed_until_ms = kept.closed_until_ms.max(now.store_ms.saturating_add(kept.longest_ttl_ms));
    lease_rows::put_closed_until(connection, kept.closed_until_ms)
}

/// How many pages the log has that this owner begins with: those of a short one that may stay, or none.
fn first_log(
    place: &StoreDirectory,
    connection: &Connection,
    disk_lock: &DiskLock,
    may_stay: bool,
    waits_for: &dyn Fn(String) -> bool,
) -> Result<i64, TakeoverError> {
    let pages = place.log_pages();
    if may_stay && pages <= LOG_PAGES_LEFT {
        return Ok(pages);
    }
    copy_back_all(place, connection, disk_lock, waits_for)?;
    Ok(0)
}

/// Copies the whole log back before the first answer, so that it begins anew. The log is on the disk already: it was
/// written once more and synced. So one who reads (a backup) is not waited for; its pages are copied back later.
fn copy_back_all(
    place: &StoreDirectory,
    connection: &Connection,
    disk_lock: &DiskLock,
    waits_for: &dyn Fn(String) -> bool,
) -> Result<(), TakeoverError> {
    let blocked = format!("{} cannot be copied back: another process writes to it", place.path().display());
    // It begins anew then, and takes no room that it does not need.
    let copy = "PRAGMA wal_checkpoint(TRUNCATE)";
    let epoch = || number(connection, "SELECT epoch FROM meta", []);
    let own = epoch()?;
    loop {
        if disk_lock.take() {
            if epoch()? != own {
                let why = "another process took over while this one waited to".to_owned();
                return Err(StoreError::Unavailable { message: why }.into());
            }
            let copied = sync(place, disk_lock, waits_for, || {
                test_points::fail(place, "copy")?;
                number(connection, copy, [])
            });
            match copied {
                Ok(_) => {
                    // What it warned of has been heeded, and is on disk. In turn: a later mark is a later owner's.
                    place.unmark()?;
                    disk_lock.end();
                    return Ok(());
                }
                Err(TakeoverError::Database(error)) if is_busy(&error) => {}
                Err(error) => return Err(error),
            }
            disk_lock.end();
        }
        if !waits_for(blocked.clone()) {
            return Err(super::service::closed().into());
        }
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "another process needs real time to get on")]
pub(super) fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}
