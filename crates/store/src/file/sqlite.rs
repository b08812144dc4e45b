//! Keeping batches in SQLite: one transaction each, in which the owner first makes sure that it still is the owner.

use std::sync::Arc;

use fencehold_core::limits::EVENTS_KEPT;
use rusqlite::{Connection, params};

use super::codec;
use super::gate;
use super::place::Place;
use super::schema::is_busy;
use crate::engine::{Change, Changes, Keep, KeepError};

/// How many pages the log may have before it is copied back between batches, and before it is copied back although
/// others wait.
const LOG_PAGES_IDLE: i64 = 1_000;
const LOG_PAGES_BUSY: i64 = 8_000;

/// The owner's hold on the database. It is itself a leaseholder with a fence: the epoch.
#[derive(Debug)]
pub(super) struct SqliteKeep {
    connection: Connection,
    place: Arc<Place>,
    epoch: i64,
    /// Whether commits wait for the disk at the moment.
    syncs: bool,
    /// How many pages were written to the log since it was last copied back, roughly.
    log_pages: i64,
    /// Events up to here have been forgotten.
    forgotten_seq: u64,
    buffer: Vec<u8>,
}

impl SqliteKeep {
    pub(super) fn new(connection: Connection, place: Arc<Place>, epoch: u64, oldest_seq: u64) -> Self {
        SqliteKeep {
            connection,
            place,
            epoch: to_sql(epoch),
            syncs: true,
            log_pages: 0,
            forgotten_seq: oldest_seq.saturating_sub(1),
            buffer: Vec::new(),
        }
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

    /// Whether this process still owns the store. `None`: somebody else does.
    fn still_owner(connection: &Connection, epoch: i64) -> rusqlite::Result<Option<()>> {
        let mut statement = connection.prepare_cached("SELECT epoch FROM meta WHERE id = 1")?;
        let current: i64 = statement.query_row([], |row| row.get(0))?;
        Ok((current == epoch).then_some(()))
    }

    fn try_keep(&mut self, changes: &Changes) -> rusqlite::Result<Option<()>> {
        self.set_syncs(changes.durable)?;
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let written = match Self::still_owner(&self.connection, self.epoch) {
            Ok(Some(())) => self.write(changes),
            Ok(None) => {
                let _ = self.connection.execute_batch("ROLLBACK");
                return Ok(None);
            }
            Err(error) => Err(error),
        };
        gate::pass(&self.place, "commit");
        let written = written.and_then(|()| gate::fail(&self.place, "commit"));
        let committed =
            written.and_then(|()| self.connection.prepare_cached("COMMIT")?.execute([]).map(drop));
        if let Err(error) = committed {
            let _ = self.connection.execute_batch("ROLLBACK");
            return Err(error);
        }
        let rows = i64::try_from(changes.rows.len() + changes.events.len()).unwrap_or(i64::MAX);
        self.log_pages = self.log_pages.saturating_add(rows.min(2 + rows / 4));
        Ok(Some(()))
    }

    fn write(&mut self, changes: &Changes) -> rusqlite::Result<()> {
        let Self { connection, buffer, .. } = self;
        for change in &changes.rows {
            match change {
                Change::Put { slot, namespace, key, record, deadline_ms } => {
                    codec::encode(record, buffer);
                    let values = params![
                        slot,
                        namespace.as_str(),
                        key.as_str(),
                        to_sql(record.counter.get()),
                        to_sql(*deadline_ms),
                        &buffer[..]
                    ];
                    connection
                        .prepare_cached("INSERT OR REPLACE INTO leases VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                        .execute(values)?;
                }
                Change::Term { slot, token, deadline_ms } => {
                    connection
                        .prepare_cached("INSERT OR REPLACE INTO terms VALUES (?1, ?2, ?3)")?
                        .execute(params![slot, to_sql(token.get()), to_sql(*deadline_ms)])?;
                }
                Change::Drop { slot } => {
                    connection
                        .prepare_cached("DELETE FROM leases WHERE slot = ?1")?
                        .execute([slot])?;
                    connection
                        .prepare_cached("DELETE FROM terms WHERE slot = ?1")?
                        .execute([slot])?;
                }
                Change::Floor { namespace, floor } => {
                    connection
                        .prepare_cached("INSERT OR REPLACE INTO floors VALUES (?1, ?2)")?
                        .execute(params![namespace.as_str(), to_sql(floor.get())])?;
                }
                Change::LongestTtl { ttl_ms } => {
                    connection
                        .prepare_cached("UPDATE meta SET longest_ttl_ms = ?1 WHERE id = 1")?
                        .execute([to_sql(*ttl_ms)])?;
                }
                Change::ClosedUntil { until_ms } => {
                    connection
                        .prepare_cached("UPDATE meta SET closed_until_ms = ?1 WHERE id = 1")?
                        .execute([to_sql(*until_ms)])?;
                }
            }
        }
        self.write_events(changes)
    }

    fn write_events(&mut self, changes: &Changes) -> rusqlite::Result<()> {
        let Some(last) = changes.events.last() else { return Ok(()) };
        let mut insert = self.connection.prepare_cached("INSERT INTO events VALUES (?1, ?2)")?;
        for event in &changes.events {
            self.buffer.clear();
            if let Ok(bytes) = postcard::to_extend(event, std::mem::take(&mut self.buffer)) {
                self.buffer = bytes;
            }
            insert.execute(params![to_sql(event.seq), &self.buffer[..]])?;
        }
        // Forgotten by the hundred: deleting one for each one written would touch a page more in every batch.
        let keep_from = last.seq.saturating_sub(EVENTS_KEPT as u64);
        if keep_from > self.forgotten_seq + 256 {
            self.connection
                .prepare_cached("DELETE FROM events WHERE seq <= ?1")?
                .execute([to_sql(keep_from)])?;
            self.forgotten_seq = keep_from;
        }
        Ok(())
    }

    /// Copies the log back into the database, as far as nobody is in the way.
    fn copy_back(&mut self) -> rusqlite::Result<()> {
        self.set_syncs(true)?;
        gate::pass(&self.place, "checkpoint");
        let mut statement = self.connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?;
        let (busy, log, copied): (i64, i64, i64) =
            statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        if busy == 0 && log == copied {
            self.log_pages = 0;
        } else {
            // Tried again when as much has come on top.
            self.log_pages /= 2;
        }
        Ok(())
    }
}

impl Keep for SqliteKeep {
    const KEEPS: bool = true;

    fn keep(&mut self, changes: &Changes) -> Result<(), KeepError> {
        let kept = self.try_keep(changes);
        verdict(&self.place, kept)
    }

    fn confirm(&mut self) -> Result<(), KeepError> {
        gate::pass(&self.place, "confirm");
        let confirmed = Self::still_owner(&self.connection, self.epoch);
        verdict(&self.place, confirmed)
    }

    fn tidy(&mut self, idle: bool) -> Result<(), KeepError> {
        if self.log_pages < if idle { LOG_PAGES_IDLE } else { LOG_PAGES_BUSY } {
            return Ok(());
        }
        match self.copy_back() {
            Err(error) if !is_busy(&error) => Err(KeepError::Failed(error.to_string())),
            _ => Ok(()),
        }
    }
}

fn verdict(place: &Place, outcome: rusqlite::Result<Option<()>>) -> Result<(), KeepError> {
    match outcome {
        Ok(Some(())) => Ok(()),
        Ok(None) => Err(KeepError::Superseded),
        Err(error) if is_busy(&error) => Err(KeepError::Busy(place.blocked_by())),
        Err(error) => Err(KeepError::Failed(error.to_string())),
    }
}

/// SQLite's integers are signed; everything kept is far below the sign.
pub(super) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
