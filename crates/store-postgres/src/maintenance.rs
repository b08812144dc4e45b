//! What a handle does without being asked: notes what has run out, says that it is alive, and watches the clock.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_net::sleep;

use super::pool::PoolLane;
use super::statement::{Call, Parameter};
use super::value::to_sql;
use super::{PostgresInner, migrate};

/// P4: what has run out is noted at most a second later.
const EVERY: Duration = Duration::from_millis(900);
/// How many rows one sweep takes, so that it never holds up others for long.
const SWEEP_MAX: i32 = 500;
/// How often a handle with a waiter says that it is alive, in rounds. It is believed for 15 s.
const ALIVE_ROUNDS: u32 = 3;
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

impl PostgresInner {
    /// For as long as the handle is open.
    pub(super) async fn keep_up(self: Rc<Self>) {
        for round in 0_u32.. {
            sleep(EVERY).await;
            let mut call = self.own_call(TIMEOUT_MS);
            // Up to the sign of life: a waiter of a busy handle must not fall out of line.
            call.lane = PoolLane::Renewals;
            let kept_up = call.keep_up_once(round).await;
            self.maintained("leases", kept_up.as_ref().err()).await;
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
    async fn keep_up_once(&mut self, round: u32) -> Result<(), StoreError> {
        // The clock first: what it has jumped over must not be taken for over. And whether another server has taken over: behind a
        // pooler there is no new connection for that.
        let now = "SELECT fencehold.lease_timeline(), fencehold.now_ms(), (SELECT max(version) FROM fencehold.migration),
                (SELECT max(coalesce(compatible_from, version)) FROM fencehold.migration)";
        let before_ms = self.clock.now().store_ms;
        let (_, said_ms, found, compatible_from): (bool, _, _, _) = self.row(now, &[]).await?;
        self.saw_the_version(migrate::SchemaStatus { found, compatible_from });
        if !self.works() {
            return Ok(());
        }
        self.saw_the_clock(before_ms, said_ms).await?;
        if self.party.get().is_some() && round.is_multiple_of(ALIVE_ROUNDS) {
            self.say_alive().await?;
        }
        self.lane = PoolLane::Calls;
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
