//! Events that are older than the newest of the store, and that their namespace keeps; and which namespace has lost events, up to
//! where.
//!
//! The tables are made where they are missing, without a new version of the schema: a program that does not know them forgets by
//! number alone, and what it forgot is found out when the next one starts.

use std::collections::BTreeMap;

use fencehold_core::Namespace;
use fencehold_engine::{OldEvents, StoredEvents};
use rusqlite::{Connection, Row, params};

use super::codec;
use super::sqlite::{from_sql, rows, run, to_sql};

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS old_events (seq INTEGER PRIMARY KEY, event BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS events_lost (
    namespace TEXT PRIMARY KEY,
    until_seq INTEGER NOT NULL,
    forgotten_seq INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
";
/// What stands in the place of a name for namespaces of which no event is kept. No namespace is called that.
const OTHERS: &str = "";

pub(super) fn make(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLES)
}

/// What was kept longer, for events of which the newest were loaded. `first_seq` is the number of the first of those.
pub(super) fn load(connection: &Connection, first_seq: u64, kept: &mut StoredEvents) -> rusqlite::Result<()> {
    let sql = "SELECT event FROM old_events WHERE seq < ?1 ORDER BY seq";
    let read = |row: &Row<'_>| Ok(codec::decode_event(row.get_ref(0)?.as_blob().unwrap_or_default()));
    for event in rows(connection, sql, [to_sql(first_seq)], read)? {
        match event {
            Some(event) => kept.old.push(event),
            // Which namespace lost it is not known.
            None => kept.lost_by_all = first_seq.saturating_sub(1),
        }
    }
    let mut forgotten_seq = 0;
    rows(connection, "SELECT namespace, until_seq, forgotten_seq FROM events_lost", [], |row| {
        let until_seq = from_sql(row.get(1)?);
        if let Ok(namespace) = Namespace::new(row.get::<_, String>(0)?) {
            kept.lost.insert(namespace, until_seq);
        } else {
            (kept.lost_by_others, forgotten_seq) = (until_seq, from_sql(row.get(2)?));
        }
        Ok(())
    })?;
    // A program that keeps nothing longer has forgotten further than this one did.
    if first_seq > forgotten_seq.saturating_add(1) {
        kept.lost_by_all = first_seq - 1;
    }
    Ok(())
}

/// What becomes of old events in one batch.
#[derive(Debug, Default)]
pub(super) struct OldEventChanges {
    /// What is to be written with the next rows that are forgotten,
    now: BTreeMap<Option<Namespace>, u64>,
    /// and once more: the transaction in which it was may have failed.
    before: BTreeMap<Option<Namespace>, u64>,
}

impl OldEventChanges {
    pub(super) fn write(
        &mut self,
        connection: &Connection,
        buffer: &mut Vec<u8>,
        changes: &OldEvents,
    ) -> rusqlite::Result<()> {
        for event in &changes.kept {
            codec::encode_event(event, buffer);
            let sql = "INSERT OR REPLACE INTO old_events VALUES (?1, ?2)";
            run(connection, sql, params![to_sql(event.seq), &buffer[..]])?;
        }
        for seq in &changes.forgotten {
            run(connection, "DELETE FROM old_events WHERE seq = ?1", [to_sql(*seq)])?;
        }
        self.now.extend(changes.lost_until.iter().cloned());
        // The others are still in rows that were not forgotten.
        if !changes.forgotten.is_empty() {
            for (namespace, seq) in &changes.lost_until {
                put(connection, namespace.as_ref(), *seq)?;
            }
        }
        Ok(())
    }

    /// Rows up to this number are forgotten.
    pub(super) fn forget(&mut self, connection: &Connection, until_seq: u64) -> rusqlite::Result<()> {
        let before = std::mem::replace(&mut self.before, std::mem::take(&mut self.now));
        for (namespace, seq) in before.iter().chain(&self.before) {
            put(connection, namespace.as_ref(), *seq)?;
        }
        let sql = "INSERT INTO events_lost VALUES (?1, 0, ?2) ON CONFLICT (namespace) DO UPDATE SET forgotten_seq = ?2";
        run(connection, sql, params![OTHERS, to_sql(until_seq)])
    }
}

fn put(connection: &Connection, namespace: Option<&Namespace>, seq: u64) -> rusqlite::Result<()> {
    let name = namespace.map_or(OTHERS, Namespace::as_str);
    let sql = "INSERT INTO events_lost (namespace, until_seq) VALUES (?1, ?2)
               ON CONFLICT (namespace) DO UPDATE SET until_seq = max(until_seq, ?2)";
    run(connection, sql, params![name, to_sql(seq)])
}
