//! The access book: a small SQLite file with the tokens that there are and the audit of what was done with force.
//!
//! It is shared between the command line, which makes and revokes tokens, and any number of running servers, which read
//! them and write the audit. It is a file of its own, because it must work the same whatever the store is, and because
//! those who may read leases need not be able to read this.

mod audit;
mod tokens;

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use thiserror::Error;

use super::secret::TokenId;
pub use tokens::{ApiToken, NewToken};

/// `FENA`, in the file's header: recognises our files before they are changed.
const APPLICATION_ID: u32 = 0x4645_4e41;
const SCHEMA_VERSION: u32 = 1;
/// How long one statement waits for another process's.
const BUSY_WAIT: Duration = Duration::from_secs(5);
const VERSION_1: &str = "
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    hash BLOB NOT NULL,
    name TEXT NOT NULL,
    namespace TEXT,
    scopes TEXT NOT NULL,
    created_wall_ms INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_wall_ms INTEGER,
    last_used_wall_ms INTEGER,
    revoked_wall_ms INTEGER
) STRICT;
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at_wall_ms INTEGER NOT NULL,
    who TEXT NOT NULL,
    came_from TEXT NOT NULL,
    namespace TEXT NOT NULL,
    act TEXT NOT NULL,
    target TEXT NOT NULL,
    reason TEXT,
    outcome TEXT NOT NULL
) STRICT;
";

/// Why the book could not be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenDbError {
    /// The file system or SQLite said no.
    #[error("the access file {path} cannot be used: {why}")]
    Unusable {
        /// Which file.
        path: String,
        /// What was said.
        why: String,
    },
    /// There is no such token.
    #[error("there is no token {0}")]
    NoSuchToken(TokenId),
    /// The id is another token's.
    #[error("the id {0} is another token's; make a new one of random bits")]
    IdTaken(TokenId),
}

/// The open book.
#[derive(Debug)]
pub struct TokenDb {
    connection: Connection,
    path: PathBuf,
    /// Device and inode: a file that was put in its place is another book.
    identity: (u64, u64),
}

impl TokenDb {
    /// Opens the book at this path, made if it is missing, for its user's eyes only.
    pub fn open(path: &Path) -> Result<TokenDb, TokenDbError> {
        let sorry = |why: &dyn std::fmt::Display| unusable(path, why);
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            // It may be the directory of a store, which is for its user alone too.
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
            made.map_err(|error| sorry(&error))?;
        }
        // Before SQLite sees it: a file that it makes would be for everybody to read.
        let made = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path);
        let identity = made.and_then(|file| file.metadata()).map_err(|error| sorry(&error))?;
        let connection = Connection::open(path).map_err(|error| sorry(&error))?;
        prepare(&connection).map_err(|why| sorry(&why))?;
        Ok(TokenDb { connection, path: path.to_owned(), identity: (identity.dev(), identity.ino()) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to this file.
    pub(crate) fn is_in_place(&self) -> io::Result<bool> {
        let found = fs::metadata(&self.path)?;
        Ok((found.dev(), found.ino()) == self.identity)
    }

    /// A number that changes whenever another connection has changed the book.
    pub(crate) fn version(&self) -> Result<i64, TokenDbError> {
        self.connection
            .query_row("PRAGMA data_version", [], |row| row.get(0))
            .map_err(|error| self.sorry(&error))
    }

    /// One transaction, during which no other process writes.
    fn change<T>(&mut self, act: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, TokenDbError> {
        let path = &self.path;
        let sorry = |error: rusqlite::Error| unusable(path, &error);
        let transaction = self
            .connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .map_err(sorry)?;
        let done = act(&transaction).map_err(sorry)?;
        transaction.commit().map_err(sorry)?;
        Ok(done)
    }

    fn sorry(&self, error: &rusqlite::Error) -> TokenDbError {
        unusable(&self.path, error)
    }
}

fn prepare(connection: &Connection) -> Result<(), Box<dyn std::error::Error>> {
    connection.busy_timeout(BUSY_WAIT)?;
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u32>(0));
    let (application, version) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    if version > SCHEMA_VERSION && application == APPLICATION_ID {
        let why = format!(
            "it was made by a newer Fencehold (its version is {version}, this one knows {SCHEMA_VERSION})"
        );
        return Err(why.into());
    }
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if application != APPLICATION_ID && (application != 0 || tables > 0) {
        return Err("it is another program's database; it was left untouched".into());
    }
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN IMMEDIATE")?;
    // Another process may have made it meanwhile.
    if number("PRAGMA user_version")? == 0 {
        connection.execute_batch(&format!(
            "{VERSION_1} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}"
        ))?;
    }
    Ok(connection.execute_batch("COMMIT")?)
}

pub(super) fn unusable(path: &Path, why: &dyn std::fmt::Display) -> TokenDbError {
    TokenDbError::Unusable { path: path.display().to_string(), why: why.to_string() }
}

fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use fencehold_contract::http::Scope;

    use super::super::secret::Bearer;
    use super::*;

    pub(super) fn new() -> NewToken {
        NewToken {
            name: "n".to_owned(),
            namespace: None,
            scopes: [Scope::JobWork].into_iter().collect(),
            created_by: "me".to_owned(),
            expires_wall_ms: Some(9),
        }
    }

    #[test]
    fn a_book_is_for_its_user_alone_and_keeps_no_secret() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("below/access.db");
        let bearer = Bearer::from_random(std::array::from_fn(|at| u8::try_from(at).unwrap() | 0x80));
        TokenDb::open(&path).unwrap().create(&bearer, &new(), "here", 1).unwrap();
        let token_db = TokenDb::open(&path).unwrap();
        let kept = token_db.tokens().unwrap();
        assert_eq!((kept.len(), kept[0].id, kept[0].expires_wall_ms), (1, bearer.id, Some(9)));
        assert!(kept[0].hash.is(&bearer.hash()));
        let directory = fs::metadata(place.path().join("below")).unwrap();
        assert_eq!(directory.permissions().mode() & 0o077, 0, "the directory is for all to read");
        for name in ["access.db", "access.db-wal", "access.db-shm"] {
            let file = path.with_file_name(name);
            let mode = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{name} is for all to read");
            let bytes = fs::read(&file).unwrap();
            let secret = [0x86, 0x87, 0x88, 0x89, 0x8a, 0x8b];
            assert!(!bytes.windows(6).any(|window| window == secret), "a secret is in {name}");
        }
    }

    #[test]
    fn what_is_not_a_book_is_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let foreign = place.path().join("foreign.db");
        Connection::open(&foreign)
            .unwrap()
            .execute_batch("CREATE TABLE theirs (x)")
            .unwrap();
        let before = fs::read(&foreign).unwrap();
        assert!(TokenDb::open(&foreign).unwrap_err().to_string().contains("another program's"));
        assert_eq!(fs::read(&foreign).unwrap(), before);
        let newer = place.path().join("newer.db");
        let made = TokenDb::open(&newer).unwrap();
        made.connection.execute_batch("PRAGMA user_version = 99").unwrap();
        assert!(TokenDb::open(&newer).unwrap_err().to_string().contains("newer Fencehold"));
        let text = place.path().join("text");
        fs::write(&text, "not a database, but long enough to be taken for one by its length").unwrap();
        assert!(TokenDb::open(&text).is_err());
    }
}
