//! Starting from what was kept: every lease with its exact deadline, or with a full ttl anew where deadlines can no
//! longer be trusted.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use fencehold_core::lease::{Hold, HoldHistory, LeaseRecord};
use fencehold_core::limits::{ADVANCE_BY, COLLECT_AFTER_FREE_MS, TTL_MS_MAX};
use fencehold_core::{Event, EventData, HoldHash, Key, Namespace, Owner, Task, Timestamp, Token};
use fencehold_engine::{StoredEvents, StoredLease, StoredState};
use rusqlite::{Connection, Row};

use super::lease_rows;
use super::sqlite::{from_sql, namespace_at};

/// Whether the kept moments mean anything on this clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Same boot, and the disk never failed: deadlines hold exactly.
    Exact,
    /// The disk failed under an owner: renewals may be lost, so every live lease gets a full ttl.
    Lengthen,
    /// Another boot. Store time goes on, but only the wall clock says by how much: every hold gets a full ttl.
    Reboot,
    /// What was kept is on a clock of which nothing is known: every hold gets a full ttl, every ending means 'just now', and
    /// wall time says how long something has lasted.
    NewBoot,
}

impl Trust {
    /// Whether another boot wrote what was kept.
    pub(crate) fn is_of_another_boot(self) -> bool {
        matches!(self, Trust::Reboot | Trust::NewBoot)
    }
}

/// Reads the leases and what belongs to them, inside the transaction that raised the epoch. Events can be read later, and jobs, too, but where
/// they have to be written anew.
pub(super) fn load(connection: &Connection, now: Timestamp, trust: Trust) -> rusqlite::Result<StoredState> {
    let mut kept = StoredState::default();
    (kept.closed_until_ms, kept.longest_ttl_ms) = lease_rows::closed_until_and_longest_ttl_ms(connection)?;
    kept.limits = lease_rows::limits(connection)?;
    kept.namespaces = lease_rows::namespaces(connection)?;
    if trust.is_of_another_boot() {
        // How much of that time is left is unknown on a new clock: all of it is waited for once more.
        let is_closed = kept.closed_until_ms > 0;
        let anew = |ttl_ms| is_closed.then(|| now.store_ms.saturating_add(ttl_ms));
        kept.closed_until_ms = anew(kept.longest_ttl_ms).unwrap_or(0);
        for known in &mut kept.namespaces {
            known.closed_until_ms = known.closed_until_ms.and_then(|_| anew(known.longest_ttl_ms));
        }
    }
    kept.floors = lease_rows::floors(connection)?;
    kept.last_seq = lease_rows::first_and_last_seq(connection)?.1;
    load_leases(connection, now, trust, &mut kept)?;
    if trust != Trust::Exact {
        // Otherwise they mean later what they mean now, and can be read then.
        let (jobs, jobs_aside) = super::job::load(connection, now, trust)?;
        kept.jobs = Some(jobs);
        kept.set_aside += jobs_aside;
        keep_anew(connection, &kept)?;
    }
    Ok(kept)
}

/// The events up to this one.
pub(super) fn load_events(connection: &Connection, until_seq: u64) -> rusqlite::Result<StoredEvents> {
    let mut kept = StoredEvents::default();
    let mut lost_by_all = 0;
    for (seq, events) in lease_rows::batches_of_events(connection, until_seq)? {
        match events {
            Some(events) if events.last().is_some_and(|event| event.seq == seq) => {
                kept.recent.extend(events);
            }
            // Events that cannot be read are only missing from the story. Those before them would seem to reach further
            // than they do, so the story starts after them.
            _ => {
                kept.recent.clear();
                lost_by_all = seq;
            }
        }
    }
    if let Some(first_seq) = kept.recent.first().map(|event| event.seq) {
        super::old_events::load(connection, first_seq, &mut kept)?;
    }
    kept.lost_by_all = kept.lost_by_all.max(lost_by_all);
    Ok(kept)
}

fn load_leases(
    connection: &Connection,
    now: Timestamp,
    trust: Trust,
    kept: &mut StoredState,
) -> rusqlite::Result<()> {
    let mut broken: Vec<(i64, String)> = Vec::new();
    let mut noted: Vec<Event> = Vec::new();
    let mut nameless: BTreeSet<Option<Namespace>> = BTreeSet::new();
    lease_rows::each_row(connection, |slot, row, renewed_ms, lease| match lease {
        Ok(mut lease) => {
            rebase(&mut lease, now, trust);
            kept.leases.push(lease);
        }
        Err(problem) => {
            broken.push((slot, problem.clone()));
            match stand_in(row, slot, renewed_ms, now, trust) {
                Some(stand_in) => {
                    kept.last_seq += 1;
                    noted.push(note(kept.last_seq, now, &stand_in, problem));
                    kept.leases.push(stand_in);
                }
                None => drop(nameless.insert(namespace_at(row, 1))),
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
    set_aside(connection, kept, broken, &noted)?;
    kept.set_aside = lease_rows::count_aside(connection)?;
    Ok(())
}

/// Moves rows that cannot be read out of the way, and keeps what stands in for them.
fn set_aside(
    connection: &Connection,
    kept: &StoredState,
    broken: Vec<(i64, String)>,
    noted: &[Event],
) -> rusqlite::Result<()> {
    if broken.is_empty() {
        return Ok(());
    }
    let mut buffer = Vec::new();
    for (slot, problem) in broken {
        lease_rows::set_aside(connection, slot, &problem)?;
        let stand_in = kept.leases.iter().find(|lease| i64::from(lease.slot) == slot);
        stand_in
            .map(|lease| lease_rows::put_lease(connection, &mut buffer, lease))
            .transpose()?;
    }
    for (namespace, floor) in &kept.floors {
        lease_rows::put_floor(connection, namespace, *floor)?;
    }
    lease_rows::put_events(connection, &mut buffer, &noted.iter().collect::<Vec<_>>())
}

/// What stands in for a lease whose record cannot be read but whose name can: held by no one who could renew it, for as
/// long as a holder could believe in it. So no one else gets the key while its holder may still be at work, and its
/// tokens go on growing.
fn stand_in(
    row: &Row<'_>,
    slot: i64,
    renewed_ms: Option<u64>,
    now: Timestamp,
    trust: Trust,
) -> Option<StoredLease> {
    let namespace = namespace_at(row, 1)?;
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
        yield_request: None,
    };
    Some(StoredLease {
        slot: u32::try_from(slot).ok()?,
        namespace,
        key,
        // Which hold ids ended on it is forgotten with the record.
        record: LeaseRecord {
            counter,
            hold: Some(hold),
            history: Some(Box::new(HoldHistory { endings: Vec::new(), forgotten_at_ms: Some(now.store_ms) })),
        },
        // A deadline further away than any ttl is damage too.
        deadline_ms: deadline_ms.min(latest_ms),
    })
}

/// A row of which not even the name can be read: every token of its namespace, or of all, must be larger from now on.
pub(super) fn lift_floors(named: Option<Namespace>, kept: &mut StoredState) {
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

fn note(seq: u64, now: Timestamp, lease: &StoredLease, problem: String) -> Event {
    let (namespace, key) = (lease.namespace.clone(), lease.key.clone());
    Event::new(seq, now.wall_ms, namespace, key, EventData::RowUnreadable { message: problem })
}

/// Makes a lease's moments mean something on the clock of now.
pub fn rebase(lease: &mut StoredLease, now: Timestamp, trust: Trust) {
    if trust == Trust::Exact {
        return;
    }
    if trust.is_of_another_boot() {
        // Everything that happened before this boot counts as having happened just now: the cautious reading for a
        // hold id that may come back.
        if let Some(history) = &mut lease.record.history {
            history.endings.iter_mut().for_each(|ending| ending.at.store_ms = now.store_ms);
            history.forgotten_at_ms = history.forgotten_at_ms.map(|_| now.store_ms);
        }
        if let Some(hold) = &mut lease.record.hold {
            if trust == Trust::NewBoot {
                hold.since.store_ms = began_ms(hold.since, now);
            }
            hold.yield_request = None;
        }
    }
    lease.deadline_ms = match (&lease.record.hold, trust) {
        // How much time has passed since is not known for certain.
        (Some(hold), trust) if trust.is_of_another_boot() => now.store_ms.saturating_add(hold.ttl_ms),
        // Also one that seems to have run out: the renewal that was lost may have kept it.
        (Some(hold), _) => lease.deadline_ms.max(now.store_ms.saturating_add(hold.ttl_ms)),
        (None, trust) if trust.is_of_another_boot() => now.store_ms.saturating_add(COLLECT_AFTER_FREE_MS),
        (None, _) => lease.deadline_ms,
    };
}

/// When something began, on the clock of now: wall time says how long ago.
pub(super) fn began_ms(since: Timestamp, now: Timestamp) -> u64 {
    now.store_ms.saturating_sub(now.wall_ms.saturating_sub(since.wall_ms))
}

/// Writes every lease as it now stands.
fn keep_anew(connection: &Connection, kept: &StoredState) -> rusqlite::Result<()> {
    let mut buffer = Vec::new();
    for lease in &kept.leases {
        lease_rows::put_lease(connection, &mut buffer, lease)?;
    }
    lease_rows::put_closed_until(connection, kept.closed_until_ms)?;
    for known in &kept.namespaces {
        lease_rows::put_namespace(connection, known)?;
    }
    lease_rows::clear_terms(connection)
}
