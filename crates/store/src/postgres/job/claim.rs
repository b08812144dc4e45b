//! Taking jobs: at once, or by standing in line.
//!
//! The line is a table that every process sees, first come first served. Only whoever is first in it is told of a job, and
//! when it has taken what it wants, the next one is. What is handed over and never picked up goes back.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use fencehold_core::job::{By, JobId, Terms};
use fencehold_core::{HoldHash, Token};
use futures_util::future::{Either, select};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::decide::{About, Decided, decide_in, read};
use super::row::{Bits, Extra, Json, from_sql, terms_of, to_sql};
use crate::engine::Replay;
use crate::error::StoreError;
use crate::job::{ClaimRequest, Claimed, ClaimedJob};
use crate::lease::Call;
use crate::postgres::errand::{Errand, pause};
use crate::postgres::{Core, Order, Repeat, closed};

/// For how long a lane is searched only from where jobs were last found: what was committed out of order, or given back by
/// a claim that broke off, lies below, and is found after this time.
const HEAD_TRUSTED_MS: u64 = 1_000;
/// Where another session's snapshot keeps the server from clearing away what was taken, a search of the whole lane takes long: at
/// most one part of so many of the time goes into it, as long as nobody is kept waiting for more than so long.
const SEARCH_SHARE: u64 = 20;
const HEAD_TRUSTED_MS_MAX: u64 = 10_000;
/// For how long a claim that does not wait gives way to those in line who have something to take.
const POLITE_TRIES: u32 = 25;
const POLITE_PAUSE: Duration = Duration::from_millis(20);
/// How far a turn moves the clock of a queue of weight 1: as in `fencehold_core::job::Turns`.
const STRIDE: u64 = 1 << 20;

/// What a handle remembers from one claim to the next. Losing it costs nothing but time.
#[derive(Debug, Default)]
pub(super) struct Memory {
    heads: HashMap<i32, Head>,
    /// Whose turn it is among queues, by their own clocks.
    clocks: HashMap<(String, String), u64>,
    clock: u64,
}

/// Where the jobs of a lane were last found, and when all of it was last searched, by this machine's clock.
#[derive(Clone, Copy, Debug)]
struct Head {
    arrival: i64,
    searched_ms: u64,
    trusted_ms: u64,
}

/// What a claim came to.
struct Taken {
    now_ms: u64,
    became: Became,
    jobs: Vec<ClaimedJob>,
}

/// How a claim comes to its jobs.
enum Way<'a> {
    /// Behind those who stand in line.
    AtOnce,
    /// Past those who stand in line and do not take what is there.
    PastTheLine,
    /// From its place in line, unless whoever asked has gone.
    InLine { sending: Bits, gone: &'a dyn Fn() -> bool },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Became {
    Served,
    /// It was served before, and has these jobs.
    Repeated,
    /// The store is closed for so long.
    Closed(u64),
    /// Its time in line is up.
    TooLate,
    /// A later sending has taken its place.
    Replaced,
    /// Others stand in line before it, for something that is there.
    Behind,
}

/// Claimed jobs on their way to whoever asked for them. Dropped on the way, they go back.
pub(super) struct Handed {
    claimed: Option<Claimed>,
    given: Vec<(JobId, By)>,
    call: Call,
    orders: mpsc::UnboundedSender<Order>,
}

impl Handed {
    fn new(call: &Call, orders: &mpsc::UnboundedSender<Order>, hash: HoldHash, claimed: Claimed) -> Self {
        let given = claimed.jobs.iter().map(|job| (job.id, By { hash, token: job.token })).collect();
        Handed { claimed: Some(claimed), given, call: call.clone(), orders: orders.clone() }
    }

    /// They have arrived.
    pub(super) fn take(mut self) -> Claimed {
        self.claimed.take().unwrap_or(Claimed { jobs: Vec::new(), waited_ms: 0 })
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if self.claimed.take().is_none() || self.given.is_empty() {
            return;
        }
        let (given, call) = (std::mem::take(&mut self.given), self.call.clone());
        let _ = self.orders.send(Box::new(move |core| {
            Box::pin(async move {
                let mut errand = Errand::new(&core.clock, &core.place, call.patience_ms, 0);
                if let Err(why) = core.hand_back(&mut errand, &call, &given).await {
                    tracing::warn!(%why, "jobs that nobody picked up could not be given back; their claims will run out");
                }
            })
        }));
    }
}

impl Core {
    /// Serves one claim, waiting for the first job if need be.
    pub(super) async fn serve_claim(
        &self,
        call: &Call,
        request: &ClaimRequest,
        orders: &mpsc::UnboundedSender<Order>,
        mut reply: oneshot::Sender<Result<Handed, StoreError>>,
    ) {
        let mut errand = Errand::new(&self.clock, &self.place, call.patience_ms, 0);
        let hash = request.hold.hash();
        let hand = |claimed: Claimed| Handed::new(call, orders, hash, claimed);
        let answer = match self.take_politely(&mut errand, call, request).await {
            Ok(Taken { became: Became::Closed(ms), .. }) => Err(still_closed(ms)),
            Ok(taken) if !taken.jobs.is_empty() || request.wait_ms == 0 => {
                Ok(hand(Claimed { jobs: taken.jobs, waited_ms: 0 }))
            }
            Ok(_) => match self.stand_in_line(call, request, &mut reply).await {
                Some(answer) => answer.map(hand),
                None => return,
            },
            Err(error) => Err(error),
        };
        // Whoever has gone drops what it was handed, and so it goes back.
        let _ = reply.send(answer);
    }

    /// Gives jobs back that were claimed for somebody who had gone, unless the same claim was sent again and has them.
    async fn hand_back(
        &self,
        errand: &mut Errand,
        call: &Call,
        given: &[(JobId, By)],
    ) -> Result<(), StoreError> {
        let ids: Vec<Bits> = given.iter().map(|(id, _)| (*id).into()).collect();
        let tokens: Vec<i64> = given.iter().map(|(_, by)| to_sql(by.token.get())).collect();
        let lock_ms = Core::lock_ms(errand);
        let decided = self
            .run(errand, Repeat::Safe, async |client| {
                let transaction = client.transaction().await?;
                let sql = self.sql("SELECT * FROM fencehold.job_unheard($1, $2)");
                let rows = transaction
                    .query_typed(&sql, &[(&ids, Type::UUID_ARRAY), (&tokens, Type::INT8_ARRAY)])
                    .await?;
                let unheard: Vec<JobId> =
                    rows.iter().map(|row| JobId::from_bytes(row.get::<_, Bits>(0).0)).collect();
                let given: Vec<(JobId, By)> =
                    given.iter().filter(|(id, _)| unheard.contains(id)).copied().collect();
                let about = About::jobs(&call.namespace, unheard);
                let act = |replay: &mut Replay| replay.abandon(&given);
                let decided = decide_in(self, &transaction, &about, lock_ms, VecDeque::new(), act).await?;
                if matches!(decided, Decided::Kept(())) {
                    transaction.commit().await?;
                }
                Ok(decided)
            })
            .await?;
        match decided {
            // Somebody came in between, and it was rolled back: their claims run out by themselves.
            Decided::Kept(()) | Decided::Again => Ok(()),
            Decided::Damaged(why) => Err(StoreError::Unusable { place: self.place.clone(), why }),
        }
    }

    /// Takes what there is. Those in line come first; but one of them that does not take what is there is passed over after a
    /// moment: it may be dead, or about to leave.
    async fn take_politely(
        &self,
        errand: &mut Errand,
        call: &Call,
        request: &ClaimRequest,
    ) -> Result<Taken, StoreError> {
        if request.wait_ms == 0 {
            for _ in 0..POLITE_TRIES {
                let taken = self.take_jobs(errand, call, request, &Way::AtOnce).await?;
                if !taken.jobs.is_empty() || taken.became != Became::Behind {
                    return Ok(taken);
                }
                pause(POLITE_PAUSE).await;
            }
        }
        let way = if request.wait_ms == 0 { Way::PastTheLine } else { Way::AtOnce };
        self.take_jobs(errand, call, request, &way).await
    }

    /// Waits for the first job. `None`: the asker has gone.
    async fn stand_in_line(
        &self,
        call: &Call,
        request: &ClaimRequest,
        reply: &mut oneshot::Sender<Result<Handed, StoreError>>,
    ) -> Option<Result<Claimed, StoreError>> {
        let mut errand = Errand::new(&self.clock, &self.place, call.patience_ms, request.wait_ms);
        let ear = self.listen(&format!("line/{}", Bits::from(request.hold.hash()).text()));
        let (since_ms, sending) = match self.line_up(&mut errand, call, request).await {
            Ok(place) => place,
            Err(error) => return Some(Err(error)),
        };
        let place = self.jobs.line.stand(sending);
        let mut closing = self.closing.clone();
        let answer = loop {
            if reply.is_closed() {
                self.leave_line(call, request, sending).await;
                return None;
            }
            // Each look is a request of its own, and its patience starts with it.
            let mut errand = Errand::new(&self.clock, &self.place, call.patience_ms, 0);
            let way = Way::InLine { sending, gone: &|| reply.is_closed() };
            match self.take_jobs(&mut errand, call, request, &way).await {
                Ok(Taken { became: Became::Replaced, .. }) => {
                    let why = "the same claim was sent again, and the later one stands in line".to_owned();
                    return Some(Err(StoreError::Unavailable { why }));
                }
                Ok(Taken { became: Became::Closed(ms), .. }) => break Err(still_closed(ms)),
                Ok(taken) if !taken.jobs.is_empty() || taken.became == Became::TooLate => {
                    let waited_ms = taken.now_ms.saturating_sub(since_ms);
                    if taken.jobs.is_empty() {
                        break Ok(Claimed { jobs: Vec::new(), waited_ms });
                    }
                    return Some(Ok(Claimed { jobs: taken.jobs, waited_ms }));
                }
                Ok(_) => {}
                Err(error) => break Err(error),
            }
            let heard = std::pin::pin!(ear.heard());
            let beaten = std::pin::pin!(place.beaten());
            let stirred = std::pin::pin!(select(heard, beaten));
            let gone = std::pin::pin!(reply.closed());
            let shut = std::pin::pin!(closing.wait_for(|closing| *closing));
            match select(select(stirred, gone), shut).await {
                Either::Left(_) => {}
                Either::Right(_) => break Err(closed()),
            }
        };
        self.leave_line(call, request, sending).await;
        Some(answer)
    }

    async fn line_up(
        &self,
        errand: &mut Errand,
        call: &Call,
        request: &ClaimRequest,
    ) -> Result<(u64, Bits), StoreError> {
        let queues: Vec<&str> = request.queues.iter().map(|(queue, _)| queue.as_str()).collect();
        let (hash, namespace) = (Bits::from(request.hold.hash()), call.namespace.as_str());
        let (wait_ms, before_ms) = (to_sql(request.wait_ms), to_sql(request.waited_before_ms));
        self.run(errand, Repeat::Safe, async |client| {
            let sql = self.sql("SELECT * FROM fencehold.job_line_up($1, $2, $3, $4, $5)");
            let rows = client
                .query_typed(
                    &sql,
                    &[
                        (&namespace, Type::TEXT),
                        (&queues, Type::TEXT_ARRAY),
                        (&hash, Type::UUID),
                        (&wait_ms, Type::INT8),
                        (&before_ms, Type::INT8),
                    ],
                )
                .await?;
            let row = rows.first();
            Ok(row.map_or((0, Bits([0; 16])), |row| (from_sql(row.get(0)), row.get(1))))
        })
        .await
    }

    async fn leave_line(&self, call: &Call, request: &ClaimRequest, sending: Bits) {
        let mut errand = Errand::new(&self.clock, &self.place, call.patience_ms, 0);
        let (hash, namespace) = (Bits::from(request.hold.hash()), call.namespace.as_str());
        let left = self
            .run(&mut errand, Repeat::Safe, async |client| {
                let sql = self.sql("SELECT fencehold.job_leave_line($1, $2, $3)");
                let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
                    [(&namespace, Type::TEXT), (&hash, Type::UUID), (&sending, Type::UUID)];
                client.query_typed(&sql, &parameters).await.map(drop)
            })
            .await;
        if let Err(why) = left {
            // Its place is no longer kept up, and so it falls out of the line by itself.
            tracing::debug!(%why, "a claim could not leave its line");
        }
    }

    /// Takes what there is, once.
    async fn take_jobs(
        &self,
        errand: &mut Errand,
        call: &Call,
        request: &ClaimRequest,
        way: &Way<'_>,
    ) -> Result<Taken, StoreError> {
        let (lanes, heads) = self.jobs.memory.borrow().trusted_heads(self.clock.now().store_ms);
        let mut taken = self.take_from(errand, call, request, way, &lanes, &heads).await?;
        if taken.jobs.is_empty() && taken.became == Became::Served && !lanes.is_empty() {
            // Perhaps below.
            taken = self.take_from(errand, call, request, way, &[], &[]).await?;
        }
        Ok(taken)
    }

    async fn take_from(
        &self,
        errand: &mut Errand,
        call: &Call,
        request: &ClaimRequest,
        way: &Way<'_>,
        lanes: &[i32],
        heads: &[i64],
    ) -> Result<Taken, StoreError> {
        let names: Vec<&str> = request.queues.iter().map(|(queue, _)| queue.as_str()).collect();
        let weights: Vec<i32> = request
            .queues
            .iter()
            .map(|(_, weight)| i32::try_from(*weight).unwrap_or(i32::MAX))
            .collect();
        let turns = self.jobs.memory.borrow().turns(call.namespace.as_str(), &names);
        let namespace = call.namespace.as_str();
        let limit = i32::try_from(request.limit).unwrap_or(i32::MAX);
        let hash = Bits::from(request.hold.hash());
        let owner = request.owner.as_str();
        let ttl_ms = to_sql(request.ttl_ms);
        let (sending, pushes) = match way {
            Way::AtOnce => (None, false),
            Way::PastTheLine => (None, true),
            Way::InLine { sending, .. } => (Some(*sending), false),
        };
        let sent_ms = self.clock.now().store_ms;
        let rows = self
            .run(errand, Repeat::Safe, async |client| {
                let sql = self.sql(
                    "SELECT * FROM fencehold.job_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
                );
                let asked: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 12] = [
                    (&namespace, Type::TEXT),
                    (&names, Type::TEXT_ARRAY),
                    (&weights, Type::INT4_ARRAY),
                    (&turns, Type::INT8_ARRAY),
                    (&limit, Type::INT4),
                    (&hash, Type::UUID),
                    (&owner, Type::TEXT),
                    (&ttl_ms, Type::INT8),
                    (&lanes, Type::INT4_ARRAY),
                    (&heads, Type::INT8_ARRAY),
                    (&sending, Type::UUID),
                    (&pushes, Type::BOOL),
                ];
                let Way::InLine { gone, .. } = way else { return client.query_typed(&sql, &asked).await };
                // Nothing is taken for somebody who is known to have gone.
                let transaction = client.transaction().await?;
                let rows = transaction.query_typed(&sql, &asked).await?;
                if gone() {
                    transaction.rollback().await?;
                    return Ok(Vec::new());
                }
                transaction.commit().await?;
                Ok(rows)
            })
            .await?;
        let search_ms = self.clock.now().store_ms.saturating_sub(sent_ms);
        let mut taken = Taken { now_ms: 0, became: Became::Served, jobs: Vec::new() };
        let mut urgent = Vec::new();
        let mut clocks: Vec<u64> = Vec::new();
        let mut found: HashMap<i32, i64> = HashMap::new();
        for row in &rows {
            match row.get::<_, Option<Bits>>(0) {
                Some(id) => {
                    let job = claimed(row, id, request)
                        .map_err(|why| StoreError::Unusable { place: self.place.clone(), why })?;
                    urgent.extend(row.get::<_, bool>("urgent").then_some(job.id));
                    let last = found.entry(row.get("lane")).or_default();
                    *last = (*last).max(row.get("arrival"));
                    taken.jobs.push(job);
                }
                None => match row.get::<_, Option<i64>>("token") {
                    Some(now_ms) => {
                        taken.now_ms = from_sql(now_ms);
                        taken.became = match row.get::<_, i32>("queue") {
                            1 => Became::Repeated,
                            -1 => Became::Closed(from_sql(row.get("remaining_ms"))),
                            -2 => Became::TooLate,
                            -3 => Became::Replaced,
                            -4 => Became::Behind,
                            _ => taken.became,
                        };
                    }
                    None => clocks.push(from_sql(row.get("remaining_ms"))),
                },
            }
        }
        let now_ms = self.clock.now().store_ms;
        let given = if taken.became == Became::Repeated { 0 } else { taken.jobs.len() };
        self.jobs.memory.borrow_mut().note_heads(&found, lanes, now_ms, search_ms);
        self.jobs
            .memory
            .borrow_mut()
            .note_turns(namespace, &request.queues, given, &clocks);
        if !urgent.is_empty() {
            let about = About::jobs(&call.namespace, urgent.clone());
            let withdrawn = self
                .decide(errand, Repeat::Safe, &about, |replay| replay.need_no_room(&urgent))
                .await;
            if let Err(why) = withdrawn {
                // The jobs are claimed, whatever becomes of this: their asker gets them.
                tracing::debug!(%why, "a request for room that nobody needs any more could not be withdrawn");
            }
        }
        Ok(taken)
    }
}

impl Memory {
    fn trusted_heads(&self, now_ms: u64) -> (Vec<i32>, Vec<i64>) {
        let fresh = |head: &Head| now_ms.saturating_sub(head.searched_ms) < head.trusted_ms;
        self.heads
            .iter()
            .filter(|(_, head)| fresh(head))
            .map(|(lane, head)| (*lane, head.arrival))
            .unzip()
    }

    fn note_heads(&mut self, found: &HashMap<i32, i64>, trusted: &[i32], now_ms: u64, search_ms: u64) {
        let trusted_ms = search_ms
            .saturating_mul(SEARCH_SHARE)
            .clamp(HEAD_TRUSTED_MS, HEAD_TRUSTED_MS_MAX);
        for (lane, arrival) in found {
            match self.heads.get_mut(lane) {
                Some(head) if trusted.contains(lane) => head.arrival = head.arrival.max(*arrival),
                _ => drop(
                    self.heads
                        .insert(*lane, Head { arrival: *arrival, searched_ms: now_ms, trusted_ms }),
                ),
            }
        }
    }

    fn turns(&self, namespace: &str, queues: &[&str]) -> Vec<i64> {
        let clock = |queue: &&str| self.clocks.get(&(namespace.to_owned(), (*queue).to_owned())).copied();
        queues
            .iter()
            .map(|queue| to_sql(clock(queue).unwrap_or(0).max(self.clock)))
            .collect()
    }

    /// The clocks after a claim of several queues; the last of them is the one by which all go. Of one queue: so many turns.
    fn note_turns(&mut self, namespace: &str, queues: &[crate::job::Weighted], taken: usize, clocks: &[u64]) {
        let key = |queue: &fencehold_core::job::Queue| (namespace.to_owned(), queue.as_str().to_owned());
        if let [(queue, weight)] = queues
            && let Ok(taken @ 1..) = u64::try_from(taken)
        {
            let step = STRIDE / u64::from((*weight).max(1)).min(STRIDE);
            let first = self.clocks.get(&key(queue)).copied().unwrap_or(0).max(self.clock);
            self.clock = first + step * (taken - 1);
            self.clocks.insert(key(queue), self.clock + step);
        } else if let Some((last, clocks)) = clocks.split_last() {
            self.clock = self.clock.max(*last);
            for ((queue, _), clock) in queues.iter().zip(clocks) {
                self.clocks.insert(key(queue), *clock);
            }
        }
    }
}

fn still_closed(for_ms: u64) -> StoreError {
    let why = format!("after `store advance` nobody is granted anything for another {for_ms} ms");
    StoreError::Unavailable { why }
}

/// A row of a claim.
fn claimed(row: &Row, id: Bits, request: &ClaimRequest) -> Result<ClaimedJob, String> {
    let nth: Option<i32> = row.get("queue");
    let named = nth
        .and_then(|nth| usize::try_from(nth - 1).ok())
        .and_then(|nth| request.queues.get(nth));
    let (queue, _) = named.ok_or("a claimed job is in none of the queues that were named")?;
    let terms: Option<Json> = row.get("terms");
    let terms: Option<Terms> = terms.map(|json| read("job's terms", &json.0)).transpose()?;
    let extra: Option<Json> = row.get("extra");
    let extra: Extra = extra.map(|json| read("job", &json.0)).transpose()?.unwrap_or_default();
    let effects: Option<Json> = row.get("effects");
    let mut effects: Vec<fencehold_core::ledger::Effect> = effects
        .map(|json| read("job's effects", &json.0))
        .transpose()?
        .unwrap_or_default();
    effects.sort_by_key(|effect| effect.nth);
    let small = |number: i32| u16::try_from(number).unwrap_or(u16::MAX);
    Ok(ClaimedJob {
        id: JobId::from_bytes(id.0),
        queue: queue.clone(),
        kind: fencehold_core::job::Kind::new(row.get::<_, &str>("kind")).map_err(|bad| bad.to_string())?,
        payload: row.get::<_, String>("payload").into(),
        token: Token::new(from_sql(row.get("token"))),
        attempt: u32::try_from(row.get::<_, i64>("attempt")).unwrap_or(u32::MAX),
        remaining_ms: from_sql(row.get("remaining_ms")),
        terms: terms_of(terms, row.get("priority")),
        failures: small(row.get("failures")),
        crashes: small(row.get("crashes")),
        labels: extra.labels,
        trace: extra.trace,
        checkpoint: row.get("checkpoint"),
        effects,
        undo_of: extra.undo_of,
    })
}
