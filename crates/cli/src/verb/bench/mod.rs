//! `fencehold bench …`: how fast leases and jobs are on the store that is named.
//!
//! Comparisons with peers and with the disk are in `bench/`, which does not ship.

mod processes;
mod report;

use std::ops::ControlFlow;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use fencehold::{Error, Fencehold};
use fencehold_contract::job::{ChangeJobsRequest, JobAction, JobFilter, JobSelector};
use fencehold_contract::{CallContext, StoreError, StoreUrl};
use fencehold_core::Namespace;
use fencehold_core::job::QueueName;
use fencehold_core::limits::PAGE_MAX;
use fencehold_load::{
    AcquireRelease, BatchRenewals, Failed, JobLives, LoadClient, Measured, Stop, Target, renew_all, run_after,
};
use processes::Processes;
use report::{BenchReport, OperationFigures};
use rustix::process::Signal;

use crate::context::{Context, CreateStore, OpenStore, pages};
use crate::duration::{parse_ms, show_ms};
use crate::exit_code::of_signal;
use crate::failure::Failure;
use crate::identity;
use crate::output::note;
use crate::process::Signals;
use crate::show::Progress;
use crate::verb::{VerbResult, verbs};

const EXAMPLES: &str = "\
fencehold bench lease
fencehold bench job --store postgres://app@db/app --clients 64
# Four processes that share a directory
fencehold bench job --store file:/var/lib/app/fencehold --processes 4
# A hundred jobs in each call, and the figures for a program
fencehold bench job --batch-size 100 --duration 10s -o json";

const MORE: &str = "\
It uses the namespace fencehold.bench, unless --namespace names another. One run measures at a time; another one waits \
for up to a minute. At the end it releases its leases and deletes its jobs, also those of a run that was killed.";

/// Where it measures, apart from what people keep there.
const NAMESPACE: &str = "fencehold.bench";
/// Its keys and its queue. The lease on this key lets one run measure at a time.
const NAME: &str = "bench";
/// How long a killed run keeps the others out, unless the store's shortest ttl is longer.
const TTL_MS: u64 = 10_000;
/// How long a run waits for another one to end.
const WAIT: Duration = Duration::from_secs(60);

verbs! {
    /// Measure how fast leases or jobs are on your store
    #[command(before_help = EXAMPLES, after_help = MORE)]
    Verb:
    /// Acquire, release and renew leases
    #[command(before_help = EXAMPLES, after_help = MORE)]
    Lease = BenchArgs => run(BenchTarget::Lease),
    /// Enqueue, claim and complete jobs
    #[command(before_help = EXAMPLES, after_help = MORE)]
    Job = BenchArgs => run(BenchTarget::Job),
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BenchTarget {
    Lease,
    Job,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// How many clients at once, all processes together
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    clients: u16,
    /// In how many processes they are
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    processes: u16,
    /// How long to measure, from 100ms to 10m
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_time)]
    duration: u64,
    /// How many leases one call renews, or how many jobs are in it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    batch_size: u16,
    #[command(flatten)]
    create: CreateStore,
    /// Which of the processes this is. The first starts the others.
    #[arg(long, hide = true, default_value_t = 0)]
    process: u16,
}

fn parse_time(text: &str) -> Result<u64, String> {
    match parse_ms(text)? {
        ms @ 100..=600_000 => Ok(ms),
        _ => Err("from 100ms to 10m".to_owned()),
    }
}

impl BenchArgs {
    async fn run(self, context: &Context, what: BenchTarget) -> VerbResult<ExitCode> {
        if self.processes > self.clients {
            return Err(Failure::usage("every process needs a client: --clients is too small"));
        }
        if self.processes > 1 && matches!(context.place()?.url, StoreUrl::Memory(_)) {
            return Err(Failure::usage("a memory: store is in one process; --processes needs another"));
        }
        let store = context.open(self.create)?;
        store.closing(async |store| self.measure(context, store, what).await).await
    }

    async fn measure(&self, context: &Context, store: &OpenStore, what: BenchTarget) -> VerbResult<ExitCode> {
        let namespace = match &context.namespace {
            named if *named != Namespace::default() => named.clone(),
            _ => Namespace::new(NAMESPACE)?,
        };
        let call = context.call_in(namespace.clone());
        let call = CallContext { timeout_ms: call.timeout_ms.max(60_000), ..call };
        let store = &OpenStore { leases: store.leases.clone(), call, name: store.name.clone() };
        if what == BenchTarget::Job {
            store.jobs()?;
        }
        if self.process > 0 {
            return self.measure_beside(context, store, what).await;
        }
        let of_library = |error| Failure::of_library(error, &store.name);
        let fencehold = Fencehold::builder()
            .store(store.leases.clone())
            .namespace(namespace.as_str())
            .owner(identity::ourselves()?.as_str())
            .connect_lazy()
            .await
            .map_err(of_library)?;
        let ttl = Duration::from_millis(TTL_MS.max(store.leases.capabilities().min_ttl_ms));
        let lease = fencehold
            .lease(NAME)
            .task("fencehold bench")
            .ttl(ttl)
            .wait(WAIT)
            .acquire()
            .await;
        let lease = lease.map_err(|error| match error {
            Error::WaitTimedOut { .. } => of_library(error).with_next(format!(
                "Another `fencehold bench` uses this store: see `fencehold explain {NAME} --namespace {namespace}`."
            )),
            error => of_library(error),
        })?;
        let measured = lease.run(self.measure_alone(store, what)).await;
        let measured = measured.map_err(of_library).flatten();
        let released = lease.release().await;
        fencehold.close().await;
        let operations = match measured? {
            ControlFlow::Continue(operations) => operations,
            ControlFlow::Break(code) => return Ok(code),
        };
        released.map_err(of_library)?;
        let report = BenchReport {
            store: store.name.clone(),
            clients: self.clients,
            processes: self.processes,
            batch_size: self.batch_size,
            duration_ms: self.duration,
            operations,
        };
        let said = self.said(what);
        context.output.one(&report, |style| report.text(style, &said))?;
        Ok(ExitCode::SUCCESS)
    }

    /// What each client does, in a line.
    fn said(&self, what: BenchTarget) -> String {
        let time = show_ms(self.duration);
        match (what, self.batch_size) {
            (BenchTarget::Lease, 1) => {
                format!("acquires and releases a lease, then renews one, for {time} each")
            }
            (BenchTarget::Lease, batch) => {
                format!("acquires and releases a lease, then renews {batch} a call, for {time} each")
            }
            (BenchTarget::Job, 1) => format!("enqueues, claims and completes a job, for {time}"),
            (BenchTarget::Job, batch) => {
                format!("enqueues, claims and completes {batch} jobs a call, for {time}")
            }
        }
    }

    /// In one of the other processes. A signal of the terminal reaches all of them.
    async fn measure_beside(
        &self,
        context: &Context,
        store: &OpenStore,
        what: BenchTarget,
    ) -> VerbResult<ExitCode> {
        let stop = Stop::default();
        let mut processes = Processes::parent(context.output, &stop);
        let (mut signals, signalled) = (listen()?, stop.clone());
        tokio::spawn(async move {
            signals.next().await;
            signalled.set();
        });
        let measured = self.operations(store, &mut processes, what, &stop).await;
        // Then the first process has said why.
        if stop.is_set() {
            return Ok(ExitCode::FAILURE);
        }
        measured.map(|_| ExitCode::SUCCESS).map_err(|failed| explain(store, failed))
    }

    /// While no other run does. A signal ends it early, with an exit code, once what has begun is finished and what it made is
    /// deleted; a second one at once.
    async fn measure_alone(
        &self,
        store: &OpenStore,
        what: BenchTarget,
    ) -> Result<ControlFlow<ExitCode, Vec<OperationFigures>>, Failure> {
        let mut signals = listen()?;
        let interrupted = |signal: Signal| ControlFlow::Break(ExitCode::from(of_signal(signal.as_raw())));
        let jobs = what == BenchTarget::Job;
        if jobs {
            delete_jobs(store).await?;
        }
        let mut processes = Processes::start(self.processes)
            .map_err(|error| Failure::failed(format!("the other processes cannot be started: {error}")))?;
        let phases = if jobs { 1 } else { 2 };
        note(&format!("measuring for {}", show_ms(phases * self.duration)));
        let progress = Progress::timed("measuring", phases * self.duration);
        let stop = Stop::default();
        let measured = {
            let mut operations = pin!(self.operations(store, &mut processes, what, &stop));
            tokio::select! {
                biased;
                signal = signals.next() => {
                    note("interrupted: deleting what this run has made");
                    stop.set();
                    tokio::select! {
                        biased;
                        again = signals.next() => return Ok(interrupted(again)),
                        _ = operations => Ok(interrupted(signal)),
                    }
                }
                measured = &mut operations => {
                    measured.map(ControlFlow::Continue).map_err(|failed| explain(store, failed))
                }
            }
        };
        drop(progress);
        drop(processes);
        if jobs {
            tokio::select! {
                deleted = delete_jobs(store) => deleted?,
                signal = signals.next() => return Ok(interrupted(signal)),
            }
        }
        measured
    }

    async fn operations(
        &self,
        store: &OpenStore,
        processes: &mut Processes,
        what: BenchTarget,
        stop: &Stop,
    ) -> Result<Vec<OperationFigures>, Failed> {
        let prefix = format!("{NAME}/{}", self.process);
        let target = Target::new(store.leases.clone(), store.call.clone(), prefix, getrandom::u64()?);
        let (clients, batch) = (self.clients_here(), usize::from(self.batch_size));
        let time = Duration::from_millis(self.duration);
        match what {
            BenchTarget::Lease => {
                let requests = if self.process == 0 { requests(&target).await? } else { None };
                let requests = |nth: usize| requests.map(|requests| requests[nth]);
                let pairs = AcquireRelease::clients(&target, clients)?;
                let pairs = beside(processes, pairs, time, stop).await?;
                let renewals = BatchRenewals::clients(&target, clients, batch);
                let renewals = beside(processes, renewals, time, stop).await?;
                Ok(vec![
                    OperationFigures::new("acquire", &pairs, 0, requests(0)),
                    OperationFigures::new("release", &pairs, 1, requests(2)),
                    OperationFigures::new("renew", &renewals, 0, requests(1)),
                ])
            }
            BenchTarget::Job => {
                let lives = JobLives::clients(&target, clients, NAME, batch)?;
                let lives = beside(processes, lives, time, stop).await?;
                let operations = ["enqueue", "claim", "complete"].into_iter().enumerate();
                Ok(operations
                    .map(|(call, name)| OperationFigures::new(name, &lives, call, None))
                    .collect())
            }
        }
    }

    /// How many of the clients are in this process.
    fn clients_here(&self) -> usize {
        let more = self.process < self.clients % self.processes;
        usize::from(self.clients / self.processes) + usize::from(more)
    }
}

/// Has the clients of all processes begin together, and adds up what they did.
async fn beside<C: LoadClient>(
    processes: &mut Processes,
    clients: Vec<C>,
    time: Duration,
    stop: &Stop,
) -> Result<Measured, Failed> {
    let measured = run_after(clients, time, stop, async { processes.begin() }).await?;
    processes.collect(measured, stop)
}

fn listen() -> Result<Signals, Failure> {
    Signals::listen().map_err(|error| Failure::failed(format!("signals cannot be heard: {error}")))
}

/// How many requests an acquire, a renewal and a release of a key that was held before take, where the store counts them.
async fn requests(target: &Target) -> Result<Option<[u64; 3]>, Failed> {
    let sent = || target.store.requests_sent().unwrap_or_default();
    if target.store.requests_sent().is_none() {
        return Ok(None);
    }
    let key = target.key(format_args!("requests"))?;
    target.release(target.acquire(&key, 30_000, 60_000).await?).await?;
    let before = sent();
    let hold = target.acquire(&key, 30_000, 0).await?;
    let acquired = sent();
    renew_all(target, std::slice::from_ref(&hold)).await?;
    let renewed = sent();
    target.release(hold).await?;
    Ok(Some([acquired - before, renewed - acquired, sent() - renewed]))
}

/// Deletes the jobs of this run, or of one that was killed.
async fn delete_jobs(store: &OpenStore) -> Result<(), Failure> {
    let filter = JobFilter { queue: Some(QueueName::new(NAME)?), ..JobFilter::default() };
    let by = identity::ourselves()?;
    let progress = Progress::jobs("deleted", None);
    pages(async |cursor| {
        let selector = JobSelector::Filter { filter: filter.clone() };
        let request = ChangeJobsRequest {
            cursor,
            limit: PAGE_MAX,
            ..ChangeJobsRequest::new(selector, JobAction::Delete { force: true }, by.clone())
        };
        let acted = store
            .ask(async |jobs, call| jobs.change_jobs(call, request.clone()).await)
            .await?;
        progress.add(acted.results.len() as u64, 0);
        Ok(acted.next_cursor)
    })
    .await
}

fn explain(store: &OpenStore, failed: Failed) -> Failure {
    match failed.downcast::<StoreError>() {
        Ok(error) => store.explain(*error),
        Err(failed) => Failure::failed(failed.to_string()),
    }
}
