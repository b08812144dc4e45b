//! The database: its tables, its version, and how it is opened.

use std::path::Path;
use std::time::Duration;

use fencehold_contract::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::directory::{StoreDirectory, unusable};

/// `FENC`, in the file's header: recognises our files before they are opened.
pub(super) const APPLICATION_ID: u32 = 0x4645_4e43;
/// The newest schema that this program knows.
pub(super) const SCHEMA_VERSION: u32 = 4;

/// How long one attempt waits for another process's transaction. A caller that must wait longer tries again, and can say
/// in between what it waits for.
pub(super) const BUSY_WAIT: Duration = Duration::from_millis(100);

/// Leases are found by their slot, which the engine keeps stable: neighbours in memory are neighbours on disk, and no
/// second index has to be kept. Renewals go to a narrow table of their own, so that a batch of them touches few pages.
/// A row of `terms` counts only for the token that it names.
const VERSION_1: &str = "
CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL,
    owner_pid INTEGER NOT NULL,
    boot TEXT NOT NULL,
    closed_until_ms INTEGER NOT NULL,
    longest_ttl_ms INTEGER NOT NULL
);
INSERT INTO meta VALUES (1, 0, 0, '', 0, 0);
CREATE TABLE floors (namespace TEXT PRIMARY KEY, floor INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE leases (
    slot INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    counter INTEGER NOT NULL,
    deadline_ms INTEGER NOT NULL,
    record BLOB NOT NULL
);
CREATE TABLE terms (slot INTEGER PRIMARY KEY, token INTEGER NOT NULL, deadline_ms INTEGER NOT NULL);
CREATE TABLE events (seq INTEGER PRIMARY KEY, event BLOB NOT NULL);
CREATE TABLE aside (id INTEGER PRIMARY KEY, problem TEXT NOT NULL, namespace, key, counter, deadline_ms, record);
";

/// Namespaces, each with the longest ttl that was granted in it. Where that was noted for the whole store alone, it may have been in
/// any of them.
const VERSION_4: &str = "
CREATE TABLE namespaces (
    namespace TEXT PRIMARY KEY,
    longest_ttl_ms INTEGER NOT NULL,
    closed_until_ms INTEGER
) WITHOUT ROWID;
INSERT INTO namespaces SELECT n.namespace, m.longest_ttl_ms, NULL FROM meta m JOIN (
    SELECT namespace FROM floors UNION SELECT namespace FROM leases UNION SELECT namespace FROM queues
) n WHERE m.longest_ttl_ms > 0;
CREATE TABLE limits (namespace TEXT PRIMARY KEY, limits TEXT NOT NULL) WITHOUT ROWID;
";

/// Opens the database. It is made only if a store may be created.
pub(super) fn open(place: &StoreDirectory) -> Result<Connection, StoreError> {
    let creates = if place.create { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
    let flags = creates
        | OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_PRIVATE_CACHE;
    let path = place.database();
    let fail = |error: rusqlite::Error| sorry(place, &error);
    let connection = match Connection::open_with_flags(&path, flags) {
        Err(_) if !place.create && !path.exists() => {
            place.refuse_lost()?;
            return Err(place.no_store());
        }
        opened => opened.map_err(fail)?,
    };
    // What SQLite makes beside the database from here on has the mode of the database.
    place.set_modes();
    connection.busy_timeout(BUSY_WAIT).map_err(fail)?;
    connection.set_prepared_statement_cache_capacity(32);
    // SQLite would copy the log back as it closes, out of turn, and say nothing of a failure.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(fail)?;
    let wal: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .map_err(fail)?;
    if wal != "wal" {
        return Err(unusable(&path, format!("its journal mode is {wal}, and cannot be changed to wal")));
    }
    // Checkpoints are made by hand, between batches. The cache is small: the working state is in the engine.
    connection
        .execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -4096;")
        .map_err(fail)?;
    Ok(connection)
}

/// Makes the tables, inside the transaction under way, unless they are there.
pub(super) fn make(place: &StoreDirectory, connection: &Connection) -> Result<(), StoreError> {
    let fail = |error: rusqlite::Error| sorry(place, &error);
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u32>(0)).map_err(fail);
    let made = match number("PRAGMA user_version")? {
        0 if number("SELECT count(*) FROM sqlite_schema")? > 0 => {
            Err(unusable(&place.database(), "it is a foreign database; it was left untouched"))
        }
        0 if place.was_kept().map_err(|error| place.unavailable(&error))? => Err(place.lost()),
        0 if !place.create => Err(place.no_store()),
        SCHEMA_VERSION => Ok(()),
        version if version > SCHEMA_VERSION => Err(newer(&place.database(), version)),
        version => {
            if version == 0
                && let Some(name) = fencehold_contract::memory_file_system(place.path())
            {
                let directory = place.path().display();
                tracing::warn!(%directory, "this store is created on {name}: a reboot takes all of it, and tokens begin anew");
            }
            for step in VERSIONS.iter().skip(version as usize) {
                connection.execute_batch(step).map_err(fail)?;
            }
            let marks =
                format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};");
            connection.execute_batch(&marks).map_err(fail)
        }
    };
    made.and_then(|()| super::progress::make(connection).map_err(fail))?;
    super::old_events::make(connection).map_err(fail)
}

/// What makes each version out of the one before it.
pub(super) const VERSIONS: [&str; SCHEMA_VERSION as usize] =
    [VERSION_1, super::job::VERSION_2, super::job::VERSION_3, VERSION_4];

/// A schema that this program does not know yet.
pub(super) fn newer(database: &Path, version: u32) -> StoreError {
    let why = format!(
        "its schema is version {version}, and this program knows up to {SCHEMA_VERSION}: use a newer one"
    );
    unusable(database, why)
}

/// Whether an error means that another process is in the middle of something, so that trying again may work. SQLite's
/// 'locking protocol' error is one: it has raced with others for the log and lost too often in a row.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, FileLockingProtocolFailed};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked | FileLockingProtocolFailed))
}

/// Whether what is there, if anything is, is a file that this user may read and write.
fn may_be_opened(path: &Path) -> bool {
    use rustix::fs::Access;
    match std::fs::metadata(path) {
        Ok(metadata) => {
            metadata.is_file() && rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).is_ok()
        }
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Whether a row is missing or holds what no program wrote: damage that SQLite itself does not see, and that trying
/// again does not help.
fn is_amiss(error: &rusqlite::Error) -> bool {
    use rusqlite::Error;
    matches!(
        error,
        Error::InvalidColumnType(..)
            | Error::FromSqlConversionFailure(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::QueryReturnedNoRows
    )
}

/// What an error of the database means for a user of the store.
pub(super) fn sorry(place: &StoreDirectory, error: &rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode;
    let path = place.database();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => unusable(&path, "it is not a database; it was left untouched"),
        code if code == Some(ErrorCode::DatabaseCorrupt) || is_amiss(error) => unusable(
            &path,
            format!(
                "it is damaged ({error}); `fencehold store check` says where, and a backup can be restored"
            ),
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            unusable(&path, format!("it cannot be written: {}", place.why(error)))
        }
        // Where nothing forbids it, something ran out, and may come back: descriptors, for one.
        Some(ErrorCode::CannotOpen) if !may_be_opened(&path) => {
            unusable(&path, format!("this user may not read and write it: {error}"))
        }
        _ => StoreError::Unavailable { message: format!("{}: {}", path.display(), place.why(error)) },
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn error(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn what_may_come_back_is_not_called_unusable() {
        let directory = tempfile::tempdir().unwrap();
        let place = StoreDirectory::open(directory.path(), true, None).unwrap();
        let cannot_open = error(ffi::SQLITE_CANTOPEN);
        assert!(matches!(sorry(&place, &cannot_open), StoreError::Unavailable { .. }), "not made yet");
        std::fs::write(place.database(), "").unwrap();
        assert!(matches!(sorry(&place, &cannot_open), StoreError::Unavailable { .. }), "no descriptor left");
        std::fs::remove_file(place.database()).unwrap();
        std::fs::create_dir(place.database()).unwrap();
        assert!(matches!(sorry(&place, &cannot_open), StoreError::Unusable { .. }), "not a file");
        assert!(is_busy(&error(ffi::SQLITE_PROTOCOL)));
    }

    #[test]
    fn where_a_store_was_kept_none_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let place = StoreDirectory::open(directory.path(), true, None).unwrap();
        let connection = || rusqlite::Connection::open_in_memory().unwrap();
        assert!(make(&place, &connection()).is_ok());
        // As if the database had gone between the look and the turn.
        place.note_kept().unwrap();
        assert!(matches!(make(&place, &connection()), Err(StoreError::Unusable { .. })));
    }

    #[test]
    fn what_no_trying_again_mends_is_called_unusable() {
        let directory = tempfile::tempdir().unwrap();
        let place = StoreDirectory::open(directory.path(), true, None).unwrap();
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        let read = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u8>(0)).unwrap_err();
        for sql in ["SELECT NULL", "SELECT 'one'", "SELECT 256", "SELECT 1 WHERE 0"] {
            let error = sorry(&place, &read(sql));
            assert!(matches!(error, StoreError::Unusable { .. }), "{sql}: {error}");
        }
    }
}
