//! All metrics, on one page.
//!
//! What happens in the store is counted by the engine, so it is complete where the engine runs in this process: on
//! `memory:`, and on `file:` while this process owns the directory (`fencehold_store_owner_process`). Elsewhere only what
//! passes through this server can be counted.

use fencehold_contract::job::{JobFilter, ListJobsRequest, QueueView};
use fencehold_contract::metrics::StoreMetrics;
use fencehold_contract::{CallContext, JobStore};
use fencehold_core::Namespace;
use fencehold_core::job::{AttemptOutcome, JobState};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::limits::JOBS_MAX;

use super::label;
use super::metrics::{OperationKind, RequestEnd};
use super::page::{Page, Series};
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

/// The page as it is at this moment.
pub(crate) async fn render(server: &ServerInner) -> String {
    let mut page = Page::default();
    page.gauges(
        "fencehold_build_info",
        "Which version this is.",
        &[(&[("version", env!("CARGO_PKG_VERSION")), ("store", server.store.capabilities().store)], 1.0)],
    );
    if let Some(measures) = server.store.metrics() {
        store(&mut page, measures);
    }
    requests(&mut page, server);
    limits(&mut page, server);
    let call = CallContext::new(Namespace::default()).with_timeout_ms(TIMEOUT_MS);
    if let Ok(status) = server.store.status(&call).await {
        let here = status.owner_pid.is_none_or(|pid| pid == std::process::id());
        page.gauge(
            "fencehold_store_owner_process",
            "1: this process owns the store, and counts what happens in it.",
            flag(here),
        );
        page.gauge("fencehold_lease_keys", "Keys on record, held or free.", status.key_count as f64);
        page.gauge("fencehold_leases_held", "Keys with a hold on record.", status.held_count as f64);
        page.gauge("fencehold_lease_waiters", "Requests in line for a key.", status.waiter_count as f64);
        page.gauge(
            "fencehold_unreadable_rows",
            "Stored rows that could not be read.",
            status.unreadable_row_count as f64,
        );
        let failing = status.maintenance_errors.len() as f64;
        page.gauge("fencehold_maintenance_errors", "Parts of the maintenance that fail now.", failing);
        page.gauge("fencehold_jobs_unfinished", "Jobs that are not finished.", status.job_count as f64);
        page.gauge("fencehold_jobs_unfinished_max", "How many there may be.", JOBS_MAX as f64);
    }
    if let Some(jobs) = server.store.jobs() {
        queues(&mut page, server, jobs).await;
    }
    page.finish()
}

fn store(page: &mut Page, measures: &StoreMetrics) {
    let facts = &measures.facts;
    page.counter("fencehold_leases_acquired_total", "Leases acquired.", &facts.granted);
    let hows: Vec<String> = LeaseOutcome::ALL.iter().map(label).collect();
    let ended: Vec<[(&str, &str); 1]> = hows.iter().map(|how| [("outcome", how.as_str())]).collect();
    let ended: Vec<Series<'_>> = ended
        .iter()
        .zip(&facts.ended)
        .map(|(label, counter)| (label.as_slice(), counter.get() as f64))
        .collect();
    page.counts(
        "fencehold_leases_ended_total",
        "Leases that ended, by outcome: a rising share of expired is a crash report.",
        &ended,
    );
    let issued = facts.granted.get() + facts.claimed.get();
    page.counts(
        "fencehold_tokens_issued_total",
        "Fencing tokens given, to holders and to attempts.",
        &[(&[], issued as f64)],
    );
    page.counter(
        "fencehold_stale_writes_blocked_total",
        "Acts of holders whose hold was over.",
        &facts.stale_writes_blocked,
    );
    page.counter(
        "fencehold_store_rewound_total",
        "Tokens shown that this store never gave: an alarm.",
        &facts.rewound,
    );
    page.counter("fencehold_jobs_enqueued_total", "Jobs enqueued.", &facts.enqueued);
    page.counter("fencehold_job_attempts_started_total", "Attempts started.", &facts.claimed);
    let hows: Vec<String> = AttemptOutcome::ALL.iter().map(label).collect();
    let ended: Vec<[(&str, &str); 1]> = hows.iter().map(|how| [("outcome", how.as_str())]).collect();
    let ended: Vec<Series<'_>> = ended
        .iter()
        .zip(&facts.attempts)
        .map(|(label, counter)| (label.as_slice(), counter.get() as f64))
        .collect();
    page.counts("fencehold_job_attempts_ended_total", "Attempts that ended, by outcome.", &ended);
    let crashes = AttemptOutcome::ALL
        .iter()
        .position(|how| *how == AttemptOutcome::Crashed)
        .and_then(|at| facts.attempts.get(at));
    let crashes = crashes.map_or(0, fencehold_contract::metrics::Counter::get);
    page.counts(
        "fencehold_job_crashes_total",
        "Attempts whose holder died or stalled.",
        &[(&[], crashes as f64)],
    );
    page.counter(
        "fencehold_jobs_quarantined_total",
        "Jobs that were the end of too many holders.",
        &facts.quarantined,
    );
    page.counter("fencehold_schedules_fired_total", "Firings of schedules.", &facts.fired);
    page.histograms(
        "fencehold_commit_batch_size",
        "Requests decided together.",
        1.0,
        &[(&[], &measures.batch)],
    );
    page.histograms(
        "fencehold_commit_duration_seconds",
        "How long a batch took to be kept; with sync, until it was on disk.",
        US,
        &[(&[("sync", "true")], &measures.synced_us), (&[("sync", "false")], &measures.unsynced_us)],
    );
    page.histograms(
        "fencehold_fsync_duration_seconds",
        "How long the disk took to confirm a batch: a part of the time that it took to be kept.",
        US,
        &[(&[], &measures.disk_us)],
    );
    page.histograms(
        "fencehold_renewal_remaining_ratio",
        "How much of its ttl a lease, or an attempt at a job, had left when it was renewed.",
        100.0,
        &[
            (&[("type", "lease")], &measures.slack_percent),
            (&[("type", "job")], &measures.claim_slack_percent),
        ],
    );
}

fn requests(page: &mut Page, server: &ServerInner) {
    let metrics = &server.metrics;
    let mut labels = Vec::new();
    for ((_, kind), row) in OperationKind::ALL.iter().zip(&metrics.requests) {
        for ((_, ending), counter) in RequestEnd::ALL.iter().zip(row) {
            labels.push(([("operation", *kind), ("outcome", *ending)], counter.get() as f64));
        }
    }
    let series: Vec<Series<'_>> = labels.iter().map(|(labels, count)| (labels.as_slice(), *count)).collect();
    page.counts("fencehold_requests_total", "Requests, by what they asked for and how they ended.", &series);
    let labels: Vec<[(&str, &str); 1]> =
        OperationKind::ALL.iter().map(|(_, name)| [("operation", *name)]).collect();
    let took: Vec<_> = labels.iter().map(<[(&str, &str); 1]>::as_slice).zip(&metrics.took_us).collect();
    page.histograms(
        "fencehold_request_duration_seconds",
        "How long requests took that did not wait in line.",
        US,
        &took,
    );
    page.counter(
        "fencehold_acquire_contended_total",
        "Acquisitions that found the key held.",
        &metrics.contended,
    );
    page.histograms(
        "fencehold_acquire_wait_duration_seconds",
        "How long those that were granted stood in line.",
        MS,
        &[(&[], &metrics.waited_ms)],
    );
    let renewals: &[Series<'_>] = &[
        (&[("outcome", "renewed")], metrics.renewed.get() as f64),
        (&[("outcome", "refused")], metrics.renewals_refused.get() as f64),
        (&[("outcome", "failed")], metrics.renewals_failed.get() as f64),
    ];
    page.counts(
        "fencehold_renewals_total",
        "Renewals: refused were of holds that are over, failed got no answer from the store.",
        renewals,
    );
    page.counter(
        "fencehold_wrong_hold_ids_total",
        "Requests with another holder's token and a wrong hold id.",
        &metrics.wrong_holds,
    );
    page.counter(
        "fencehold_jobs_deduplicated_total",
        "Enqueues of jobs that existed already.",
        &metrics.dedup_hits,
    );
    page.counter(
        "fencehold_unauthorized_requests_total",
        "Requests without a valid access token.",
        &metrics.strangers,
    );
    if let Some(access_cache) = server.access.access_cache() {
        let left_out = access_cache.denials_left_out() as f64;
        page.counts(
            "fencehold_audit_denials_dropped_total",
            "Denied requests that are not in the audit: there were too many.",
            &[(&[], left_out)],
        );
    }
    let dropped = server.tracer.dropped() as f64;
    page.counts("fencehold_spans_dropped_total", "Spans that could not be sent.", &[(&[], dropped)]);
}

/// Each limit: how much is used, and how much there is.
fn limits(page: &mut Page, server: &ServerInner) {
    let (gate, metrics) = (&server.gate, &server.metrics);
    let (body_used, body_max) = gate.bodies.used();
    let mut all = vec![
        ("connections", gate.connections.count() as f64, gate.limits.connections as f64),
        ("total_body_bytes", body_used as f64, body_max as f64),
        ("waiting", gate.seats.taken().0 as f64, gate.seats.all_max() as f64),
        ("waiting_per_access_token", gate.seats.taken().1 as f64, gate.seats.each_max() as f64),
        ("concurrent_requests", gate.ordinary.used() as f64, gate.ordinary.room() as f64),
        ("concurrent_renewals", gate.renewals.used() as f64, gate.renewals.room() as f64),
    ];
    let now_ms = server.clock.now().store_ms;
    let paces = [("requests_per_second", &gate.requests), ("renewals_per_second", &gate.renewal_requests)];
    all.extend(paces.into_iter().filter_map(|(name, pace)| {
        let (used, max) = pace.busiest(now_ms)?;
        Some((name, used as f64, max as f64))
    }));
    let labels: Vec<[(&str, &str); 1]> = all.iter().map(|(name, _, _)| [("limit", *name)]).collect();
    let used: Vec<Series<'_>> = labels
        .iter()
        .zip(&all)
        .map(|(label, (_, used, _))| (label.as_slice(), *used))
        .collect();
    let max: Vec<Series<'_>> = labels
        .iter()
        .zip(&all)
        .map(|(label, (_, _, max))| (label.as_slice(), *max))
        .collect();
    page.gauges("fencehold_limit_used", "How much of a limit is used.", &used);
    page.gauges("fencehold_limit_max", "How much there is of it.", &max);
    page.gauge(
        "fencehold_watchers",
        "Streams of events that are being read.",
        server.feeds.watchers() as f64,
    );
    page.gauge(
        "fencehold_requests_waiting",
        "Requests that wait for a lease, a job or events.",
        gate.seats.taken().0 as f64,
    );
    let in_line: &[Series<'_>] = &[
        (&[("class", "request")], gate.ordinary.waiting() as f64),
        (&[("class", "renewal")], gate.renewals.waiting() as f64),
    ];
    page.gauges("fencehold_requests_queued", "Requests that wait for room in the store.", in_line);
    let over: &[Series<'_>] = &[
        (&[("limit", "connections")], metrics.connections_turned_away.get() as f64),
        (&[("limit", "body_bytes")], metrics.bodies_too_large.get() as f64),
        (&[("limit", "body_timeout")], metrics.bodies_too_slow.get() as f64),
        (&[("limit", "waiting")], metrics.waiting_refused.get() as f64),
        (&[("limit", "requests_per_second")], metrics.over_pace.get() as f64),
        (&[("limit", "renewals_per_second")], metrics.renewals_over_pace.get() as f64),
        (&[("limit", "concurrent_requests")], metrics.shed.get() as f64),
        (&[("limit", "concurrent_renewals")], metrics.renewals_shed.get() as f64),
    ];
    page.counts("fencehold_limit_refused_total", "What was refused because a limit was reached.", over);
}

async fn queues(page: &mut Page, server: &ServerInner, jobs: &dyn JobStore) {
    let mut all: Vec<(CallContext, QueueView)> = Vec::new();
    for namespace in server.namespaces() {
        let call = CallContext::new(namespace).with_timeout_ms(TIMEOUT_MS);
        let found = jobs.list_queues(&call).await.unwrap_or_default();
        all.extend(found.into_iter().map(|queue| (call.clone(), queue)));
    }
    all.sort_by_key(|(_, queue)| std::cmp::Reverse((queue.job_counts.queued, queue.job_counts.scheduled)));
    let hidden = all.len().saturating_sub(QUEUES_SHOWN);
    all.truncate(QUEUES_SHOWN);
    page.gauge(
        "fencehold_queues_omitted",
        "Queues left out of this page: there are too many.",
        hidden as f64,
    );
    cancelled(page, server, jobs, &all).await;
    let mut depths = Vec::new();
    let mut ages = Vec::new();
    for (call, queue) in &mut all {
        let age_ms = oldest_ready_ms(server, jobs, call, queue).await;
        ages.push((
            [("namespace", call.namespace.to_string()), ("queue", queue.name.to_string())],
            age_ms as f64 / MS,
        ));
        for state in [
            JobState::Queued,
            JobState::Scheduled,
            JobState::Running,
            JobState::Failed,
            JobState::Quarantined,
            JobState::InDoubt,
        ] {
            let count = *queue.job_counts.of(state) as f64;
            let labels = [
                ("namespace", call.namespace.to_string()),
                ("queue", queue.name.to_string()),
                ("state", state.name().to_owned()),
            ];
            depths.push((labels, count));
        }
    }
    let depths: Vec<_> = depths
        .iter()
        .map(|(labels, count)| (labels.each_ref().map(|(name, value)| (*name, value.as_str())), *count))
        .collect();
    let depths: Vec<Series<'_>> = depths.iter().map(|(labels, count)| (labels.as_slice(), *count)).collect();
    page.gauges("fencehold_queue_jobs", "Jobs of a queue, by how they stand.", &depths);
    let ages: Vec<_> = ages
        .iter()
        .map(|(labels, age)| (labels.each_ref().map(|(name, value)| (*name, value.as_str())), *age))
        .collect();
    let ages: Vec<Series<'_>> = ages.iter().map(|(labels, age)| (labels.as_slice(), *age)).collect();
    page.gauges(
        "fencehold_queue_oldest_queued_seconds",
        "For how long the oldest queued job has been ready.",
        &ages,
    );
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
        let filter = JobFilter {
            queue: Some(queue.name.clone()),
            states: vec![JobState::Running],
            ..JobFilter::default()
        };
        let request = ListJobsRequest { filter, cursor: None, limit: RUNNING_LOOKED_AT };
        let running = jobs.list_jobs(call, request).await.map(|page| page.jobs).unwrap_or_default();
        let ignore = running
            .into_iter()
            .filter(|job| job.runner.as_ref().is_some_and(|runner| runner.cancel_requested_by.is_some()));
        found.extend(
            ignore.map(|job| ((job.id, job.token), [call.namespace.to_string(), queue.name.to_string()])),
        );
    }
    let found = server.cancelled.seen(server.clock.now().store_ms, found);
    let labels: Vec<_> = found
        .iter()
        .map(|([namespace, queue], (count, ms))| {
            ([("namespace", namespace.as_str()), ("queue", queue.as_str())], *count as f64, *ms as f64 / MS)
        })
        .collect();
    let counts: Vec<Series<'_>> =
        labels.iter().map(|(labels, count, _)| (labels.as_slice(), *count)).collect();
    page.gauges("fencehold_queue_jobs_cancel_requested", "Running jobs that were asked to cancel.", &counts);
    let ages: Vec<Series<'_>> = labels.iter().map(|(labels, _, age)| (labels.as_slice(), *age)).collect();
    page.gauges(
        "fencehold_queue_oldest_cancel_requested_seconds",
        "For how long the oldest of them has run on, since this server saw it first.",
        &ages,
    );
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
    let filter =
        JobFilter { queue: Some(queue.name.clone()), states: vec![JobState::Queued], ..JobFilter::default() };
    let request = ListJobsRequest { filter, cursor: None, limit: READY_LOOKED_AT };
    let page = jobs.list_jobs(call, request).await;
    let since = page
        .ok()
        .and_then(|page| page.jobs.iter().map(|job| job.state_changed_at_ms).min());
    since.map_or(0, |since| server.clock.now().wall_ms.saturating_sub(since))
}

fn flag(set: bool) -> f64 {
    if set { 1.0 } else { 0.0 }
}
