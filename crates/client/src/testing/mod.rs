//! For the tests of your own handlers: one job, run without a store.
//!
//! A [`TestJob`] is a job as a handler would get it; what the handler did with it is in the [`TestResult`] that comes back.
//! The ledger follows the same rules as a store's.
//!
//! ```
//! use fencehold::testing::TestJob;
//! use fencehold::{Job, JobError};
//!
//! async fn ship(job: Job, order: u64) -> Result<String, JobError> {
//!     job.once("book", async |key| Ok(format!("booked {order} under {key}")))
//!         .compensate_with("unbook", &order)
//!         .await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let run = TestJob::new("ship", &42_u64).run(ship).await;
//! assert!(run.result::<String>().is_some_and(|text| text.starts_with("booked 42")));
//! assert_eq!(run.effects_recorded(), ["book"]);
//! assert_eq!(run.compensation_of("book").map(|job| job.kind.as_str()), Some("unbook"));
//!
//! // The worker died after that, and another takes the job up:
//! let again = run.next_attempt().run(ship).await;
//! assert!(again.effects_recorded().is_empty(), "what is recorded does not happen again");
//! # }
//! ```

mod control;
mod fake_store;
mod result;
mod store;

use std::sync::Arc;

use fencehold_contract::clock::{Clock, ManualClock};
use fencehold_contract::job::ClaimedJob;
use fencehold_core::job::{EffectName, JobId, JobKind, JobOptions, QueueName};
use fencehold_core::ledger::{Effect, EffectState, InDoubtPolicy};
use fencehold_core::ttl::GrantedTerm;
use fencehold_core::{BadInput, HoldId, Owner, Token};
use serde::Serialize;

use crate::handler::{Argument, BlockingJobHandler, HandlerInput, JobHandler, States, check_arguments};
use crate::holding::{HoldGrant, Holding};
use crate::job::{AttemptReporter, Job, JobError, Outcome};
use crate::json;
use crate::time::first;
use crate::worker::{RunEnd, drive};

pub use control::TestControl;
pub(crate) use fake_store::FakeStore;
pub use result::TestResult;
pub use store::{ManualClockStore, store};

/// How long the claim of a test job lasts. Its clock stands still, so it lasts for the whole run.
const TTL_MS: u64 = 30_000;

/// A job to try a handler on.
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `run` is awaited"]
pub struct TestJob {
    claimed: Result<ClaimedJob, BadInput>,
    states: States,
    control: TestControl,
}

impl TestJob {
    /// A job of this kind with this payload, at its first attempt.
    pub fn new(kind: impl AsRef<str>, payload: &(impl Serialize + ?Sized)) -> Self {
        let claimed = || {
            Ok(ClaimedJob {
                id: JobId::from_random(1_800_000_000_000, [7; 10]),
                queue: QueueName::default(),
                kind: JobKind::new(kind.as_ref())?,
                payload: json::written("payload", payload)?,
                token: Token::new(1),
                attempt: 1,
                remaining_ms: TTL_MS,
                options: JobOptions::default(),
                failure_count: 0,
                crash_count: 0,
                labels: Vec::new(),
                traceparent: None,
                checkpoint: None,
                effects: Vec::new(),
                compensates: None,
            })
        };
        TestJob::from(claimed())
    }

    /// Which attempt it is, from 1. Its token grows with it.
    pub fn attempt(self, attempt: u32) -> Self {
        self.set(|claimed| {
            claimed.attempt = attempt;
            claimed.token = Token::new(u64::from(attempt));
        })
    }

    /// Its queue.
    pub fn queue(self, queue: impl AsRef<str>) -> Self {
        self.try_set(|claimed| QueueName::new(queue.as_ref()).map(|queue| claimed.queue = queue))
    }

    /// A label of it.
    pub fn label(self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.set(|claimed| claimed.labels.push((name.into(), value.into())))
    }

    /// Its trace context.
    pub fn traceparent(self, traceparent: impl Into<Box<str>>) -> Self {
        let traceparent = crate::trace::checked(traceparent.into());
        self.try_set(|claimed| traceparent.map(|traceparent| claimed.traceparent = Some(traceparent)))
    }

    /// Where an earlier attempt left off.
    pub fn checkpoint(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.set(|claimed| claimed.checkpoint = Some(bytes.into()))
    }

    /// An effect that an earlier attempt has recorded.
    pub fn recorded_effect(self, effect: impl AsRef<str>, value: &(impl Serialize + ?Sized)) -> Self {
        let value = json::written("value of an effect", value);
        self.effect(effect.as_ref(), EffectState::Done, value.map(Some))
    }

    /// An effect whose intent an earlier attempt has recorded, and of which it is not known whether it happened.
    pub fn intended_effect(self, effect: impl AsRef<str>, policy: InDoubtPolicy) -> Self {
        self.effect(effect.as_ref(), EffectState::Intended(policy), Ok(None))
    }

    /// It was cancelled.
    pub fn cancelled(self) -> Self {
        self.control.cancel();
        self
    }

    /// Its claim is lost from the start. The handler runs all the same, to show what it does then.
    pub fn lost(self) -> Self {
        self.control.lose();
        self
    }

    /// A job of this priority requests that it yield.
    pub fn yield_requested(self, contender: impl AsRef<str>, priority: i16) -> Self {
        match Owner::new(contender.as_ref()) {
            Ok(contender) => {
                self.control.request_yield(contender, priority);
                self
            }
            Err(bad) => TestJob { claimed: Err(bad), ..self },
        }
    }

    /// What cancels it, loses its claim, drains its worker or times it out while its handler runs.
    pub fn control(&self) -> TestControl {
        self.control.clone()
    }

    /// A state that the handler takes. See [`Worker::state`](crate::Worker::state).
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, state: T) -> Self {
        if let Err(bad) = self.states.add(state) {
            self.claimed = Err(bad);
        }
        self
    }

    /// Runs an async handler on it. A payload that does not fit is a failure, as it is with a worker.
    pub async fn run<A, H: JobHandler<A>>(self, handler: H) -> TestResult {
        self.run_with(&H::arguments(), async |input| H::result(handler.call(input)?.await))
            .await
    }

    /// Runs a blocking handler on it.
    pub fn run_blocking<A, H: BlockingJobHandler<A>>(self, handler: H) -> TestResult {
        crate::wake::block_on(self.run_with(&H::arguments(), async |input| handler.call(input)))
    }

    /// As a worker does, but for a panic: that is the test's.
    async fn run_with(
        self,
        arguments: &[Argument],
        run: impl AsyncFnOnce(&HandlerInput<'_>) -> Result<Outcome, JobError>,
    ) -> TestResult {
        let (states, control) = (self.states.clone(), self.control.clone());
        let begun = check_arguments(arguments, &states, "of the test").and_then(|()| self.begin());
        let (job, fake_store, claimed) = match begun {
            Ok(begun) => begun,
            Err(bad) => return TestResult::not_begun(bad),
        };
        let holding = &job.attempt.holding;
        let input = HandlerInput { job: &job, payload: &claimed.payload, states: &states };
        let handler = run(&input);
        let ended = if job.is_live() {
            let stopping = control.shared().stopping();
            drive(holding, first(stopping, fake_store.drive_tasks()), handler).await
        } else {
            RunEnd::Ended(handler.await)
        };
        TestResult::new(&job, claimed.clone(), &fake_store, ended)
    }

    fn from(claimed: Result<ClaimedJob, BadInput>) -> Self {
        TestJob { claimed, states: States::default(), control: TestControl::new() }
    }

    fn begin(self) -> Result<(Job, Arc<FakeStore>, ClaimedJob), BadInput> {
        let claimed = self.claimed?;
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
        let now_ms = clock.now().store_ms;
        let (hold, owner) = (HoldId::from_random([7; 16]), Owner::new("trial")?);
        let term = GrantedTerm::new(now_ms, 0, now_ms, TTL_MS);
        let granted = HoldGrant::of(&claimed, hold, owner, TTL_MS, term);
        let holding = Arc::new(Holding::new(0, granted, clock));
        self.control.begin(&holding);
        let fake_store = Arc::new(FakeStore::new(claimed.effects.clone()));
        let reporter = AttemptReporter::Kit(Arc::clone(&fake_store));
        let job = Job::new(claimed.clone(), holding, reporter, Some(Arc::clone(self.control.shared())));
        Ok((job, fake_store, claimed))
    }

    fn effect(self, name: &str, state: EffectState, value: Result<Option<Box<str>>, BadInput>) -> Self {
        self.try_set(|claimed| {
            let nth = u16::try_from(claimed.effects.len()).unwrap_or(u16::MAX);
            let token = Token::new(claimed.token.get().saturating_sub(1));
            let (name, value) = (EffectName::new(name)?, value?);
            claimed.effects.push(Effect {
                name,
                position: nth,
                token,
                written_at_ms: 0,
                state,
                value,
                compensation: None,
                compensation_job_id: None,
            });
            Ok(())
        })
    }

    gathered!(claimed: ClaimedJob);
}
