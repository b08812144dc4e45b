//! Leases in tables: every statement about them. What the rows mean is for others: `sqlite` keeps batches, `load` starts
//! from what was kept.

use fencehold_contract::Quota;
use fencehold_contract::stored::LimitsV1;
use fencehold_core::lease::LeaseRecord;
use fencehold_core::{Event, Key, Namespace, Token};
use fencehold_engine::{Change, StoredLease, StoredNamespace};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use super::codec;
use super::sqlite::{from_sql, namespace_at, number, readable_rows, rows, run, to_sql};

/// Writes one change. The buffer is there to be used again.
pub(super) fn write(connection: &Connection, buffer: &mut Vec<u8>, change: &Change) -> rusqlite::Result<()> {
    match change {
        Change::Put { slot, namespace, key, record, deadline_ms } => {
            put(connection, buffer, *slot, namespace, key, record, *deadline_ms)
        }
        Change::Term { slot, token, deadline_ms } => {
            let values = params![slot, to_sql(token.get()), to_sql(*deadline_ms)];
            run(connection, "INSERT OR REPLACE INTO terms VALUES (?1, ?2, ?3)", values)
        }
        Change::Drop { slot } => {
            run(connection, "DELETE FROM leases WHERE slot = ?1", [slot])?;
            run(connection, "DELETE FROM terms WHERE slot = ?1", [slot])
        }
        Change::Floor { namespace, floor } => put_floor(connection, namespace, *floor),
        Change::LongestTtl { ttl_ms } => put_longest_ttl(connection, *ttl_ms),
        Change::ClosedUntil { until_ms } => put_closed_until(connection, *until_ms),
        Change::Namespace(kept) => put_namespace(connection, kept),
        Change::Limits { namespace, limits } => put_limits(connection, namespace.as_ref(), limits),
        Change::KeepFinished { ms } => put_keep_finished(connection, *ms),
        // It is part of what is noted of the clock, which this does not know.
        Change::Seen { .. } => Ok(()),
    }
}

fn put(
    connection: &Connection,
    buffer: &mut Vec<u8>,
    slot: u32,
    namespace: &Namespace,
    key: &Key,
    record: &LeaseRecord,
    deadline_ms: u64,
) -> rusqlite::Result<()> {
    codec::encode_lease(record, buffer);
    let (counter, deadline_ms) = (to_sql(record.counter.get()), to_sql(deadline_ms));
    let values = params![slot, namespace.as_str(), key.as_str(), counter, deadline_ms, &buffer[..]];
    run(connection, "INSERT OR REPLACE INTO leases VALUES (?1, ?2, ?3, ?4, ?5, ?6)", values)
}

/// Writes a lease as it now stands.
pub(super) fn put_lease(
    connection: &Connection,
    buffer: &mut Vec<u8>,
    lease: &StoredLease,
) -> rusqlite::Result<()> {
    let StoredLease { slot, namespace, key, record, deadline_ms } = lease;
    put(connection, buffer, *slot, namespace, key, record, *deadline_ms)
}

pub(super) fn put_floor(
    connection: &Connection,
    namespace: &Namespace,
    floor: Token,
) -> rusqlite::Result<()> {
    let values = params![namespace.as_str(), to_sql(floor.get())];
    run(connection, "INSERT OR REPLACE INTO floors VALUES (?1, ?2)", values)
}

pub(super) fn put_namespace(connection: &Connection, kept: &StoredNamespace) -> rusqlite::Result<()> {
    let StoredNamespace { namespace, longest_ttl_ms, closed_until_ms } = kept;
    let values = params![namespace.as_str(), to_sql(*longest_ttl_ms), closed_until_ms.map(to_sql)];
    run(connection, "INSERT OR REPLACE INTO namespaces VALUES (?1, ?2, ?3)", values)
}

/// What is kept of every namespace. One whose row cannot be read is as good as unknown: it is closed for as long as any.
pub(super) fn namespaces(connection: &Connection) -> rusqlite::Result<Vec<StoredNamespace>> {
    let sql = "SELECT namespace, longest_ttl_ms, closed_until_ms FROM namespaces";
    let read = |row: &Row<'_>| {
        let namespace = namespace_at(row, 0)?;
        let longest_ttl_ms = u64::try_from(row.get::<_, i64>(1).ok()?).ok()?;
        let closed_until_ms = row.get::<_, Option<i64>>(2).ok().flatten().map(from_sql);
        Some(StoredNamespace { namespace, longest_ttl_ms, closed_until_ms })
    };
    Ok(readable_rows(connection, sql, read)?.0)
}

/// No namespace has an empty name: that is the row for every one.
fn put_limits(
    connection: &Connection,
    namespace: Option<&Namespace>,
    limits: &Quota,
) -> rusqlite::Result<()> {
    let name = namespace.map_or("", Namespace::as_str);
    let text = serde_json::to_string(&LimitsV1::from(*limits)).unwrap_or_default();
    run(connection, "INSERT OR REPLACE INTO limits VALUES (?1, ?2)", params![name, text])
}

/// What namespaces may have. A row that cannot be read is as good as none: then the usual limits count.
pub(super) fn limits(connection: &Connection) -> rusqlite::Result<Vec<(Option<Namespace>, Quota)>> {
    let read = |row: &Row<'_>| {
        let (name, text): (String, String) = row.get(0).ok().zip(row.get(1).ok())?;
        let limits: LimitsV1 = serde_json::from_str(&text).ok()?;
        let namespace = if name.is_empty() { None } else { Some(Namespace::new(name).ok()?) };
        Some((namespace, limits.into()))
    };
    Ok(readable_rows(connection, "SELECT namespace, limits FROM limits", read)?.0)
}

pub(super) fn put_longest_ttl(connection: &Connection, ttl_ms: u64) -> rusqlite::Result<()> {
    run(connection, "UPDATE meta SET longest_ttl_ms = ?1", [to_sql(ttl_ms)])
}

pub(super) fn put_closed_until(connection: &Connection, until_ms: u64) -> rusqlite::Result<()> {
    run(connection, "UPDATE meta SET closed_until_ms = ?1", [to_sql(until_ms)])
}

pub(super) fn put_keep_finished(connection: &Connection, ms: u64) -> rusqlite::Result<()> {
    run(connection, "UPDATE meta SET keep_finished_ms = ?1", [to_sql(ms)])
}

/// Forgets every renewal: the leases themselves say until when they last.
pub(super) fn clear_terms(connection: &Connection) -> rusqlite::Result<()> {
    run(connection, "DELETE FROM terms", [])
}

/// Writes the events of one batch as one row, under the number of the last.
pub(super) fn put_events(
    connection: &Connection,
    buffer: &mut Vec<u8>,
    events: &[&Event],
) -> rusqlite::Result<()> {
    let Some(last) = events.last() else { return Ok(()) };
    codec::encode_events(events, buffer);
    run(connection, "INSERT INTO events VALUES (?1, ?2)", params![to_sql(last.seq), &buffer[..]])
}

pub(super) fn forget_events(connection: &Connection, until_seq: u64) -> rusqlite::Result<()> {
    run(connection, "DELETE FROM events WHERE seq <= ?1", [to_sql(until_seq)])
}

/// Moves a row that cannot be read out of the way.
pub(super) fn set_aside(connection: &Connection, slot: i64, problem: &str) -> rusqlite::Result<()> {
    let copy = "INSERT INTO aside (problem, namespace, key, counter, deadline_ms, record) \
                SELECT ?2, namespace, key, counter, deadline_ms, record FROM leases WHERE slot = ?1";
    run(connection, copy, params![slot, problem])?;
    run(connection, "DELETE FROM leases WHERE slot = ?1", [slot])
}

/// How many rows have been moved out of the way.
pub(super) fn count_aside(connection: &Connection) -> rusqlite::Result<u64> {
    number(connection, "SELECT count(*) FROM aside", [])
}

/// Until when nothing is granted, and the longest ttl that ever was.
pub(super) fn closed_until_and_longest_ttl_ms(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
    let sql = "SELECT closed_until_ms, longest_ttl_ms FROM meta";
    connection.query_row(sql, [], |row| Ok((from_sql(row.get(0)?), from_sql(row.get(1)?))))
}

/// The floors of namespaces. One whose name cannot be read belongs to none.
pub(super) fn floors(connection: &Connection) -> rusqlite::Result<Vec<(Namespace, Token)>> {
    let floors = rows(connection, "SELECT namespace, floor FROM floors", [], |row| {
        let floor = Token::new(from_sql(row.get(1)?));
        Ok(Namespace::new(row.get::<_, String>(0)?)
            .ok()
            .map(|namespace| (namespace, floor)))
    })?;
    Ok(floors.into_iter().flatten().collect())
}

/// The numbers of the first row of events, and of the last; 0: there is none.
pub(super) fn first_and_last_seq(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
    let at = |end: &str| number(connection, &format!("SELECT coalesce({end}(seq), 0) FROM events"), []);
    Ok((at("min")?, at("max")?))
}

/// The events of each batch, oldest first, under the number of the last; `None`: they cannot be read.
pub(super) fn batches_of_events(
    connection: &Connection,
    until_seq: u64,
) -> rusqlite::Result<Vec<(u64, Option<Vec<Event>>)>> {
    let sql = "SELECT seq, event FROM events WHERE seq <= ?1 ORDER BY seq";
    rows(connection, sql, [to_sql(until_seq)], |row| {
        let bytes = row.get_ref(1)?.as_blob().ok();
        Ok((from_sql(row.get(0)?), bytes.and_then(codec::decode_events)))
    })
}

/// Every kept lease with its deadline, or what is wrong with its row; with the row itself and the deadline that the last renewal
/// gave, for what can be had of a damaged one.
pub(super) fn each_row(
    connection: &Connection,
    mut each: impl FnMut(i64, &Row<'_>, Option<u64>, Result<StoredLease, String>),
) -> rusqlite::Result<()> {
    let sql = "SELECT slot, namespace, key, counter, deadline_ms, record FROM leases ORDER BY slot";
    let mut statement = connection.prepare(sql)?;
    let mut leases = statement.query([])?;
    let mut terms = connection.prepare("SELECT slot, token, deadline_ms FROM terms ORDER BY slot")?;
    let mut terms = RenewalRows { rows: terms.query([])?, current: None };
    while let Some(row) = leases.next()? {
        let slot: i64 = row.get(0)?;
        // Before the record is looked at: a renewal counts also where the record is damaged.
        let renewed_ms = terms.deadline_of(slot, row.get_ref(3)?)?;
        let mut lease = read_lease(row, slot);
        if let (Ok(lease), Some(renewed_ms)) = (&mut lease, renewed_ms) {
            lease.deadline_ms = lease.deadline_ms.max(renewed_ms);
        }
        each(slot, row, renewed_ms, lease);
    }
    Ok(())
}

/// The narrow table of renewals, read beside the leases: both are in the order of their slots.
struct RenewalRows<'a> {
    rows: rusqlite::Rows<'a>,
    current: Option<(i64, i64, i64)>,
}

impl RenewalRows<'_> {
    /// The deadline that the last renewal of this hold gave it. A row for another token is of an earlier hold.
    fn deadline_of(&mut self, slot: i64, counter: ValueRef<'_>) -> rusqlite::Result<Option<u64>> {
        let ValueRef::Integer(counter) = counter else { return Ok(None) };
        while self.current.is_none_or(|(at, ..)| at < slot) {
            match self.rows.next()? {
                Some(row) => self.current = Some((row.get(0)?, row.get(1)?, row.get(2)?)),
                None => return Ok(None),
            }
        }
        let found = self.current.filter(|(at, held, _)| *at == slot && *held == counter);
        Ok(found.map(|(_, _, deadline_ms)| from_sql(deadline_ms)))
    }
}

fn read_lease(row: &Row<'_>, slot: i64) -> Result<StoredLease, String> {
    let text = |at: usize, what: &str| match row.get_ref(at) {
        Ok(ValueRef::Text(bytes)) => {
            std::str::from_utf8(bytes).map_err(|_| format!("the {what} is not UTF-8"))
        }
        _ => Err(format!("the {what} is not a text")),
    };
    let number = |at: usize, what: &str| match row.get_ref(at) {
        Ok(ValueRef::Integer(number)) => u64::try_from(number).map_err(|_| format!("the {what} is negative")),
        _ => Err(format!("the {what} is not a number")),
    };
    let counter = Token::new(number(3, "counter")?);
    let Ok(ValueRef::Blob(bytes)) = row.get_ref(5) else { return Err("the record is not a blob".to_owned()) };
    Ok(StoredLease {
        slot: u32::try_from(slot).map_err(|_| "the slot is out of range".to_owned())?,
        namespace: Namespace::new(text(1, "namespace")?).map_err(|bad| bad.to_string())?,
        key: Key::new(text(2, "key")?).map_err(|bad| bad.to_string())?,
        deadline_ms: number(4, "deadline")?,
        record: codec::decode_lease(counter, bytes)?,
    })
}

#[cfg(test)]
mod tests {
    use fencehold_conformance::golden::{self, samples};

    use super::*;

    fn with_limits() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE limits (namespace TEXT PRIMARY KEY, limits TEXT NOT NULL) STRICT")
            .unwrap();
        connection
    }

    #[test]
    fn the_text_of_limits_is_known() {
        let text = |limits: &Quota| {
            let connection = with_limits();
            put_limits(&connection, None, limits).unwrap();
            let text: String =
                connection.query_row("SELECT limits FROM limits", [], |row| row.get(0)).unwrap();
            text.into_bytes()
        };
        golden::current(env!("CARGO_MANIFEST_DIR"), "limits.v1.json", &samples::limits(), text, |bytes| {
            let connection = with_limits();
            connection
                .execute("INSERT INTO limits VALUES ('', ?1)", [std::str::from_utf8(bytes).unwrap()])
                .unwrap();
            let read = limits(&connection).unwrap();
            read.first()
                .map(|(_, limits)| *limits)
                .ok_or_else(|| "it cannot be read".to_owned())
        });
    }

    #[test]
    fn a_row_with_a_damaged_name_limits_no_namespace() {
        let connection = with_limits();
        let usual = Quota::default();
        put_limits(&connection, Some(&Namespace::new("a").unwrap()), &usual).unwrap();
        put_limits(&connection, None, &usual).unwrap();
        for damaged in ["not/a name", "\u{7}"] {
            connection
                .execute("INSERT INTO limits SELECT ?1, limits FROM limits LIMIT 1", [damaged])
                .unwrap();
        }
        let read = limits(&connection).unwrap();
        let names: Vec<_> = read
            .iter()
            .map(|(namespace, _)| namespace.as_ref().map(Namespace::as_str))
            .collect();
        assert_eq!(names, [Some("a"), None]);
    }
}
