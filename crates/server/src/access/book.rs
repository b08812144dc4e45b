//! The access book: a small SQLite file with the tokens that there are and the audit of what was done with force.
//!
//! It is shared between the command line, which makes and revokes tokens, and any number of running servers, which read
//! them and write the audit. It is a file of its own, because it must work the same whatever the store is, and because
//! whoever may read leases need not be able to read this.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencehold_core::Namespace;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use thiserror::Error;

use super::scope::Scopes;
use super::secret::{Bearer, SecretHash, TokenId};
use crate::audit::{AuditEntry, AuditFilter, AuditRow, Outcome};

/// `FENA`, in the file's header: recognises our files before they are changed.
const APPLICATION_ID: u32 = 0x4645_4e41;
const SCHEMA_VERSION: u32 = 1;
/// How long one statement waits for another process's.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// Refused attempts are many when somebody tries doors; only the latest are kept. What was done is kept for ever.
const DENIED_KEPT: i64 = if cfg!(test) { 50 } else { 10_000 };

/// How many entries pass between two times that older denials are forgotten.
const TRIM_EVERY: i64 = 16;

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
pub enum BookError {
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
}

/// A token as it is kept: everything but its secret.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ApiToken {
    /// Its public name.
    pub id: TokenId,
    /// What people call it.
    pub name: String,
    /// Whose world it opens; `None`: every one.
    pub namespace: Option<Namespace>,
    /// What it may be used for.
    #[serde(serialize_with = "as_text")]
    pub scopes: Scopes,
    /// When it was made, in wall time.
    pub created_wall_ms: u64,
    /// By whom.
    pub created_by: String,
    /// When it ends, in wall time.
    pub expires_wall_ms: Option<u64>,
    /// When it was last used, in wall time, to within some seconds.
    pub last_used_wall_ms: Option<u64>,
    /// When it was revoked, in wall time.
    pub revoked_wall_ms: Option<u64>,
    #[serde(skip)]
    pub(crate) hash: SecretHash,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "that is how serde calls it")]
fn as_text<S: serde::Serializer>(scopes: &Scopes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(scopes)
}

/// What a new token is to be.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// What people call it.
    pub name: String,
    /// Whose world it opens; `None`: every one.
    pub namespace: Option<Namespace>,
    /// What it may be used for.
    pub scopes: Scopes,
    /// By whom.
    pub created_by: String,
    /// When it ends, in wall time.
    pub expires_wall_ms: Option<u64>,
}

/// The open book.
#[derive(Debug)]
pub struct Book {
    connection: Connection,
    path: PathBuf,
    /// Device and inode: a file that was put in its place is another book.
    identity: (u64, u64),
}

impl Book {
    /// Opens the book at this path, made if it is missing, for its user's eyes only.
    pub fn open(path: &Path) -> Result<Book, BookError> {
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
        Ok(Book { connection, path: path.to_owned(), identity: (identity.dev(), identity.ino()) })
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
    pub(crate) fn version(&self) -> Result<i64, BookError> {
        self.connection
            .query_row("PRAGMA data_version", [], |row| row.get(0))
            .map_err(|error| self.sorry(&error))
    }

    /// Enters a new token, and the fact that it was made.
    pub fn create(
        &mut self,
        bearer: &Bearer,
        new: &NewToken,
        from: &str,
        now_wall_ms: u64,
    ) -> Result<(), BookError> {
        let entry = AuditEntry {
            who: new.created_by.clone(),
            from: from.to_owned(),
            namespace: shown(new.namespace.as_ref()).to_owned(),
            act: "token create",
            target: format!("{} {} ({})", bearer.id, new.name, new.scopes),
            reason: None,
        };
        self.change(|connection| {
            connection.execute(
                "INSERT INTO tokens (id, hash, name, namespace, scopes, created_wall_ms, created_by, expires_wall_ms)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                params![
                    bearer.id.to_string(),
                    bearer.hash().as_bytes(),
                    new.name,
                    new.namespace.as_ref().map(Namespace::as_str),
                    new.scopes.to_string(),
                    to_sql(now_wall_ms),
                    new.created_by,
                    new.expires_wall_ms.map(to_sql),
                ],
            )?;
            append(connection, &entry, Outcome::Done, now_wall_ms).map(drop)
        })
    }

    /// Ends a token, and notes who did. False: it was revoked before.
    pub fn revoke(
        &mut self,
        id: TokenId,
        by: &str,
        from: &str,
        reason: Option<&str>,
        now_wall_ms: u64,
    ) -> Result<bool, BookError> {
        let Some(token) = self.token(id)? else { return Err(BookError::NoSuchToken(id)) };
        let entry = AuditEntry {
            who: by.to_owned(),
            from: from.to_owned(),
            namespace: shown(token.namespace.as_ref()).to_owned(),
            act: "token revoke",
            target: format!("{id} {}", token.name),
            reason: reason.map(ToOwned::to_owned),
        };
        self.change(|connection| {
            let ended = connection.execute(
                "UPDATE tokens SET revoked_wall_ms = ? WHERE id = ? AND revoked_wall_ms IS NULL",
                params![to_sql(now_wall_ms), id.to_string()],
            )?;
            if ended > 0 {
                append(connection, &entry, Outcome::Done, now_wall_ms)?;
            }
            Ok(ended > 0)
        })
    }

    /// Every token that there is or was, oldest first.
    pub fn tokens(&self) -> Result<Vec<ApiToken>, BookError> {
        let read = || {
            let mut statement = self
                .connection
                .prepare_cached("SELECT * FROM tokens ORDER BY created_wall_ms, id")?;
            statement.query_map([], read_token)?.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error| self.sorry(&error))
    }

    fn token(&self, id: TokenId) -> Result<Option<ApiToken>, BookError> {
        self.connection
            .query_row("SELECT * FROM tokens WHERE id = ?", [id.to_string()], read_token)
            .optional()
            .map_err(|error| self.sorry(&error))
    }

    /// Notes when tokens were last used.
    pub(crate) fn note_uses(&mut self, uses: &[(TokenId, u64)]) -> Result<(), BookError> {
        self.change(|connection| {
            let mut statement = connection.prepare_cached(
                "UPDATE tokens SET last_used_wall_ms = max(coalesce(last_used_wall_ms, 0), ?) WHERE id = ?",
            )?;
            uses.iter()
                .try_for_each(|(id, at)| statement.execute(params![to_sql(*at), id.to_string()]).map(drop))
        })
    }

    /// Enters what somebody is about to do, and gives the number by which [`Book::settle`] finds it again.
    pub fn enter(
        &mut self,
        entry: &AuditEntry,
        outcome: Outcome,
        now_wall_ms: u64,
    ) -> Result<i64, BookError> {
        self.change(|connection| {
            let seq = append(connection, entry, outcome, now_wall_ms)?;
            if outcome == Outcome::Denied && seq % TRIM_EVERY == 0 {
                connection.execute(
                    "DELETE FROM audit WHERE outcome = 'denied' AND seq <= (SELECT seq FROM audit WHERE outcome = 'denied'
                     ORDER BY seq DESC LIMIT 1 OFFSET ?)",
                    [DENIED_KEPT],
                )?;
            }
            Ok(seq)
        })
    }

    /// Notes what came of it.
    pub fn settle(&mut self, seq: i64, outcome: Outcome) -> Result<(), BookError> {
        self.change(|connection| {
            connection
                .execute("UPDATE audit SET outcome = ? WHERE seq = ?", params![outcome.name(), seq])
                .map(drop)
        })
    }

    /// The audit, oldest first.
    pub fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditRow>, BookError> {
        let read = || {
            let mut statement = self.connection.prepare_cached(
                "SELECT * FROM (SELECT seq, at_wall_ms, who, came_from, namespace, act, target, reason, outcome FROM audit
                 WHERE seq > ?1 AND at_wall_ms >= ?2 AND (?3 IS NULL OR namespace = ?3) ORDER BY seq DESC LIMIT ?4) ORDER BY seq",
            )?;
            let rows = statement.query_map(
                params![
                    to_sql(filter.after.unwrap_or(0)),
                    to_sql(filter.since_wall_ms.unwrap_or(0)),
                    filter.namespace.as_ref().map(Namespace::as_str),
                    to_sql(filter.limit.unwrap_or(u64::MAX)),
                ],
                |row| {
                    Ok(AuditRow {
                        seq: from_sql(row.get(0)?),
                        at_wall_ms: from_sql(row.get(1)?),
                        who: row.get(2)?,
                        from: row.get(3)?,
                        namespace: row.get(4)?,
                        act: row.get(5)?,
                        target: row.get(6)?,
                        reason: row.get(7)?,
                        outcome: row.get(8)?,
                    })
                },
            )?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error: rusqlite::Error| self.sorry(&error))
    }

    /// One transaction, in which nobody else writes.
    fn change<T>(&mut self, act: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, BookError> {
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

    fn sorry(&self, error: &rusqlite::Error) -> BookError {
        unusable(&self.path, error)
    }
}

fn prepare(connection: &Connection) -> Result<(), String> {
    let text = |error: rusqlite::Error| error.to_string();
    connection.busy_timeout(BUSY_WAIT).map_err(text)?;
    let number = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, u32>(0));
    let (application, version) =
        (number("application_id").map_err(text)?, number("user_version").map_err(text)?);
    if version > SCHEMA_VERSION && application == APPLICATION_ID {
        return Err(format!(
            "it was made by a newer Fencehold (its version is {version}, this one knows {SCHEMA_VERSION})"
        ));
    }
    let tables: u32 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(text)?;
    if application != APPLICATION_ID && (application != 0 || tables > 0) {
        return Err("it is another program's database; it was left untouched".to_owned());
    }
    connection
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN IMMEDIATE")
        .map_err(text)?;
    // Another process may have made it meanwhile.
    let made = match number("user_version") {
        Ok(0) => connection.execute_batch(&format!(
            "{VERSION_1} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT"
        )),
        Ok(_) => connection.execute_batch("COMMIT"),
        Err(error) => Err(error),
    };
    made.map_err(text)
}

fn append(
    connection: &Connection,
    entry: &AuditEntry,
    outcome: Outcome,
    now_wall_ms: u64,
) -> rusqlite::Result<i64> {
    connection.execute(
        "INSERT INTO audit (at_wall_ms, who, came_from, namespace, act, target, reason, outcome) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            to_sql(now_wall_ms),
            entry.who,
            entry.from,
            entry.namespace,
            entry.act,
            entry.target,
            entry.reason,
            outcome.name()
        ],
    )?;
    Ok(connection.last_insert_rowid())
}

fn read_token(row: &Row<'_>) -> rusqlite::Result<ApiToken> {
    let text = |name: &str| row.get::<_, String>(name);
    let time = |name: &str| row.get::<_, Option<i64>>(name).map(|time| time.map(from_sql));
    let bad = |problem: String| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, problem.into())
    };
    Ok(ApiToken {
        id: TokenId::parse(&text("id")?).map_err(|error| bad(error.to_string()))?,
        name: text("name")?,
        namespace: row
            .get::<_, Option<String>>("namespace")?
            .map(Namespace::new)
            .transpose()
            .map_err(|error| bad(error.to_string()))?,
        scopes: text("scopes")?.parse().map_err(bad)?,
        created_wall_ms: time("created_wall_ms")?.unwrap_or(0),
        created_by: text("created_by")?,
        expires_wall_ms: time("expires_wall_ms")?,
        last_used_wall_ms: time("last_used_wall_ms")?,
        revoked_wall_ms: time("revoked_wall_ms")?,
        hash: SecretHash::from_bytes(row.get("hash")?),
    })
}

/// A namespace, or all of them, for people.
pub(crate) fn shown(namespace: Option<&Namespace>) -> &str {
    namespace.map_or("*", Namespace::as_str)
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> BookError {
    BookError::Unusable { path: path.display().to_string(), why: why.to_string() }
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

    use fencehold_api::Scope;

    use super::*;

    fn new() -> NewToken {
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
        Book::open(&path).unwrap().create(&bearer, &new(), "here", 1).unwrap();
        let book = Book::open(&path).unwrap();
        let kept = book.tokens().unwrap();
        assert_eq!((kept.len(), kept[0].id, kept[0].expires_wall_ms), (1, bearer.id, Some(9)));
        assert!(kept[0].hash.is(&bearer.hash()));
        let directory = fs::metadata(place.path().join("below")).unwrap();
        assert_eq!(directory.permissions().mode() & 0o077, 0, "the directory is for all to read");
        for name in ["access.db", "access.db-wal", "access.db-shm"] {
            let file = path.with_file_name(name);
            assert_eq!(
                fs::metadata(&file).unwrap().permissions().mode() & 0o077,
                0,
                "{name} is for all to read"
            );
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
        assert!(Book::open(&foreign).unwrap_err().to_string().contains("another program's"));
        assert_eq!(fs::read(&foreign).unwrap(), before);
        let newer = place.path().join("newer.db");
        Book::open(&newer)
            .unwrap()
            .connection
            .execute_batch("PRAGMA user_version = 99")
            .unwrap();
        assert!(Book::open(&newer).unwrap_err().to_string().contains("newer Fencehold"));
        let text = place.path().join("text");
        fs::write(&text, "not a database, but long enough to be taken for one by its length").unwrap();
        assert!(Book::open(&text).is_err());
    }

    #[test]
    fn a_token_is_revoked_once_and_only_the_latest_denials_are_kept() {
        let place = tempfile::tempdir().unwrap();
        let mut book = Book::open(&place.path().join("access.db")).unwrap();
        let bearer = Bearer::from_random([5; 38]);
        book.create(&bearer, &new(), "here", 1).unwrap();
        assert!(book.revoke(bearer.id, "me", "here", None, 2).unwrap());
        assert!(!book.revoke(bearer.id, "me", "here", None, 3).unwrap());
        assert_eq!(book.tokens().unwrap()[0].revoked_wall_ms, Some(2), "the first time stands");
        let entry = |act| AuditEntry {
            who: "w".to_owned(),
            from: "f".to_owned(),
            namespace: "n".to_owned(),
            act,
            target: String::new(),
            reason: None,
        };
        book.connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
        for _ in 0..DENIED_KEPT + 50 {
            book.enter(&entry("denied"), Outcome::Denied, 4).unwrap();
        }
        let all = book.audit(&AuditFilter::default()).unwrap();
        let denied = i64::try_from(all.iter().filter(|row| row.outcome == "denied").count()).unwrap();
        assert!((DENIED_KEPT..DENIED_KEPT + TRIM_EVERY).contains(&denied), "{denied}");
        assert_eq!(all[0].act, "token create", "what was done is kept for ever");
    }
}
