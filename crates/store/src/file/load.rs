//! Starting from what was kept: every lease with its exact deadline, or with a full ttl anew where deadlines can no
//! longer be trusted.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use fencehold_core::lease::{History, Hold, Record};
use fencehold_core::limits::{ADVANCE_BY, COLLECT_AFTER_FREE_MS, TTL_MS_MAX};
use fencehold_core::{Event, Fact, HoldHash, Key, Namespace, Owner, Stamp, Task, Token};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use super::codec;
use super::sqlite::{from_sql, to_sql};
use crate::engine::{Kept, KeptLease};

/// Whether the kept moments mean anything on this clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Same boot, and the disk never failed: deadlines hold exactly.
    Exact,
    /// The disk failed under an owner: renewals may be lost, so every live lease gets a full ttl.
    Lengthen,
    /// Another boot: the clock started anew, so every hold gets a full ttl and every moment means 'just now'.
    NewBoot,
}

/// Reads everything, inside the transaction that raised the epoch.
pub(super) fn load(connection: &Connection, now: Stamp, trust: Trust) -> rusqlite::Result<Kept> {
    let mut kept = Kept::default();
    let sql = "SELECT closed_until_ms, longest_ttl_ms FROM meta";
    let (closed, longest): (i64, i64) =
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    kept.longest_ttl_ms = from_sql(longest);
    kept.closed_until_ms = match trust {
        // How much of that time is left is unknown on a new clock: all of it is waited for once more.
        Trust::NewBoot if closed > 0 => now.store_ms.saturating_add(kept.longest_ttl_ms),
        _ => from_sql(closed),
    };
    load_floors(connection, &mut kept)?;
    load_events(connection, &mut kept)?;
    load_leases(connection, now, trust, &mut kept)?;
    let (jobs, jobs_aside) = super::job::load(connection, now, trust)?;
    kept.jobs = jobs;
    kept.set_aside += jobs_aside;
    if trust != Trust::Exact {
        keep_anew(connection, &kept)?;
    }
    Ok(kept)
}

fn load_floors(connection: &Connection, kept: &mut Kept) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT namespace, floor FROM floors")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (name, floor): (String, i64) = (row.get(0)?, row.get(1)?);
        if let Ok(namespace) = Namespace::new(name) {
            kept.floors.push((namespace, Token::new(from_sql(floor))));
        }
    }
    Ok(())
}

fn load_events(connection: &Connection, kept: &mut Kept) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT seq, event FROM events ORDER BY seq")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get(0)?;
        kept.last_seq = from_sql(seq);
        let bytes = row.get_ref(1)?.as_blob().ok();
        let events = bytes.and_then(|bytes| postcard::from_bytes::<Vec<Event>>(bytes).ok());
        match events {
            Some(events) if events.last().is_some_and(|event| event.seq == kept.last_seq) => {
                kept.events.extend(events);
            }
            // Events that cannot be read are only missing from the story. Those before them would seem to reach further
            // than they do, so the story starts after them.
            _ => kept.events.clear(),
        }
    }
    Ok(())
}

fn load_leases(connection: &Connection, now: Stamp, trust: Trust, kept: &mut Kept) -> rusqlite::Result<()> {
    let mut broken: Vec<(i64, String)> = Vec::new();
    let noted_after = kept.last_seq;
    let mut nameless: BTreeSet<Option<Namespace>> = BTreeSet::new();
    walk(connection, |slot, row, renewed_ms, lease| match lease {
        Ok(mut lease) => {
            rebase(&mut lease, now, trust);
            kept.leases.push(lease);
        }
        Err(problem) => {
            broken.push((slot, problem.clone()));
            match stand_in(row, slot, renewed_ms, now, trust) {
                Some(stand_in) => {
                    note(kept, now, &stand_in, problem);
                    kept.leases.push(stand_in);
                }
                None => drop(nameless.insert(namespace_of(row))),
            }
        }
    })?;
    // Only now: the largest token may be in a row after the damaged one.
    if nameless.contains(&None) {
        lift_floors(None, kept);
    } else {
        for namespace in nameless {
            lift_floors(namespace, kept);
        }
    }
    set_aside(connection, kept, broken, noted_after)?;
    let aside: i64 = connection.query_row("SELECT count(*) FROM aside", [], |row| row.get(0))?;
    kept.set_aside = from_sql(aside);
    Ok(())
}

/// Every kept lease with its deadline, or what is wrong with its row.
pub(super) fn each_lease(
    connection: &Connection,
    mut each: impl FnMut(i64, Result<KeptLease, String>),
) -> rusqlite::Result<()> {
    walk(connection, |slot, _, _, lease| each(slot, lease))
}

fn walk(
    connection: &Connection,
    mut each: impl FnMut(i64, &Row<'_>, Option<u64>, Result<KeptLease, String>),
) -> rusqlite::Result<()> {
    let sql = "SELECT slot, namespace, key, counter, deadline_ms, record FROM leases ORDER BY slot";
    let mut statement = connection.prepare(sql)?;
    let mut leases = statement.query([])?;
    let mut terms = Terms::read(connection)?;
    let mut terms = terms.walk()?;
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

/// Moves rows that cannot be read out of the way, and keeps what stands in for them.
fn set_aside(
    connection: &Connection,
    kept: &Kept,
    broken: Vec<(i64, String)>,
    noted_after: u64,
) -> rusqlite::Result<()> {
    if broken.is_empty() {
        return Ok(());
    }
    for (slot, problem) in broken {
        connection.execute(
            "INSERT INTO aside (problem, namespace, key, counter, deadline_ms, record) \
             SELECT ?2, namespace, key, counter, deadline_ms, record FROM leases WHERE slot = ?1",
            params![slot, problem],
        )?;
        connection.execute("DELETE FROM leases WHERE slot = ?1", [slot])?;
        let stand_in = kept.leases.iter().find(|lease| i64::from(lease.slot) == slot);
        stand_in.map(|lease| put(connection, lease)).transpose()?;
    }
    for (namespace, floor) in &kept.floors {
        let values = params![namespace.as_str(), to_sql(floor.get())];
        connection.execute("INSERT OR REPLACE INTO floors VALUES (?1, ?2)", values)?;
    }
    let noted: Vec<&Event> = kept.events.iter().filter(|event| event.seq > noted_after).collect();
    if let Some(last) = noted.last() {
        let values = params![to_sql(last.seq), postcard::to_stdvec(&noted).unwrap_or_default()];
        connection.execute("INSERT INTO events VALUES (?1, ?2)", values)?;
    }
    Ok(())
}

/// The narrow table of renewals, read beside the leases: both are in the order of their slots.
struct Terms<'a>(rusqlite::Statement<'a>);

impl<'a> Terms<'a> {
    fn read(connection: &'a Connection) -> rusqlite::Result<Self> {
        connection
            .prepare("SELECT slot, token, deadline_ms FROM terms ORDER BY slot")
            .map(Terms)
    }

    fn walk(&mut self) -> rusqlite::Result<Walk<'_>> {
        Ok(Walk { rows: self.0.query([])?, current: None })
    }
}

struct Walk<'a> {
    rows: rusqlite::Rows<'a>,
    current: Option<(i64, i64, i64)>,
}

impl Walk<'_> {
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

fn read_lease(row: &Row<'_>, slot: i64) -> Result<KeptLease, String> {
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
    Ok(KeptLease {
        slot: u32::try_from(slot).map_err(|_| "the slot is out of range".to_owned())?,
        namespace: Namespace::new(text(1, "namespace")?).map_err(|bad| bad.to_string())?,
        key: Key::new(text(2, "key")?).map_err(|bad| bad.to_string())?,
        deadline_ms: number(4, "deadline")?,
        record: codec::decode(counter, bytes)?,
    })
}

/// What stands in for a lease whose record cannot be read but whose name can: held by nobody who could renew it, for as
/// long as a holder could believe in it. So nobody else gets the key while its holder may still be at work, and its
/// tokens go on growing.
fn stand_in(
    row: &Row<'_>,
    slot: i64,
    renewed_ms: Option<u64>,
    now: Stamp,
    trust: Trust,
) -> Option<KeptLease> {
    let namespace = namespace_of(row)?;
    let key = Key::new(row.get::<_, String>(2).ok()?).ok()?;
    let counter = Token::new(u64::try_from(row.get::<_, i64>(3).ok()?).ok()?);
    let latest_ms = now.store_ms.saturating_add(TTL_MS_MAX);
    let deadline_ms = match (row.get::<_, i64>(4), trust) {
        (Ok(ms), Trust::Exact) => from_sql(ms).max(renewed_ms.unwrap_or(0)),
        // Nothing says how long its holder may believe in it.
        _ => latest_ms,
    };
    let hold = Hold {
        hash: HoldHash::from_bytes([0; 16]),
        owner: Owner::new("unreadable").ok()?,
        task: Task::new("its record was damaged and set aside").ok(),
        ttl_ms: TTL_MS_MAX,
        max_age_ms: NonZeroU64::new(1),
        since: now,
        priority: i16::MAX,
        notice: None,
    };
    Some(KeptLease {
        slot: u32::try_from(slot).ok()?,
        namespace,
        key,
        // Which hold ids ended on it is forgotten with the record.
        record: Record {
            counter,
            hold: Some(hold),
            history: Some(Box::new(History { endings: Vec::new(), forgotten_at_ms: Some(now.store_ms) })),
        },
        // A deadline further away than any ttl is damage too.
        deadline_ms: deadline_ms.min(latest_ms),
    })
}

/// A row of which not even the name can be read: every token of its namespace, or of all, must be larger from now on.
fn lift_floors(named: Option<Namespace>, kept: &mut Kept) {
    let spaces: Vec<Namespace> = if let Some(namespace) = named {
        vec![namespace]
    } else {
        let leases = kept.leases.iter().map(|lease| lease.namespace.clone());
        let mut all: Vec<Namespace> =
            leases.chain(kept.floors.iter().map(|(name, _)| name.clone())).collect();
        all.push(Namespace::default());
        all.sort();
        all.dedup();
        all
    };
    for namespace in spaces {
        let counters = kept.leases.iter().filter(|lease| lease.namespace == namespace);
        let highest = counters.map(|lease| lease.record.counter).max().unwrap_or_default();
        let at = kept.floors.iter().position(|(name, _)| *name == namespace);
        let floor = at.map_or(Token::NONE, |at| kept.floors[at].1);
        let lifted = highest.max(floor).lifted(ADVANCE_BY).unwrap_or(floor);
        match at {
            Some(at) => kept.floors[at].1 = lifted,
            None => kept.floors.push((namespace, lifted)),
        }
    }
}

fn namespace_of(row: &Row<'_>) -> Option<Namespace> {
    Namespace::new(row.get::<_, String>(1).ok()?).ok()
}

fn note(kept: &mut Kept, now: Stamp, lease: &KeptLease, problem: String) {
    kept.last_seq += 1;
    let (namespace, key) = (lease.namespace.clone(), lease.key.clone());
    kept.events
        .push(Event::new(kept.last_seq, now.wall_ms, namespace, key, Fact::RowSetAside { problem }));
}

/// Makes a lease's moments mean something on the clock of now.
pub(crate) fn rebase(lease: &mut KeptLease, now: Stamp, trust: Trust) {
    if trust == Trust::Exact {
        return;
    }
    if trust == Trust::NewBoot {
        // Everything that happened before this boot counts as having happened just now: the cautious reading for a
        // hold id that may come back.
        if let Some(history) = &mut lease.record.history {
            history.endings.iter_mut().for_each(|ending| ending.at.store_ms = now.store_ms);
            history.forgotten_at_ms = history.forgotten_at_ms.map(|_| now.store_ms);
        }
        if let Some(hold) = &mut lease.record.hold {
            hold.since.store_ms = now.store_ms;
            hold.notice = None;
        }
    }
    let believed = (seeded!(RebootTrustsDeadlines) && trust == Trust::NewBoot)
        || (seeded!(FailedDiskTrustsDeadlines) && trust == Trust::Lengthen);
    lease.deadline_ms = match (&lease.record.hold, trust) {
        (Some(_), _) if believed => lease.deadline_ms,
        // Deadlines of another boot are numbers of another clock.
        (Some(hold), Trust::NewBoot) => now.store_ms.saturating_add(hold.ttl_ms),
        // Also one that seems to have run out: the renewal that was lost may have kept it.
        (Some(hold), _) => lease.deadline_ms.max(now.store_ms.saturating_add(hold.ttl_ms)),
        (None, Trust::NewBoot) => now.store_ms.saturating_add(COLLECT_AFTER_FREE_MS),
        (None, _) => lease.deadline_ms,
    };
}

/// Writes every lease as it now stands.
fn keep_anew(connection: &Connection, kept: &Kept) -> rusqlite::Result<()> {
    for lease in &kept.leases {
        put(connection, lease)?;
    }
    let until_ms = to_sql(kept.closed_until_ms);
    connection.execute("UPDATE meta SET closed_until_ms = ?1", [until_ms])?;
    connection.execute("DELETE FROM terms", []).map(drop)
}

fn put(connection: &Connection, lease: &KeptLease) -> rusqlite::Result<()> {
    let mut bytes = Vec::new();
    codec::encode(&lease.record, &mut bytes);
    let values = params![
        lease.slot,
        lease.namespace.as_str(),
        lease.key.as_str(),
        to_sql(lease.record.counter.get()),
        to_sql(lease.deadline_ms),
        bytes
    ];
    let sql = "INSERT OR REPLACE INTO leases VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    connection.prepare_cached(sql)?.execute(values).map(drop)
}
