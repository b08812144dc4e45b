//! What happens to a test job while its handler runs.

use std::fmt;
use std::sync::{Arc, Mutex};

use fencehold_core::lease::{LeaseOutcome, LeaseRenewal, YieldRequest};
use fencehold_core::{Owner, Token};

use super::TTL_MS;
use crate::error::LostCause;
use crate::holding::Holding;
use crate::wake::lock;
use crate::worker::{WorkerPhase, WorkerShared};

/// Does to a [`TestJob`](super::TestJob) what may happen to a job at any moment, also while its handler runs. Clones act on the same job.
///
/// ```
/// use fencehold::testing::TestJob;
/// use fencehold::{Job, JobError, Outcome};
/// use tokio::sync::oneshot;
///
/// async fn export(job: Job) -> Result<Outcome, JobError> {
///     job.checkpoint(b"row 17").await?;
///     job.stop_requested().await; // here it would export the next rows, and look in between
///     Ok(Outcome::release())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let test = TestJob::new("export", &());
/// let control = test.control();
/// let (run, ()) = tokio::join!(test.run(export), async { control.drain() });
/// assert!(run.released());
/// assert_eq!(run.checkpoint(), Some(&b"row 17"[..]));
/// # }
/// ```
#[derive(Clone)]
pub struct TestControl(Arc<ControlInner>);

struct ControlInner {
    /// Stands for the worker.
    shared: Arc<WorkerShared>,
    state: Mutex<ControlState>,
}

#[derive(Default)]
struct ControlState {
    /// What has happened so far.
    acts: Vec<Act>,
    /// The claim, once the handler has begun.
    holding: Option<Arc<Holding>>,
}

#[derive(Clone, Debug)]
enum Act {
    Cancel,
    Lose,
    TimeOut,
    RequestYield(Owner, i16),
}

impl TestControl {
    pub(super) fn new() -> Self {
        let shared = Arc::new(WorkerShared::without_jobs());
        TestControl(Arc::new(ControlInner { shared, state: Mutex::default() }))
    }

    /// An operator cancels the job.
    pub fn cancel(&self) {
        self.act(Act::Cancel);
    }

    /// Another attempt takes the job over. An async handler is dropped at its next await, and nothing is reported.
    pub fn lose(&self) {
        self.act(Act::Lose);
    }

    /// The attempt has taken longer than it may: an async handler is dropped at its next await, which is a failure.
    pub fn time_out(&self) {
        self.act(Act::TimeOut);
    }

    /// A job of this priority requests that it yield.
    pub fn request_yield(&self, contender: Owner, priority: i16) {
        self.act(Act::RequestYield(contender, priority));
    }

    /// The worker begins to drain.
    pub fn drain(&self) {
        self.0.shared.advance(WorkerPhase::Draining);
    }

    /// The worker has drained for as long as it may: an async handler is dropped at its next await, and the job is released.
    pub fn drain_time_out(&self) {
        self.0.shared.advance(WorkerPhase::Stopping);
    }

    pub(super) fn shared(&self) -> &Arc<WorkerShared> {
        &self.0.shared
    }

    /// The handler begins under this claim.
    pub(super) fn begin(&self, holding: &Arc<Holding>) {
        let mut state = lock(&self.0.state);
        state.acts.iter().for_each(|act| act.happen_to(holding));
        state.holding = Some(Arc::clone(holding));
    }

    fn act(&self, act: Act) {
        let mut state = lock(&self.0.state);
        if let Some(holding) = &state.holding {
            act.happen_to(holding);
        }
        state.acts.push(act);
    }
}

impl Act {
    fn happen_to(&self, holding: &Holding) {
        let token = holding.granted.token;
        match self {
            Act::Cancel => holding.call_off(),
            Act::Lose => {
                let next = Token::new(token.get().saturating_add(1));
                holding.lose(LostCause::ended(Some(LeaseOutcome::Expired), Some(next)));
            }
            Act::TimeOut => {
                holding.lose(LostCause::ended(Some(LeaseOutcome::AgedOut), None));
            }
            Act::RequestYield(contender, priority) => {
                let (contender, priority) = (contender.clone(), *priority);
                let request = YieldRequest { contender, task: None, priority, yield_in_ms: TTL_MS };
                let renewal = LeaseRenewal { token, remaining_ms: TTL_MS, yield_request: Some(request) };
                holding.renewed(holding.now_ms(), 0, &renewal);
            }
        }
    }
}

impl fmt::Debug for TestControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TestControl").field(&lock(&self.0.state).acts).finish()
    }
}
