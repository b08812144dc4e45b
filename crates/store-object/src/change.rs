//! Changing one key: read, decide, write on the condition that nothing came between, and find out what became of it.
//!
//! An *attempt* is a write whose outcome is not known. It is settled by its nonce: a reader of that nonce knows that
//! the attempt was carried out. While the object still is what the attempt was based on, the attempt may yet arrive, so
//! it is never taken for lost: the write is sent again on the same condition, and at most one of the two can succeed.
//!
//! A grant is *taken up* by the first writing after it that shows that its holder knows of it: a renewal, or the same
//! request, sent again and told of it. Until then it may be given back for a caller that has gone, by its maker.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_core::lease::{
    DeadlineChange, HoldState, LeaseCommand, LeaseCommandResult, LeaseDecision, LeaseRecord, LeaseStanding,
    decide,
};
use fencehold_core::{EventData, Key, Namespace, Refusal, Timestamp, Token};
use fencehold_net::{RetryDelay, sleep};

use super::body::{ObjectBody, WriteInfo, encode};
use super::cas::{CasError, ObjectVersion, WriteResult};
use super::object_names;
use super::observations::{ObservedVersion, closed};
use super::shared::ObjectStoreInner;

/// How often others may come first, or answers be lost, before the caller gets an error.
const ROUNDS_MAX: u32 = 64;
/// The pauses after answers that were lost.
pub(super) const BACKOFF: RetryDelay = RetryDelay::new(Duration::from_millis(50), Duration::from_secs(2));
/// How often others may come first before there is a pause for that too.
const LOSSES_UNPAUSED: u32 = 2;

/// How many writes of one call were carried out, or may have been: while there is one, it is not certain that nothing was done.
#[derive(Debug, Default)]
pub(super) struct PossibleWrites {
    writes: AtomicUsize,
    /// What the storage answered last instead of an outcome, and to which object.
    last_why: Mutex<Option<String>>,
}

impl PossibleWrites {
    /// A write sets out.
    pub(super) fn begin(&self) {
        self.writes.fetch_add(1, Ordering::SeqCst);
    }

    /// It was certainly not carried out.
    pub(super) fn dispel(&self) {
        self.writes.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn is_there(&self) -> bool {
        self.writes.load(Ordering::SeqCst) > 0
    }

    /// Notes why a write about `what` has no outcome yet.
    pub(super) fn note(&self, what: &str, why: &str) {
        *self.last_why.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{what}: {why}"));
    }

    pub(super) fn last_why(&self) -> Option<String> {
        self.last_why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One call: the namespace that it is about, and what it has sent.
#[derive(Clone, Copy)]
pub(super) struct ObjectCall<'a> {
    pub(super) inner: &'a ObjectStoreInner,
    pub(super) namespace: &'a Namespace,
    pub(super) doubt: &'a PossibleWrites,
}

/// One key, and how long one request about it may take.
pub(super) struct KeyContext<'a> {
    pub(super) call: ObjectCall<'a>,
    pub(super) key: &'a Key,
    pub(super) name: String,
    pub(super) limit: Duration,
    /// Until when the call waits for a key that `store advance` has closed, on this handle's clock.
    pub(super) open_by_ms: u64,
    /// For how long `store advance` closes the key at least.
    pub(super) close_ms: u64,
    /// Whether it is to be taken, so that limits count.
    pub(super) takes: bool,
}

impl<'a> ObjectCall<'a> {
    /// One of its keys.
    pub(super) fn at(self, key: &'a Key, limit: Duration) -> Result<KeyContext<'a>, StoreError> {
        let name = object_names::of(self.namespace, key)?;
        Ok(KeyContext { call: self, key, name, limit, open_by_ms: 0, close_ms: 0, takes: false })
    }
}

/// Where a change starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeStart {
    /// From what is there now.
    Read,
    /// From what this handle saw last: one request less for the last writer, and the same answer for others.
    Last,
}

/// What is known when a change is decided.
pub(super) struct ChangeInput<'a> {
    pub(super) record: &'a LeaseRecord,
    /// Whether the holder is known to know of its hold.
    pub(super) taken_up: bool,
    /// Whether an earlier attempt may have been carried out, and overwritten since.
    pub(super) unsure: bool,
}

/// What to do about a record.
pub(super) enum NextStep {
    /// Let the rules decide this.
    Ask(LeaseCommand),
    /// It is done already.
    Answer(Result<LeaseCommandResult, Refusal>),
}

/// What came of it.
pub(super) struct ChangeResult {
    pub(super) reply: Result<LeaseCommandResult, Refusal>,
    /// The moment before the write that counts was sent; where nothing had to be written, of the decision.
    pub(super) at_ms: u64,
    /// What the decision was based on.
    pub(super) seen: Option<ObservedVersion>,
    /// What the rules said of it.
    facts: Vec<EventData>,
}

impl ChangeResult {
    fn new(
        reply: Result<LeaseCommandResult, Refusal>,
        now: Timestamp,
        seen: Option<ObservedVersion>,
        facts: &[EventData],
    ) -> Self {
        ChangeResult { reply, at_ms: now.store_ms, seen, facts: facts.to_vec() }
    }
}

struct WriteAttempt {
    body: ObjectBody,
    changed: ChangeResult,
}

impl ObjectStoreInner {
    /// Changes one key. `next` is asked anew whenever the record turns out to be another.
    pub(super) async fn change(
        &self,
        context: &KeyContext<'_>,
        start: ChangeStart,
        mut next: impl FnMut(ChangeInput<'_>) -> NextStep + Send,
    ) -> Result<ChangeResult, StoreError> {
        let (mut attempts, mut last_why) = (Vec::<WriteAttempt>::new(), String::new());
        let (mut losses, mut backoff, mut cached) = (0, BACKOFF, start == ChangeStart::Last);
        for _ in 0..ROUNDS_MAX {
            let known = if std::mem::take(&mut cached) { self.seen.last(&context.name) } else { None };
            let remembered = known.is_some();
            let seen = match known {
                Some(seen) => Some(seen),
                None => match self.look(&context.name, context.limit).await {
                    Ok(seen) => seen,
                    Err(error) if attempts.is_empty() => return Err(error),
                    Err(error) => {
                        last_why = error.to_string();
                        context.call.doubt.note(context.key.as_str(), &last_why);
                        backoff.pause().await;
                        continue;
                    }
                },
            };
            if let Some(seen) = &seen
                && let Some(at) = attempts.iter().position(|attempt| attempt.body.nonce == seen.body.nonce)
            {
                let WriteAttempt { body, changed } = attempts.swap_remove(at);
                self.note_own(context, seen.version.clone(), body, &changed);
                return Ok(changed);
            }
            let Some(floor) = self.floor_for(context, seen.as_ref()).await? else { continue };
            self.pace(seen.as_ref()).await;
            let now = self.clock.now();
            let record = self.record_of(context.key, seen.as_ref())?;
            let taken_up = seen.as_ref().is_some_and(|seen| seen.body.is_taken_up());
            let unsure = !attempts.is_empty();
            let command = match next(ChangeInput { record: &record, taken_up, unsure }) {
                NextStep::Ask(command) => command,
                NextStep::Answer(reply) => return Ok(ChangeResult::new(reply, now, seen, &[])),
            };
            let term = seen.as_ref().map_or(HoldState::Free, |seen| seen.term(now));
            let decision = decide(&LeaseStanding { now, floor, term }, &record, &command);
            let writes = changes_something(&decision) || (is_resumed(&decision.reply) && !taken_up);
            if remembered && !writes {
                // What is remembered may be long past: only a write, which is checked where it lands, may rely on it.
                continue;
            }
            self.alarm(context.key, &decision);
            let granted = matches!(&decision.reply, Ok(LeaseCommandResult::Granted(grant)) if !grant.resumed);
            if granted && let Some(ms) = seen.as_ref().and_then(|seen| seen.closed_in_ms(now)) {
                if self.opens_in_time(context, ms).await {
                    continue;
                }
                return Err(closed(ms));
            }
            // What was sent already was within the limits then, and may have been carried out.
            if granted
                && attempts.is_empty()
                && let LeaseCommand::Acquire(acquire) = &command
            {
                self.check_limits(context, acquire.ttl_ms, seen.is_none()).await?;
            }
            let changed = ChangeResult::new(decision.reply.clone(), now, seen.clone(), &decision.facts);
            if !writes {
                if seen.is_none() {
                    // Nothing is written that would find out: a key without an object, or no bucket at all?
                    self.reach(context.limit).await?;
                }
                self.count(&changed);
                return Ok(changed);
            }
            let body = self.next_body(context, seen.as_ref(), &record, &command, &decision, now);
            context.call.doubt.begin();
            let version = seen.as_ref().map(|seen| &seen.version);
            match self.cas.write(&context.name, version, encode(&body), context.limit).await {
                Ok(WriteResult::Won(version)) => {
                    self.note_own(context, version, body, &changed);
                    return Ok(changed);
                }
                Ok(WriteResult::Lost) => {
                    context.call.doubt.dispel();
                    losses += 1;
                    // Others may come first once or twice. Storage that goes on like this is not to be flooded.
                    if losses > LOSSES_UNPAUSED {
                        backoff.pause().await;
                    }
                }
                Ok(WriteResult::Unknown { why }) => {
                    tracing::debug!(key = %context.key, why, "the outcome of a write is not known: reading it back");
                    context.call.doubt.note(context.key.as_str(), &why);
                    last_why = why;
                    attempts.push(WriteAttempt { body, changed });
                    backoff.pause().await;
                }
                Err(error) => {
                    context.call.doubt.dispel();
                    if attempts.is_empty() {
                        return Err(self.refusal(error));
                    }
                    let (CasError::Unavailable { why } | CasError::Refused { why }) = error;
                    context.call.doubt.note(context.key.as_str(), &why);
                    last_why = why;
                    backoff.pause().await;
                }
            }
        }
        Err(gave_up(context, attempts.is_empty(), &last_why))
    }

    /// The floor for a key without an object; where that is to be taken, limits are read at the same time, if they are not known. `None`: it was closed, and
    /// may be open now.
    async fn floor_for(
        &self,
        context: &KeyContext<'_>,
        seen: Option<&ObservedVersion>,
    ) -> Result<Option<Token>, StoreError> {
        if seen.is_some() {
            return Ok(Some(Token::NONE));
        }
        let floor = self.floor_of_new_keys(context.call.namespace, context.limit);
        let floor = if context.takes {
            let (floor, limits) = tokio::join!(floor, self.known_limits(context.limit));
            limits?;
            floor?
        } else {
            floor.await?
        };
        match floor {
            Ok(floor) => Ok(Some(floor)),
            Err(ms) if self.opens_in_time(context, ms).await => Ok(None),
            Err(ms) => Err(closed(ms)),
        }
    }

    fn next_body(
        &self,
        context: &KeyContext<'_>,
        seen: Option<&ObservedVersion>,
        record: &LeaseRecord,
        command: &LeaseCommand,
        decision: &LeaseDecision,
        now: Timestamp,
    ) -> ObjectBody {
        let before = seen.map(|seen| &seen.body);
        let lasts_ms = match (&decision.reply, decision.deadline) {
            (_, DeadlineChange::LastsMs(ms)) => ms,
            (_, DeadlineChange::Clear) => 0,
            // To take it up is not to renew it.
            (Ok(LeaseCommandResult::Granted(grant)), DeadlineChange::Keep) => {
                grant.remaining_ms.min(age_left_ms(record, now))
            }
            (_, DeadlineChange::Keep) => before.and_then(ObjectBody::lasts_ms).unwrap_or(0),
        };
        let taken_up =
            matches!(decision.reply, Ok(LeaseCommandResult::Renewed(_))) || is_resumed(&decision.reply);
        let longest_ttl_ms = before.map_or(0, |before| before.longest_ttl_ms);
        let closed_ms = match command {
            LeaseCommand::Advance { .. } => Some(longest_ttl_ms.max(context.close_ms)),
            // A grant opens it again.
            _ if matches!(decision.deadline, DeadlineChange::LastsMs(_)) => None,
            _ => before.and_then(|before| before.closed_ms),
        };
        let writing = WriteInfo { now, lasts_ms, taken_up, closed_ms, nonce: self.nonces.next() };
        ObjectBody::next(
            before,
            context.call.namespace,
            context.key,
            decision.record.as_ref().unwrap_or(record),
            writing,
        )
    }

    /// Notes what this handle wrote. To take up what another one granted says nothing about when that term began, so it
    /// is watched for as long as before.
    fn note_own(
        &self,
        context: &KeyContext<'_>,
        version: ObjectVersion,
        body: ObjectBody,
        changed: &ChangeResult,
    ) {
        self.count(changed);
        let elsewhere = changed.seen.as_ref().is_some_and(|seen| !seen.own);
        let own = !(is_resumed(&changed.reply) && elsewhere);
        self.seen.wrote(&context.name, version, body, changed.at_ms, own);
    }

    /// Counts what came of a change, once that is known.
    fn count(&self, changed: &ChangeResult) {
        for fact in &changed.facts {
            self.measures.facts.count(fact);
        }
    }

    /// There are no events here; what must not go unnoticed is logged.
    fn alarm(&self, key: &Key, decision: &LeaseDecision) {
        for fact in &decision.facts {
            match fact {
                EventData::StoreRewound { token: shown_token, current_token } => tracing::error!(
                    store = self.place, %key, shown = shown_token.get(), current = current_token.get(),
                    "a token was shown that this store never gave: it was rewound; see `fencehold store advance`"
                ),
                EventData::StaleWriteBlocked { token: stale_token, current_token, .. } => tracing::info!(
                    store = self.place, %key, stale = stale_token.get(), current = current_token.get(),
                    "a holder whose hold is over was refused"
                ),
                _ => {}
            }
        }
    }

    /// Leaves an object alone for a moment after writing it: clouds take about one write a second of each.
    async fn pace(&self, seen: Option<&ObservedVersion>) {
        let Some(wrote_ms) = seen.filter(|seen| seen.own).map(|seen| seen.base_ms) else { return };
        let until_ms = wrote_ms.saturating_add(self.options.min_write_interval_ms);
        // A clock that is moved by hand says nothing about when the cloud will take the next write.
        if let Some(wait) = self.clock.real_time_until(until_ms) {
            sleep(wait).await;
        }
    }

    /// Waits for a key to be opened again, if that is in the time that the call has for it. A clock that is moved by
    /// hand does not move while a call waits.
    async fn opens_in_time(&self, context: &KeyContext<'_>, ms: u64) -> bool {
        let open_ms = self.clock.now().store_ms.saturating_add(ms);
        if open_ms > context.open_by_ms {
            return false;
        }
        let Some(wait) = self.clock.real_time_until(open_ms) else { return false };
        sleep(wait).await;
        true
    }
}

/// What a change says that came to no end: that nothing was done, if no write was left without an outcome.
fn gave_up(context: &KeyContext<'_>, sure: bool, last_why: &str) -> StoreError {
    if !sure {
        return StoreError::OutcomeUnknown { message: format!("{}: {last_why}", context.key) };
    }
    let why = format!(
        "{}: each of {ROUNDS_MAX} writes found that another one had come first; `fencehold store probe` shows \
         whether the storage keeps its conditions",
        context.key
    );
    StoreError::Unavailable { message: why }
}

fn changes_something(decision: &LeaseDecision) -> bool {
    decision.record.is_some() || decision.deadline != DeadlineChange::Keep
}

/// Whether a hold id got the lease that it has already.
fn is_resumed(reply: &Result<LeaseCommandResult, Refusal>) -> bool {
    matches!(reply, Ok(LeaseCommandResult::Granted(grant)) if grant.resumed)
}

/// What `max_age` leaves to the hold on record.
fn age_left_ms(record: &LeaseRecord, now: Timestamp) -> u64 {
    let hold = record.hold.as_ref();
    let ends_at_ms = hold.and_then(|hold| Some(hold.since.store_ms.saturating_add(hold.max_age_ms?.get())));
    ends_at_ms.map_or(u64::MAX, |at_ms| at_ms.saturating_sub(now.store_ms).max(1))
}
