//! All metrics, on one page.
//!
//! What happens in the store is counted where it happens. The engine counts all of it where it runs in this process: on `memory:`, and on
//! `file:` while this process owns the directory (`fencehold_store_owner_process`). PostgreSQL counts in the database, so it is all of it
//! too. On etcd and object storage the handle of this server counts what it writes itself. What only an engine can measure is absent
//! elsewhere, and so is what is about jobs where the store has none.

use fencehold_contract::job::{JobFilter, JobView, ListJobsRequest, QueueView};
use fencehold_contract::metrics::{CountedEvents, Counter, EngineMetrics, EventCounts};
use fencehold_contract::{CallContext, JobStore};
use fencehold_core::Namespace;
use fencehold_core::job::{AttemptOutcome, JobState};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::limits::JOBS_MAX;

use super::label;
use super::metrics::{OperationKind, RequestEnd};
use super::page::Page;
use crate::ServerInner;

/// How many queues are shown; of more, those with most jobs ready. A label's values must have a bound.
const QUEUES_SHOWN: usize = 100;
/// How many ready jobs are looked at for the oldest one: they come in the order of their arrival.
const READY_LOOKED_AT: usize = 64;
/// How many running jobs of a queue are looked at for one that was cancelled.
const RUNNING_LOOKED_AT: usize = 256;
/// How long the store may take for it.
const TIMEOUT_MS: u64 = 2_000;
/// How many of each are a second.
const US: f64 = 1e6;
const MS: f64 = 1e3;

/// Each row is a metric: its kind (a method of the page), its name, what it is, and how much.
macro_rules! metrics {
    ($page:ident { $($kind:ident $name:literal $help:literal = $($value:expr),+;)* }) => {
        $($page.$kind($name, $help, $($value),+);)*
    };
}

/// The page as it is at this moment.
pub(crate) async fn render(server: &ServerInner) -> String {
    let mut page = Page::default();
    let build = [("version", env!("CARGO_PKG_VERSION")), ("store", server.store.capabilities().store)];
    page.gauges("fencehold_build_info", "Which version this is.", [(build, 1)]);
    let call = CallContext::new(Namespace::default()).with_timeout_ms(TIMEOUT_MS);
    if let Some(measures) = server.store.metrics() {
        // What the store counts cannot be known while it does not answer: then these are absent, and no count stands still.
        if server.store.refresh_metrics(&call).await.is_ok() {
            let counts = &measures.facts;
            counts.together(|counted| facts(&mut page, counts, counted, server.store.jobs().is_some()));
        }
        if let Some(measures) = &measures.engine {
            engine(&mut page, measures);
        }
    }
    requests(&mut page, server);
    limits(&mut page, server);
    if let Ok(status) = server.store.status(&call).await {
        let here = status.owner_pid.is_none_or(|pid| pid == std::process::id());
        metrics! { page {
            gauge "fencehold_store_owner_process" "1: this process owns the store, and counts what happens in it."
                = u8::from(here);
            gauge "fencehold_lease_keys" "Keys on record, held or free." = status.key_count;
            gauge "fencehold_leases_held" "Keys with a hold on record." = status.held_count;
            gauge "fencehold_lease_waiters" "Requests in line for a key." = status.waiter_count;
            gauge "fencehold_unreadable_rows" "Stored rows that could not be read." = status.unreadable_row_count;
            gauge "fencehold_maintenance_errors" "Parts of the maintenance that fail now."
                = status.maintenance_errors.len();
            gauge "fencehold_jobs_unfinished" "Jobs that are not finished." = status.job_count;
            gauge "fencehold_jobs_unfinished_max" "How many there may be." = JOBS_MAX;
        } }
    }
    if let Some(jobs) = server.store.jobs() {
        queues(&mut page, server, jobs).await;
    }
    page.finish()
}

fn facts(page: &mut Page, facts: &EventCounts, counted: Option<CountedEvents>, has_jobs: bool) {
    let bounds = counted.map(|counted| [("after", counted.after_seq), ("up_to", counted.to_seq)]);
    let bounds = bounds.into_iter().flatten().map(|(bound, seq)| ([("bound", bound)], seq));
    let ended = LeaseOutcome::ALL.iter().zip(&facts.ended);
    metrics! { page {
        count "fencehold_leases_acquired_total" "Leases acquired." = facts.granted.get();
        counts "fencehold_leases_ended_total" "Leases that ended, by outcome: a rising share of expired is a crash report."
            = ended.map(|(how, counter)| ([("outcome", label(how))], counter.get()));
        count "fencehold_tokens_issued_total" "Fencing tokens given, to holders and to attempts."
            = facts.granted.get() + facts.claimed.get();
        count "fencehold_stale_writes_blocked_total" "Acts of holders whose hold was over."
            = facts.stale_writes_blocked.get();
        count "fencehold_store_rewound_total" "Tokens shown that this store never gave: an alarm."
            = facts.rewound.get();
        gauges "fencehold_counted_event_seq"
            "The events that the counts of leases and attempts stand for: after the one, up to the other. A replay of them gives the same counts."
            = bounds;
    } }
    if !has_jobs {
        return;
    }
    let attempts = AttemptOutcome::ALL.iter().zip(&facts.attempts);
    let crashed = facts.attempts_ended(AttemptOutcome::Crashed);
    metrics! { page {
        count "fencehold_jobs_enqueued_total" "Jobs enqueued." = facts.enqueued.get();
        count "fencehold_job_attempts_started_total" "Attempts started." = facts.claimed.get();
        counts "fencehold_job_attempts_ended_total" "Attempts that ended, by outcome."
            = attempts.map(|(how, counter)| ([("outcome", label(how))], counter.get()));
        count "fencehold_job_crashes_total" "Attempts whose holder died or stalled."
            = crashed.map_or(0, Counter::get);
        count "fencehold_jobs_quarantined_total" "Jobs that were the end of too many holders."
            = facts.quarantined.get();
        count "fencehold_schedules_fired_total" "Firings of schedules." = facts.fired.get();
    } }
}

fn engine(page: &mut Page, measures: &EngineMetrics) {
    metrics! { page {
        histograms "fencehold_commit_batch_size" "Requests decided together." = 1.0, [([], &measures.batch)];
        histograms "fencehold_commit_duration_seconds" "How long a batch took to be kept; with sync, until it was on disk."
            = US, [([("sync", "true")], &measures.synced_us), ([("sync", "false")], &measures.unsynced_us)];
        histograms "fencehold_fsync_duration_seconds"
            "How long the disk took to confirm a batch: a part of the time that it took to be kept."
            = US, [([], &measures.disk_us)];
        histograms "fencehold_renewal_remaining_ratio"
            "How much of its ttl a lease, or an attempt at a job, had left when it was renewed."
            = 100.0,
            [([("type", "lease")], &measures.slack_percent), ([("type", "job")], &measures.claim_slack_percent)];
    } }
}

fn requests(page: &mut Page, server: &ServerInner) {
    let metrics = &server.metrics;
    let requests = OperationKind::NAMES.into_iter().zip(&metrics.requests).flat_map(|(kind, row)| {
        let by_end = RequestEnd::NAMES.into_iter().zip(row);
        by_end.map(move |(end, counter)| ([("operation", kind), ("outcome", end)], counter.get()))
    });
    let took = OperationKind::NAMES.into_iter().zip(&metrics.took_us);
    let renewals = [
        ("renewed", &metrics.renewed),
        ("refused", &metrics.renewals_refused),
        ("failed", &metrics.renewals_failed),
    ];
    let hits = [("operation", &metrics.operation_hits), ("effect", &metrics.effect_hits)];
    metrics! { page {
        counts "fencehold_requests_total" "Requests, by what they asked for and how they ended." = requests;
        histograms "fencehold_request_duration_seconds" "How long requests took that did not wait in line."
            = US, took.map(|(kind, took_us)| ([("operation", kind)], took_us));
        count "fencehold_acquire_contended_total" "Acquisitions that found the key held." = metrics.contended.get();
        histograms "fencehold_acquire_wait_duration_seconds" "How long those that were granted stood in line."
            = MS, [([], &metrics.waited_ms)];
        counts "fencehold_renewals_total"
            "Renewals: refused were of holds that are over, failed got no answer from the store."
            = renewals.map(|(outcome, counter)| ([("outcome", outcome)], counter.get()));
        count "fencehold_wrong_hold_ids_total" "Requests with another holder's token and a wrong hold id."
            = metrics.wrong_holds.get();
        count "fencehold_jobs_deduplicated_total" "Enqueues of jobs that existed already." = metrics.dedup_hits.get();
        counts "fencehold_ledger_hits_total"
            "Operations and effects that were asked for again and answered from the ledger: nothing was done twice."
            = hits.map(|(what, counter)| ([("type", what)], counter.get()));
        count "fencehold_unauthorized_requests_total" "Requests without a valid access token."
            = metrics.strangers.get();
        count "fencehold_spans_dropped_total" "Spans that could not be sent." = server.tracer.dropped();
    } }
    if let Some(access_cache) = server.access.access_cache() {
        metrics! { page {
            count "fencehold_audit_denials_dropped_total"
                "Denied requests that are not in the audit: there were too many." = access_cache.denials_left_out();
        } }
    }
}

/// Each limit: how much is used, and how much there is.
fn limits(page: &mut Page, server: &ServerInner) {
    let (gate, metrics) = (&server.gate, &server.metrics);
    let (body_used, body_max) = gate.bodies.used();
    let (waiting, waiting_of_one) = gate.seats.taken();
    let mut all = vec![
        ("connections", gate.connection_count() as u64, gate.limits.connections as u64),
        ("total_body_bytes", body_used as u64, body_max as u64),
        ("waiting", waiting as u64, gate.seats.all_max() as u64),
        ("waiting_per_access_token", waiting_of_one as u64, gate.seats.each_max() as u64),
        ("concurrent_requests", gate.ordinary.used(), gate.ordinary.room()),
        ("concurrent_renewals", gate.renewals.used(), gate.renewals.room()),
    ];
    let now_ms = server.clock.now().store_ms;
    let paces = [("requests_per_second", &gate.requests), ("renewals_per_second", &gate.renewal_requests)];
    all.extend(paces.into_iter().filter_map(|(name, pace)| {
        let (used, max) = pace.busiest(now_ms)?;
        Some((name, used, max))
    }));
    let queued = [("request", &gate.ordinary), ("renewal", &gate.renewals)];
    let refused = [
        ("connections", &metrics.connections_turned_away),
        ("body_bytes", &metrics.bodies_too_large),
        ("body_timeout", &metrics.bodies_too_slow),
        ("waiting", &metrics.waiting_refused),
        ("requests_per_second", &metrics.over_pace),
        ("renewals_per_second", &metrics.renewals_over_pace),
        ("concurrent_requests", &metrics.shed),
        ("concurrent_renewals", &metrics.renewals_shed),
    ];
    metrics! { page {
        gauges "fencehold_limit_used" "How much of a limit is used."
            = all.iter().map(|(name, used, _)| ([("limit", *name)], *used));
        gauges "fencehold_limit_max" "How much there is of it."
            = all.iter().map(|(name, _, max)| ([("limit", *name)], *max));
        gauge "fencehold_watchers" "Streams of events that are being read." = server.feeds.watchers();
        gauge "fencehold_requests_waiting" "Requests that wait for a lease, a job or events." = waiting;
        gauges "fencehold_requests_queued" "Requests that wait for room in the store."
            = queued.map(|(class, lane)| ([("class", class)], lane.waiting()));
        counts "fencehold_limit_refused_total" "What was refused because a limit was reached."
            = refused.map(|(limit, counter)| ([("limit", limit)], counter.get()));
    } }
}

async fn queues(page: &mut Page, server: &ServerInner, jobs: &dyn JobStore) {
    let mut all: Vec<(CallContext, QueueView)> = Vec::new();
    for namespace in server.namespaces() {
        let call = CallContext::new(namespace).with_timeout_ms(TIMEOUT_MS);
        let found = jobs.list_queues(&call).await.unwrap_or_default().queues;
        all.extend(found.into_iter().map(|queue| (call.clone(), queue)));
    }
    all.sort_by_key(|(_, queue)| std::cmp::Reverse((queue.job_counts.queued, queue.job_counts.scheduled)));
    let hidden = all.len().saturating_sub(QUEUES_SHOWN);
    all.truncate(QUEUES_SHOWN);
    page.gauge("fencehold_queues_omitted", "Queues left out of this page: there are too many.", hidden);
    cancelled(page, server, jobs, &all).await;
    let (mut depths, mut ages) = (Vec::new(), Vec::new());
    for (call, queue) in &mut all {
        let (namespace, name) = (call.namespace.to_string(), queue.name.to_string());
        for state in [
            JobState::Queued,
            JobState::Scheduled,
            JobState::Running,
            JobState::Failed,
            JobState::Quarantined,
            JobState::InDoubt,
        ] {
            let (namespace, name) = (namespace.clone(), name.clone());
            let labels = [("namespace", namespace), ("queue", name), ("state", state.name().to_owned())];
            depths.push((labels, queue.job_counts.get(state)));
        }
        let age_ms = oldest_ready_ms(server, jobs, call, queue).await;
        ages.push(([("namespace", namespace), ("queue", name)], age_ms as f64 / MS));
    }
    metrics! { page {
        gauges "fencehold_queue_jobs" "Jobs of a queue, by how they stand." = depths;
        gauges "fencehold_queue_oldest_queued_seconds" "For how long the oldest queued job has been ready." = ages;
    } }
}

/// So many jobs of a queue in this state, in the order of their arrival.
async fn jobs_in(
    jobs: &dyn JobStore,
    (call, queue): (&CallContext, &QueueView),
    state: JobState,
    limit: usize,
) -> Vec<JobView> {
    let filter = JobFilter { queue: Some(queue.name.clone()), states: vec![state], ..JobFilter::default() };
    let page = jobs.list_jobs(call, ListJobsRequest { filter, cursor: None, limit }).await;
    page.map(|page| page.jobs).unwrap_or_default()
}

/// Jobs that were cancelled and run on; the log of their workers and `explain` say whose. Since when is counted from the first look
/// of this server that found them so: the store notes that a job was cancelled, and not when.
async fn cancelled(
    page: &mut Page,
    server: &ServerInner,
    jobs: &dyn JobStore,
    all: &[(CallContext, QueueView)],
) {
    let mut found = Vec::new();
    for (call, queue) in all.iter().filter(|(_, queue)| queue.job_counts.running > 0) {
        for job in jobs_in(jobs, (call, queue), JobState::Running, RUNNING_LOOKED_AT).await {
            if job.runner.is_some_and(|runner| runner.cancel_requested_by.is_some()) {
                found.push(((job.id, job.token), [call.namespace.to_string(), queue.name.to_string()]));
            }
        }
    }
    let found = server.cancelled.seen(server.clock.now().store_ms, found);
    let labels =
        |[namespace, queue]: &[String; 2]| [("namespace", namespace.clone()), ("queue", queue.clone())];
    metrics! { page {
        gauges "fencehold_queue_jobs_cancel_requested" "Running jobs that were asked to cancel."
            = found.iter().map(|(queue, (count, _))| (labels(queue), *count));
        gauges "fencehold_queue_oldest_cancel_requested_seconds"
            "For how long the oldest of them has run on, since this server saw it first."
            = found.iter().map(|(queue, (_, ms))| (labels(queue), *ms as f64 / MS));
    } }
}

async fn oldest_ready_ms(
    server: &ServerInner,
    jobs: &dyn JobStore,
    call: &CallContext,
    queue: &QueueView,
) -> u64 {
    if queue.job_counts.queued == 0 {
        return 0;
    }
    let ready = jobs_in(jobs, (call, queue), JobState::Queued, READY_LOOKED_AT).await;
    let since = ready.iter().map(|job| job.state_changed_at_ms).min();
    since.map_or(0, |since| server.clock.now().wall_ms.saturating_sub(since))
}
