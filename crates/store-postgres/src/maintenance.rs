//! What a handle does without being asked: says that it is alive, watches the clock, and does the background work while it is its turn.
//!
//! One call now and then serves all of it (`upkeep` in `schema/maintenance.sql`). The work itself, which notes what has run out, is one
//! handle's at a time: others ask whether it has become theirs.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_net::sleep;
use tokio::sync::Notify;
use tokio_postgres::Row;

use super::listen::TopicListener;
use super::pool::PoolLane;
use super::statement::{Call, Parameter};
use super::value::{Uuid128, from_sql, to_sql};
use super::{PostgresInner, migrate};

/// P4: what has run out is noted at most a second later.
const SWEEP_EVERY_MS: u64 = 900;
/// From when on a handle does any of this. One that is closed before, as that of a short command, makes no connections for it.
const BEGINS_AFTER: Duration = Duration::from_millis(250);
/// How many rows one sweep takes, so that it never holds up others for long.
const SWEEP_MAX: i32 = 500;
/// How often a handle with a waiter says that it is alive. It is believed for 15 s.
const ALIVE_EVERY_MS: u64 = 3_000;
/// When to call again after a call that failed, or by a user who may only look.
const AGAIN_AFTER: Duration = Duration::from_millis(900);
/// How often claims look by themselves where no notification arrives.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How far the database's clock may be ahead of this machine's boot clock before it is taken to have jumped.
const JUMP_MS: i64 = 1_000;
const TIMEOUT_MS: u64 = 5_000;

/// After how many failures of one part of the maintenance it is written to the database again.
const REPORT_EVERY: u64 = 64;

/// How each part of the maintenance went last: how often it failed in a row, and why.
pub(super) type MaintenanceState = RefCell<HashMap<&'static str, (u64, String)>>;

/// When the database's clock was seen to say what.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    /// By this machine's boot clock, before it was asked.
    before_ms: u64,
    said_ms: i64,
}

impl ClockReading {
    /// What the database's clock says at a moment of this machine's, if neither has jumped.
    fn expected_ms(self, now_ms: u64) -> i64 {
        self.said_ms.saturating_add(to_sql(now_ms.saturating_sub(self.before_ms)))
    }
}

/// The database's clock is ahead of where it should be.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockJump {
    last_said_ms: i64,
    ahead_ms: i64,
}

/// What a handle knows of its upkeep.
#[derive(Debug, Default)]
pub(super) struct UpkeepState {
    /// Its number, once it has one.
    handle: Cell<Option<i64>>,
    alive_at_ms: Cell<u64>,
    swept_at_ms: Cell<u64>,
    /// Call at once.
    asked: Notify,
    /// Whether it is this handle's turn to sweep leases, as it was last answered.
    pub(super) sweeps_leases: Cell<bool>,
    /// It is this handle's turn to sweep.
    leases: Notify,
    pub(super) jobs: Notify,
}

impl UpkeepState {
    /// What this handle does has changed: its next call is due.
    pub(super) fn ask(&self) {
        self.asked.notify_one();
    }
}

/// What `upkeep` returns.
struct UpkeepRow {
    at_ms: i64,
    handle: i64,
    version: migrate::SchemaStatus,
    party: Option<i64>,
    parts: Vec<String>,
    next_ms: u64,
    should_look: Vec<Uuid128>,
}

impl From<&Row> for UpkeepRow {
    fn from(row: &Row) -> Self {
        UpkeepRow {
            at_ms: row.get(0),
            handle: row.get(1),
            version: migrate::SchemaStatus { found: row.get(2), compatible_from: row.get(3) },
            party: row.get(4),
            parts: row.get(5),
            next_ms: from_sql(row.get(6)),
            should_look: row.get(7),
        }
    }
}

/// Returns when something may have been missed. Without a listener, never.
async fn heard(listener: Option<&TopicListener>) {
    match listener {
        Some(listener) => listener.heard().await,
        None => std::future::pending().await,
    }
}

impl PostgresInner {
    /// For as long as the handle is open, soon after its first call.
    pub(super) async fn keep_up(self: Rc<Self>) {
        tokio::select! {
            () = self.upkeep.asked.notified() => {}
            () = sleep(BEGINS_AFTER) => {}
        }
        let mut listener: Option<TopicListener> = None;
        loop {
            let mut call = self.own_call(TIMEOUT_MS);
            // A waiter of a busy handle must not fall out of line.
            call.lane = PoolLane::Renewals;
            let again = call.keep_up_once().await;
            self.maintained("leases", again.as_ref().err()).await;
            if listener.is_none() && self.jobs.are_used() {
                listener = Some(self.listen("upkeep"));
            }
            tokio::select! {
                () = heard(listener.as_ref()) => {}
                () = self.upkeep.asked.notified() => {}
                () = sleep(again.unwrap_or(AGAIN_AFTER)) => {}
            }
        }
    }

    /// Notes which leases have run out whenever it is this handle's turn, for as long as it is open.
    pub(super) async fn sweep_leases(self: Rc<Self>) {
        loop {
            self.upkeep.leases.notified().await;
            let swept = self.own_call(TIMEOUT_MS).sweep_leases().await;
            self.maintained("leases", swept.as_ref().err()).await;
        }
    }

    /// Notes how one part of the maintenance went. What fails is logged when it begins to, and kept in the database, where `doctor`, `store
    /// status` and the metrics show it.
    pub(super) async fn maintained(&self, part: &'static str, error: Option<&StoreError>) {
        // A database that does not answer cannot record it, and its callers learn it themselves.
        let why = match error {
            None => None,
            Some(StoreError::Unusable { message: why, .. }) => Some(why.clone()),
            Some(error) => {
                tracing::debug!(place = &*self.place, part, %error, "maintenance could not be done; it is tried again");
                return;
            }
        };
        if !self.works() {
            return;
        }
        let times = {
            let mut all = self.maintained.borrow_mut();
            match (&why, all.get_mut(part)) {
                (None, Some((0, _))) => return,
                (None, _) => {
                    all.insert(part, (0, String::new()));
                    0
                }
                (Some(why), Some((times, last))) if last == why => {
                    *times += 1;
                    *times
                }
                (Some(why), _) => {
                    all.insert(part, (1, why.clone()));
                    tracing::warn!(place = &*self.place, part, why, "maintenance fails; it is tried again");
                    1
                }
            }
        };
        if times % REPORT_EVERY > 1 {
            return;
        }
        let why = why.as_deref();
        let (sql, asked): (_, Vec<&dyn Parameter>) = match &why {
            Some(why) => ("SELECT fencehold.maintenance_failed($1, $2)", vec![&part, why]),
            None => ("SELECT fencehold.maintenance_worked($1)", vec![&part]),
        };
        if let Err(error) = self.own_call(TIMEOUT_MS).execute(sql, &asked).await {
            tracing::debug!(place = &*self.place, part, %error, "how the maintenance goes could not be noted");
        }
    }

    /// A newer program may have brought the schema up to date while this one was connected. Where this one cannot use it any more, it
    /// begins nothing new, and says so, once.
    fn saw_the_version(&self, version: migrate::SchemaStatus) {
        if let Some(seen) = self.pool.seen.get() {
            self.pool.seen.set(Some(migrate::CheckedSchema { version, ..seen }));
        }
        if version.is_too_new() && self.outdated_by.replace(version.found) != version.found {
            let why = migrate::too_new(self.schema(), version.found);
            tracing::warn!(place = &*self.place, why, "this program is older than the schema that it uses");
        }
    }

    /// The latest moment that the database's clock can say now without having jumped ahead since it was last seen.
    fn no_jump_until_ms(&self) -> Option<i64> {
        let last = self.sighting.get()?;
        Some(last.expected_ms(self.clock.now().store_ms).saturating_add(JUMP_MS))
    }

    /// Whether the database's clock, if it says this now, has jumped ahead since it was last seen.
    pub(super) fn jump(&self, said_ms: i64) -> Option<ClockJump> {
        let last = self.sighting.get()?;
        let ahead_ms = said_ms.saturating_sub(last.expected_ms(self.clock.now().store_ms));
        (ahead_ms > JUMP_MS).then_some(ClockJump { last_said_ms: last.said_ms, ahead_ms })
    }
}

impl Call<'_> {
    /// Gives when to call again.
    async fn keep_up_once(&mut self) -> Result<Duration, StoreError> {
        // The clock first: what it has jumped over must not be taken for over.
        let before_ms = self.clock.now().store_ms;
        if !self.works() {
            let sql = "SELECT max(version), max(coalesce(compatible_from, version)) FROM fencehold.migration";
            let (found, compatible_from) = self.row(sql, &[]).await?;
            self.saw_the_version(migrate::SchemaStatus { found, compatible_from });
            return Ok(AGAIN_AFTER);
        }
        let takes_part_in: &[&str] = if self.jobs.are_used() { &["leases", "jobs"] } else { &["leases"] };
        let says_alive = before_ms >= self.upkeep.alive_at_ms.get().saturating_add(ALIVE_EVERY_MS);
        let party = self.party.get().filter(|_| says_alive);
        let sendings = self.jobs.sendings();
        let sql = "SELECT * FROM fencehold.upkeep($1, $2, $3, $4)";
        let row: Row = self
            .row(sql, &[&self.upkeep.handle.get(), &takes_part_in, &party, &sendings])
            .await?;
        let UpkeepRow { at_ms, handle, version, party, parts, next_ms, should_look } = UpkeepRow::from(&row);
        self.upkeep.handle.set(Some(handle));
        if party.is_some() {
            self.upkeep.alive_at_ms.set(before_ms);
            self.party.set(party);
        }
        self.saw_the_version(version);
        self.saw_the_clock(before_ms, at_ms).await?;
        if let Some(probe) = self.listener.take_probe(handle) {
            let channel = self.pool.target.channel();
            self.execute("SELECT pg_notify($1, $2)", &[&channel.as_str(), &probe.as_str()])
                .await?;
        }
        self.jobs.wake(&should_look);
        self.upkeep.sweeps_leases.set(parts.iter().any(|part| part == "leases"));
        for part in &parts {
            match part.as_str() {
                "leases" if before_ms >= self.upkeep.swept_at_ms.get().saturating_add(SWEEP_EVERY_MS) => {
                    self.upkeep.swept_at_ms.set(before_ms);
                    self.upkeep.leases.notify_one();
                }
                "leases" => {}
                _ => self.upkeep.jobs.notify_one(),
            }
        }
        let next = Duration::from_millis(next_ms);
        Ok(if sendings.is_empty() || self.listener.hears() { next } else { next.min(LOOK_EVERY) })
    }

    async fn sweep_leases(&mut self) -> Result<(), StoreError> {
        let sweep = "SELECT fencehold.lease_sweep($1, $2)";
        loop {
            // After this moment the clock may have jumped since it was seen: then the next round looks at it first.
            let not_after_ms = self.no_jump_until_ms();
            let done: i64 = self.value(sweep, &[&SWEEP_MAX, &not_after_ms]).await?;
            if done < i64::from(SWEEP_MAX) {
                return Ok(());
            }
        }
    }

    /// The number under which this handle's waiters are alive.
    pub(super) async fn party(&mut self) -> Result<i64, StoreError> {
        match self.party.get() {
            Some(party) => Ok(party),
            None => self.say_alive().await,
        }
    }

    async fn say_alive(&mut self) -> Result<i64, StoreError> {
        let sql = "SELECT fencehold.party_lives($1)";
        let party = self.value(sql, &[&self.party.get()]).await?;
        self.party.set(Some(party));
        Ok(party)
    }

    /// Compares the database's clock with this machine's. If it has jumped ahead, nothing that is held now runs out for one
    /// ttl.
    pub(super) async fn saw_the_clock(&mut self, before_ms: u64, said_ms: i64) -> Result<(), StoreError> {
        let jump = self.jump(said_ms);
        self.sighting.set(Some(ClockReading { before_ms, said_ms }));
        let Some(ClockJump { last_said_ms, ahead_ms }) = jump else { return Ok(()) };
        tracing::warn!(
            place = &*self.place,
            ahead_ms,
            "the database's clock jumped ahead: what is held now does not run out for one ttl"
        );
        let sql = "SELECT fencehold.lease_suspend($1)";
        let before_ms = self.clock.now().store_ms;
        let said_ms = self.value(sql, &[&last_said_ms]).await?;
        // The next jump is counted from here: from a moment before this one was noted, it would be taken for the same.
        self.sighting.set(Some(ClockReading { before_ms, said_ms }));
        Ok(())
    }
}
