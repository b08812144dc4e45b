//! Workers: jobs claimed, run and reported.
//!
//! Nouns: a *slot* is what one job needs to run; the *shelf* holds jobs that are claimed and not yet begun. Renewal is the
//! handle's own, for all jobs in one call; what jobs have to say is gathered by the handle too.
//!
//! Deliberately absent: an executor. Where a worker is started in a Tokio runtime, its async handlers are tasks of that one.
//! Elsewhere a thread drives one handler to its end, so none needs a particular runtime. Blocking handlers always have threads.

mod claim;
mod drive;
mod event;
mod handler;
#[cfg(feature = "tower")]
mod layer;
mod prefetch;
mod run;
mod shared;
mod signals;
mod slot;
mod threads;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::job::{ClaimedJob, QueueWeight};
use fencehold_core::job::QueueName;
use fencehold_core::limits::{JOBS_PER_CALL_MAX, QUEUES_PER_CLAIM_MAX};
use fencehold_core::{BadInput, Owner};

pub(crate) use drive::{RunEnd, drive, report_of};
pub use event::{EndedAttempt, WorkerEvent};
#[cfg(feature = "tower")]
pub use layer::{AttemptRequest, HandlerService};
pub use run::{Drained, RunningWorker, WorkerStats};
pub(crate) use shared::{WorkerPhase, WorkerShared};

use crate::connect::Fencehold;
use crate::connection::ConnectionInner;
use crate::error::Error;
use crate::handler::{BlockingJobHandler, JobHandler};
use crate::holding::Holding;
use crate::job::{AttemptReporter, Job};
use crate::lease::TTL_DEFAULT;
use crate::renewal::RenewalHandle;
use crate::time::ms;
use event::OnEvent;
use handler::Handlers;
use prefetch::PrefetchPace;
use threads::Within;

/// How many jobs at once, by default.
const CONCURRENCY_DEFAULT: usize = 8;
/// How long running jobs have to end when the worker drains, by default. Less than the half minute that most supervisors
/// give.
const DRAIN_DEFAULT: Duration = Duration::from_secs(25);
/// How long a handler that must stop has to come to its next await, or to its end if it is a blocking one, by default.
const STOP_DEFAULT: Duration = Duration::from_secs(1);

impl Fencehold {
    /// A worker: takes jobs out of queues and has handlers run them.
    pub fn worker(&self) -> Worker {
        let terms = WorkerTerms {
            owner: self.owner().clone(),
            queues: Vec::new(),
            handlers: Handlers::default(),
            concurrency: CONCURRENCY_DEFAULT,
            prefetch: None,
            ttl_ms: ms(TTL_DEFAULT),
            drain_ms: ms(DRAIN_DEFAULT),
            cancel_ms: None,
            stop_ms: ms(STOP_DEFAULT),
            until_empty: false,
            on_event: None,
            within: None,
            runtime: None,
        };
        Worker { fencehold: self.clone(), terms: Ok(terms) }
    }
}

/// Takes jobs out of queues and has handlers run them.
///
/// ```no_run
/// use std::time::Duration;
/// use fencehold::{Fencehold, Job, JobError};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Send { to: String }
///
/// async fn send(job: Job, send: Send) -> Result<String, JobError> {
///     let id = job.once("smtp", async |key| Ok(format!("sent to {} under {key}", send.to))).await?;
///     Ok(id) // the job's result
/// }
///
/// # async fn example() -> Result<(), fencehold::Error> {
/// let fh = Fencehold::connect("file:/var/lib/app/jobs").await?;
/// fh.worker()
///     .weighted_queue("emails", 3) // three of these
///     .queue("reports") // to one of those
///     .concurrency(8)
///     .ttl(Duration::from_secs(30))
///     .handle("send", send)
///     .run() // until SIGTERM or SIGINT
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// - A claim that is lost stops its handler: the future is dropped at its next await. A blocking handler looks at
///   [`is_live`](crate::Job::is_live) between its steps.
/// - An error, a panic, a payload that does not fit, a kind without a handler and an attempt over its time limit are
///   failures. A worker that dies is a crash.
/// - Several jobs run at once: async handlers as tasks of the Tokio runtime in which the worker is started, blocking ones on threads.
///   Without such a runtime, all run on threads. Completions are sent together and no slot waits for them.
#[must_use = "nothing happens until `run`, `run_until` or `start` is called"]
pub struct Worker {
    fencehold: Fencehold,
    terms: Result<WorkerTerms, BadInput>,
}

struct WorkerTerms {
    owner: Owner,
    queues: Vec<QueueWeight>,
    handlers: Handlers,
    concurrency: usize,
    prefetch: Option<usize>,
    ttl_ms: u64,
    drain_ms: u64,
    cancel_ms: Option<u64>,
    stop_ms: u64,
    until_empty: bool,
    on_event: Option<OnEvent>,
    within: Option<Within>,
    /// Where async handlers run as tasks. `None`: on threads.
    runtime: Option<tokio::runtime::Handle>,
}

/// What the threads of a worker have.
#[derive(Clone)]
struct WorkerCore {
    handle: Arc<RenewalHandle>,
    shared: Arc<WorkerShared>,
    terms: Arc<WorkerTerms>,
}

impl WorkerCore {
    fn connection(&self) -> &Arc<ConnectionInner> {
        &self.handle.connection
    }

    fn job(&self, claimed: ClaimedJob, holding: Arc<Holding>) -> Job {
        let reporter = AttemptReporter::Store(Arc::clone(&self.handle));
        Job::new(claimed, holding, reporter, Some(Arc::clone(&self.shared)))
    }
}

impl Worker {
    /// The most jobs that one worker runs at once.
    pub const CONCURRENCY_MAX: usize = JOBS_PER_CALL_MAX / 2;

    /// A queue to take jobs from. Of several, each has as many turns as the others.
    pub fn queue(self, name: impl AsRef<str>) -> Self {
        self.weighted_queue(name, 1)
    }

    /// A queue with this share of the turns: of weight 3, it has three times as many as one of weight 1, which is that of a
    /// plain [`queue`](Worker::queue). A weight of 0 is refused: leave the queue out.
    pub fn weighted_queue(self, name: impl AsRef<str>, weight: u32) -> Self {
        self.try_set(|terms| QueueName::new(name.as_ref()).map(|queue| terms.queues.push((queue, weight))))
    }

    /// How many jobs run at once. Default: 8.
    pub fn concurrency(self, concurrency: usize) -> Self {
        self.set(|terms| terms.concurrency = concurrency)
    }

    /// At most how many jobs are claimed ahead of the slots that will run them. As many are as the pace of the work
    /// makes useful: none where jobs take long. Default: as many as there are slots.
    pub fn prefetch(self, most: usize) -> Self {
        self.set(|terms| terms.prefetch = Some(most))
    }

    /// How long a claim or a renewal lasts: how long a job stays away when this worker dies. Default: 30 s.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.set(|terms| terms.ttl_ms = ms(ttl))
    }

    /// Who works. Default: the handle's owner.
    pub fn owner(self, owner: impl AsRef<str>) -> Self {
        self.try_set(|terms| Owner::new(owner.as_ref()).map(|owner| terms.owner = owner))
    }

    /// How long running jobs have to end when the worker drains. What has not ended by then is stopped and released.
    /// Default: 25 s.
    pub fn drain_timeout(self, limit: Duration) -> Self {
        self.set(|terms| terms.drain_ms = ms(limit))
    }

    /// How long a handler has to stop by itself once its job was cancelled. Then it is dropped. Default: as long as it
    /// takes.
    pub fn cancel_timeout(self, limit: Duration) -> Self {
        self.set(|terms| terms.cancel_ms = Some(ms(limit)))
    }

    /// How long the worker waits, once the [drain timeout](Worker::drain_timeout) is over, for handlers that cannot be
    /// dropped: a blocking one, or an async one that does not come to an await. A blocking handler learns of that moment by
    /// [`Job::drain_timed_out`](crate::Job::drain_timed_out), and should end within this time. Default: 1 s.
    ///
    /// A handler that still runs afterwards is counted in [`Drained::still_running`], and draining ends without it. Its
    /// claim is renewed for as long as it runs, so that no other worker runs the job beside it.
    pub fn stop_timeout(self, limit: Duration) -> Self {
        self.set(|terms| terms.stop_ms = ms(limit))
    }

    /// Works until no job is ready in any of its queues and none of its own runs, and then ends by itself, without a
    /// signal. For batch work: fill a queue, run the worker, go on when it returns.
    ///
    /// Not waited for are jobs that become ready later (a delay, a schedule, another attempt after a failure), jobs of a
    /// paused queue, and jobs that other workers run. A job that becomes ready while others still run is run too.
    /// A handler may enqueue a job and wait for it, where there is a slot for that one too.
    ///
    /// ```
    /// use fencehold::{Fencehold, Job};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// let fh = Fencehold::connect("memory:").await?;
    /// fh.queue("emails").job("send", "a@example.org").enqueue().await?;
    /// let worker = fh.worker().queue("emails").handle("send", async |_: Job, _: String| {});
    /// assert_eq!(worker.until_empty().run().await?.finished, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn until_empty(self) -> Self {
        self.set(|terms| terms.until_empty = true)
    }

    /// Calls this for what happens to the worker: each attempt that ended, with the store's response, and a store that
    /// gives no jobs or takes no reports. It is called on the threads that work and renew, so it must not block.
    ///
    /// ```
    /// use fencehold::{Fencehold, Job, WorkerEvent};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// # let fh = Fencehold::connect("memory:").await?;
    /// # fh.queue("emails").job("send", "a@example.org").enqueue().await?;
    /// let (log, lines) = std::sync::mpsc::channel();
    /// let worker = fh.worker().queue("emails").handle("send", async |_: Job, _: String| {});
    /// let worker = worker.on_event(move |event| {
    ///     if let WorkerEvent::AttemptEnded(end) = event {
    ///         let _ = log.send(format!("{} attempt {}: {:?}", end.job.kind(), end.job.attempt(), end.outcome));
    ///     }
    /// });
    /// worker.until_empty().run().await?;
    /// assert_eq!(lines.recv().as_deref(), Ok("send attempt 1: Some(Completed)"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_event(self, hook: impl Fn(&WorkerEvent<'_>) + Send + Sync + 'static) -> Self {
        self.set(|terms| terms.on_event = Some(Arc::new(hook)))
    }

    /// Runs all handlers on threads, async ones too, and wraps these threads in something of yours, such as the context of
    /// another runtime. Default: async handlers run as tasks of the Tokio runtime in which the worker is started, if it is started
    /// in one, and threads run in its context, so that handlers can use its timers and sockets.
    ///
    /// ```
    /// # async fn example(fh: fencehold::Fencehold) {
    /// let runtime = tokio::runtime::Handle::current();
    /// let worker = fh.worker().wrap(move |slot| {
    ///     let _entered = runtime.enter();
    ///     slot();
    /// });
    /// # drop(worker);
    /// # }
    /// ```
    pub fn wrap(self, wrap: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        self.set(|terms| terms.within = Some(Arc::new(wrap)))
    }

    /// A value of your program that handlers take as an argument, by its type: a [`State`](crate::State). It is cloned for
    /// each attempt.
    pub fn state<T: Clone + Send + Sync + 'static>(self, state: T) -> Self {
        self.try_set(|terms| terms.handlers.add_state(state))
    }

    /// Has jobs of this kind run by an async handler: a function of the job, its payload and [states](Worker::state), or of some
    /// of them, in any order. It gets the payload as the type that it asks for; what it returns is the job's result. See
    /// [`handler`](crate::handler).
    pub fn handle<A, H>(self, kind: impl AsRef<str>, handler: H) -> Self
    where
        H: JobHandler<A, Future: Send + 'static> + Send + Sync + 'static,
    {
        self.try_set(|terms| terms.handlers.add(kind.as_ref(), handler::asynchronous(handler)))
    }

    /// Has jobs of every kind that has no handler of its own run by this async handler. [`Job::kind`] says which kind it
    /// is.
    pub fn handle_any<A, H>(self, handler: H) -> Self
    where
        H: JobHandler<A, Future: Send + 'static> + Send + Sync + 'static,
    {
        self.try_set(|terms| terms.handlers.add_any(handler::asynchronous(handler)))
    }

    /// Has jobs of this kind run by a blocking handler, on a thread. It cannot be stopped from outside: long
    /// work looks at [`is_live`](crate::Job::is_live) between its steps, or waits for [`lost`](crate::Job::lost) and
    /// [`drain_timed_out`](crate::Job::drain_timed_out).
    pub fn handle_blocking<A, H>(self, kind: impl AsRef<str>, handler: H) -> Self
    where
        H: BlockingJobHandler<A> + Send + Sync + 'static,
    {
        self.try_set(|terms| terms.handlers.add(kind.as_ref(), handler::blocking(handler)))
    }

    /// Has jobs of every kind that has no handler of its own run by this blocking handler.
    pub fn handle_any_blocking<A, H>(self, handler: H) -> Self
    where
        H: BlockingJobHandler<A> + Send + Sync + 'static,
    {
        self.try_set(|terms| terms.handlers.add_any(handler::blocking(handler)))
    }

    gathered!(terms: WorkerTerms);

    /// Works until this process is sent SIGTERM or SIGINT, and then ends in good order: nothing new is claimed, what was
    /// not begun is released, and what runs has the [drain timeout](Worker::drain_timeout) to end. A second signal cuts
    /// that short. Afterwards the signals do what they did before.
    pub async fn run(self) -> Result<Drained, Error> {
        let mut signals = signals::StopSignals::listen().map_err(|error| Error::Unavailable {
            message: format!("signals cannot be listened for: {error}"),
        })?;
        let running = self.start()?;
        running.until(signals.next()).await;
        running.drain_until(signals.next()).await
    }

    /// Works until `stop` is done, and then ends in good order.
    pub async fn run_until(self, stop: impl Future) -> Result<Drained, Error> {
        let running = self.start()?;
        running.until(stop).await;
        running.drain().await
    }

    /// Begins to work.
    pub fn start(self) -> Result<RunningWorker, Error> {
        let handle = Arc::clone(&self.fencehold.handle);
        handle.connection.jobs()?;
        let mut terms = self.terms?;
        terms.check(handle.connection.store.capabilities().min_ttl_ms)?;
        if terms.within.is_none()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            terms.within = Some(threads::within_runtime(runtime.clone()));
            terms.runtime = Some(runtime);
        }
        let prefetch = terms.prefetch.unwrap_or(terms.concurrency).min(Worker::CONCURRENCY_MAX);
        let pace = PrefetchPace::new(terms.concurrency, prefetch);
        let shared = Arc::new(WorkerShared::new(pace, terms.on_event.clone()));
        RunningWorker::start(&WorkerCore { handle, shared, terms: Arc::new(terms) })
    }
}

impl WorkerTerms {
    fn check(&self, ttl_ms_min: u64) -> Result<(), BadInput> {
        let WorkerTerms { queues, concurrency, .. } = self;
        fencehold_core::ttl::check(self.ttl_ms, ttl_ms_min)?;
        if queues.is_empty() || queues.len() > QUEUES_PER_CLAIM_MAX {
            let problem = format!("takes from {} queues; it takes 1 to {QUEUES_PER_CLAIM_MAX}", queues.len());
            return Err(BadInput::new("worker", problem));
        }
        for (queue, weight) in queues {
            queue.check_open()?;
            if *weight == 0 {
                let problem = format!(
                    "of queue {queue} is 0; it takes 1 or more: leave out a queue that is not to be served"
                );
                return Err(BadInput::new("weight", problem));
            }
        }
        let concurrency_max = Worker::CONCURRENCY_MAX;
        if *concurrency == 0 || *concurrency > concurrency_max {
            let problem = format!("is {concurrency}; it takes 1 to {concurrency_max}");
            return Err(BadInput::new("concurrency", problem));
        }
        self.handlers.check()
    }

    /// Whether there is a handler that no task can run.
    fn needs_threads(&self) -> bool {
        self.runtime.is_none() || self.handlers.any_blocks()
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Worker");
        match &self.terms {
            Ok(terms) => shown.field("queues", &terms.queues).field("kinds", &terms.handlers.kinds()),
            Err(bad) => shown.field("terms", bad),
        };
        shown.finish_non_exhaustive()
    }
}
