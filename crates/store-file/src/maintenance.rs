//! What an operator does with a directory beside serving it: copy it, put a copy back, look for damage.

use std::collections::HashMap;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fencehold_contract::{FileUrl, StoreError};
use fencehold_core::limits::{HISTORY_MAX, TOKEN_MAX};
use rusqlite::{Connection, OpenFlags};

use super::atomic_file::AtomicFile;
use super::directory::{StoreDirectory, unusable};
use super::lease_rows;
use super::schema::{SCHEMA_VERSION, sorry};
use super::sqlite::{number, rows};

/// Copies a directory's database into one file, as it is at one moment, while others go on using it. The file must
/// not exist.
pub fn backup(store: impl Into<FileUrl>, to: &Path) -> Result<(), StoreError> {
    let store = store.into();
    let place = StoreDirectory::open(&store.directory, false, store.group.as_deref())?;
    if to.exists() {
        return Err(unusable(to, "it exists already; a backup goes into a new file"));
    }
    let fail = |error: rusqlite::Error| sorry(&place, &error);
    let connection = open_readable(&place.database()).map_err(fail)?;
    let version: u32 = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(fail)?;
    if version == 0 {
        return Err(place.no_store());
    }
    // SQLite takes an empty file, and would make one that others may read: payloads are in it.
    let part = AtomicFile::of(to).map_err(|error| unusable(to, error))?;
    let into = part.path().to_str().ok_or_else(|| unusable(to, "its name is not UTF-8"))?;
    connection.execute("VACUUM INTO ?1", [into]).map_err(fail)?;
    part.finish().map_err(|error| unusable(to, error))
}

/// Puts a backup into a directory that holds no database yet. Its counters are those of the day of the backup: the
/// store must be advanced before it is used.
pub fn restore(from: &Path, store: impl Into<FileUrl>) -> Result<(), StoreError> {
    let store = store.into();
    let report = check(from)?;
    if !report.problems.is_empty() {
        return Err(unusable(from, format!("it is damaged: {}", report.problems.join("; "))));
    }
    let place = StoreDirectory::open(&store.directory, true, store.group.as_deref())?;
    let target = place.database();
    let fail = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => unusable(
            &target,
            "it exists already, and was left untouched; restore into an empty directory, then put that in its place",
        ),
        _ => unusable(&target, error),
    };
    // From here on no other process restores into it.
    let mut part = AtomicFile::of(&target).map_err(fail)?;
    place.refuse_served()?;
    place.remove_lost().map_err(fail)?;
    if target.exists() {
        // What is beside it belongs to it: after a kill, the log has what was acknowledged last.
        return Err(fail(io::ErrorKind::AlreadyExists.into()));
    }
    for beside in ["-wal", "-shm", "-journal"] {
        let mut left = target.clone().into_os_string();
        left.push(beside);
        if Path::new(&left).exists() {
            // It would be taken for part of what is restored.
            let why = "the database that it belongs to is gone: put that back, or move this file to a safe place first";
            return Err(unusable(Path::new(&left), why));
        }
    }
    File::open(from)
        .and_then(|mut whole| io::copy(&mut whole, &mut part.file))
        .map_err(fail)?;
    // What was acknowledged from the store before it says nothing about this one.
    Connection::open(part.path())
        .and_then(|connection| super::progress::rename(&connection))
        .map_err(|error| unusable(&target, error))?;
    part.file
        .set_permissions(Permissions::from_mode(place.mode()))
        .and_then(|()| part.finish())
        .map_err(fail)
}

/// What a look at a database found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Its schema's version.
    pub schema: u32,
    /// The epoch of its last owner.
    pub epoch: u64,
    /// How many keys it keeps.
    pub keys: u64,
    /// How many of them are held on record.
    pub held: u64,
    /// How many jobs it keeps that have not come to their end.
    pub jobs: u64,
    /// How many rows were set aside earlier because they could not be read.
    pub set_aside: u64,
    /// What is wrong with it; empty: nothing.
    pub problems: Vec<String>,
}

/// Looks for damage in a directory's database, or in a backup, without changing anything.
pub fn check(store: impl Into<FileUrl>) -> Result<CheckReport, StoreError> {
    let store = store.into();
    let path = store.directory.as_path();
    if path.is_dir() {
        let place = StoreDirectory::open(path, false, store.group.as_deref())?;
        return look(&place.database());
    }
    if !path.exists() {
        return Err(unusable(path, "there is no such file or directory"));
    }
    super::foreign_files::refuse_foreign(path)?;
    look(path)
}

fn look(path: &Path) -> Result<CheckReport, StoreError> {
    let connection = open_readable(path).map_err(|error| unusable(path, error))?;
    let mut report = CheckReport::default();
    if let Err(error) = examine(&connection, &mut report) {
        report.problems.push(error.to_string());
    }
    Ok(report)
}

fn examine(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    // One read transaction: everything is seen at one moment.
    connection.execute_batch("BEGIN")?;
    let number = |sql: &str| number(connection, sql, []);
    let lines: Vec<String> = rows(connection, "PRAGMA integrity_check(20)", [], |row| row.get(0))?;
    report.problems.extend(lines.into_iter().filter(|line| line != "ok"));
    report.schema = u32::try_from(number("PRAGMA user_version")?).unwrap_or(u32::MAX);
    // An older one is brought up to date when it is opened.
    if report.schema == 0 || report.schema > SCHEMA_VERSION {
        report
            .problems
            .push(format!("schema version {} is not one of 1 to {SCHEMA_VERSION}", report.schema));
        return Ok(());
    }
    report.epoch = number("SELECT epoch FROM meta")?;
    report.set_aside = lease_rows::count_aside(connection)?;
    let mut seen = HashMap::new();
    lease_rows::each_row(connection, |slot, _, _, lease| {
        report.keys += 1;
        let lease = match lease {
            Ok(lease) => lease,
            Err(problem) => return report.problems.push(format!("slot {slot}: {problem}")),
        };
        report.held += u64::from(lease.record.hold.is_some());
        let name = format!("{}: {}", lease.namespace, lease.key);
        if lease.record.counter.get() > TOKEN_MAX {
            report.problems.push(format!("{name}: the counter is over its cap"));
        }
        let endings = lease.record.endings();
        if endings.len() > HISTORY_MAX || !endings.is_sorted_by(|a, b| a.token < b.token) {
            report.problems.push(format!("{name}: its history is out of order"));
        }
        if endings.last().is_some_and(|last| last.token > lease.record.counter) {
            report.problems.push(format!("{name}: an ending is newer than its counter"));
        }
        if let Some(other) = seen.insert((lease.namespace, lease.key), slot) {
            report
                .problems
                .push(format!("{name}: stands in slot {other} and in slot {slot}"));
        }
    })?;
    if report.schema >= 2 {
        super::job::examine(connection, report)?;
    }
    connection.execute_batch("COMMIT")
}

/// Opens for reading. Not 'read-only': a database whose last owner was killed may need its log's index rebuilt, which
/// changes nothing of what it says.
fn open_readable(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.execute_batch("PRAGMA wal_autocheckpoint = 0")?;
    Ok(connection)
}
