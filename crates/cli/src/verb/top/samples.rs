//! A store as it might be, for tests: the same each time.

use std::fmt::Debug;

use fencehold_contract::job::{JobDetail, JobView, QueueView};
use fencehold_contract::{KeyContention, LeaseView};
use fencehold_core::job::JobOptions;
use fencehold_core::{Event, EventData, Key, Namespace, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::query::{Found, Held, LeaseFound, NewEvents, Page};
use super::state::{Command, Input, State};

/// 2026-11-18T04:46:28Z.
pub(super) const NOW_MS: u64 = 1_794_977_188_000;

pub(super) fn now() -> Timestamp {
    Timestamp { store_ms: 1_000_000, wall_ms: NOW_MS }
}

#[track_caller]
fn read<T: DeserializeOwned + Debug>(value: Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

fn moment(ago_ms: u64) -> String {
    crate::show::utc_ms(NOW_MS - ago_ms)
}

fn held(key: &str, token: u64, owner: &str, task: Option<&str>, times: [u64; 3], line: u64) -> Value {
    let [age_ms, remaining_ms, ttl_ms] = times;
    let mut holder = json!({
        "owner": owner, "ttl_ms": ttl_ms, "priority": 0, "age_ms": age_ms, "acquired_at": moment(age_ms),
        "remaining_ms": remaining_ms, "renewed_ago_ms": ttl_ms - remaining_ms,
    });
    if let Some(task) = task {
        holder["task"] = json!(task);
    }
    json!({ "key": key, "token": token, "holder": holder, "waiter_count": line, "endings": [] })
}

/// Some are held, one is asked to yield, one is free; one has a name that no terminal should take as it is.
pub(super) fn leases() -> Page<LeaseView> {
    let mut gpu = held("gpu/0", 912, "batch@gpu-host/4711", Some("train-7"), [8_000, 1_400, 5_000], 2);
    gpu["holder"]["yield_request"] =
        json!({ "contender": "urgent@gpu-host/9", "priority": 5, "yield_in_ms": 2_000 });
    let ending = json!({
        "token": 7, "owner": "deploy@ci-3/88", "outcome": "expired", "ended_at": moment(3_600_000),
    });
    let rows = [
        held("deploy/api", 8, "deploy@ci-3/102", None, [62_000, 21_000, 30_000], 0),
        gpu,
        held("reports/daily", 37, "writer-b", None, [65_000, 4_100, 5_000], 1),
        held("tenant/\u{202e}gnol/日本語", 1, "ann\u{200b}@host", None, [90_061_000, 86_000, 90_000], 0),
        json!({ "key": "vacuum", "token": 7, "waiter_count": 0, "endings": [ending] }),
    ];
    Page { rows: rows.into_iter().map(read).collect(), has_more: false }
}

/// More than any screen has rows.
pub(super) fn many_leases() -> Page<LeaseView> {
    let key = |nth: u64| held(&format!("shard/{nth:03}"), nth, "worker", None, [nth, 4_000, 5_000], 0);
    Page { rows: (0..200).map(|nth| read(key(nth))).collect(), has_more: true }
}

pub(super) fn queues() -> Vec<QueueView> {
    let queue = |name: &str, mode: &str, counts: [u64; 8], claims: u64| {
        let states =
            ["queued", "scheduled", "running", "completed", "failed", "cancelled", "quarantined", "in_doubt"];
        let counts: Value = states
            .iter()
            .zip(counts)
            .map(|(state, n)| ((*state).to_owned(), json!(n)))
            .collect();
        read(json!({ "name": name, "mode": mode, "job_counts": counts, "waiting_claim_count": claims }))
    };
    vec![
        queue("emails", "open", [1_204, 3, 8, 1_000_000, 2, 0, 0, 0], 0),
        queue("invoices", "paused", [17, 0, 0, 90, 0, 1, 1, 2], 0),
        queue("thumbnails-of-very-large-pictures", "open", [0, 0, 0, 12, 0, 0, 0, 0], 4),
    ]
}

fn job_id(nth: u8) -> String {
    format!("019a954b-3f20-7a41-9d07-3c0c1f0b6a{nth:02x}")
}

fn job(nth: u8, state: &str, attempts: u32, ago_ms: u64) -> Value {
    json!({
        "id": job_id(nth), "queue": "emails", "kind": "welcome", "state": state, "token": 40 + u64::from(nth),
        "options": serde_json::to_value(JobOptions::default()).unwrap(), "attempt_count": attempts,
        "failure_count": attempts.saturating_sub(1), "crash_count": 0, "enqueued_at": moment(900_000),
        "state_changed_at": moment(ago_ms), "compensation_state": "none",
    })
}

fn running() -> Value {
    let mut job = job(2, "running", 1, 4_000);
    job["runner"] = json!({
        "owner": "mailer-2@host-7/314", "ttl_ms": 30_000, "remaining_ms": 26_000,
        "claimed_at": moment(4_000), "age_ms": 4_000,
    });
    job
}

pub(super) fn jobs() -> Page<JobView> {
    let mut later = job(4, "scheduled", 2, 11_000);
    later["due_in_ms"] = json!(49_000);
    let rows = [job(1, "failed", 5, 240_000), running(), job(3, "queued", 0, 900_000), later];
    Page { rows: rows.into_iter().map(read).collect(), has_more: false }
}

pub(super) fn job_detail() -> JobDetail {
    let mut job = running();
    job["payload"] = json!({ "to": "ada@example.org" });
    job["progress"] = json!("3 of 7");
    job["effects"] = json!([]);
    job["attempts"] = json!([{
        "token": 41, "owner": "mailer-1@host-7/311", "started_at": moment(60_000), "ended_at": moment(45_500),
        "outcome": "failed", "error": "smtp: 451 try\nagain later",
    }]);
    read(job)
}

fn event(seq: u64, ago_ms: u64, key: &str, data: Value) -> Event {
    let data: EventData = read(data);
    Event::new(seq, NOW_MS - ago_ms, Namespace::default(), Key::new(key).unwrap(), data)
}

fn acquired(token: u64, owner: &str) -> Value {
    json!({ "lease_acquired": { "token": token, "owner": owner, "task": null, "ttl_ms": 5_000 } })
}

fn ended(token: u64, owner: &str, outcome: &str, by: Option<&str>) -> Value {
    let reason = by.map(|_| "wrong input");
    let ended = json!({
        "token": token, "owner": owner, "task": null, "outcome": outcome, "by": by, "reason": reason,
    });
    json!({ "lease_ended": ended })
}

fn stale() -> Value {
    json!({ "stale_write_blocked": { "token": 33, "current_token": 34, "action": "renew", "outcome": "expired" } })
}

/// What happened to `reports/daily`.
fn daily() -> Vec<Event> {
    const KEY: &str = "reports/daily";
    vec![
        event(101, 180_000, KEY, acquired(34, "writer-b")),
        event(103, 171_000, KEY, stale()),
        event(104, 120_000, KEY, ended(34, "writer-b", "released", None)),
        event(105, 118_000, KEY, acquired(35, "writer-a")),
        event(108, 90_000, KEY, ended(35, "writer-a", "revoked", Some("ops@laptop"))),
        event(109, 65_000, KEY, acquired(37, "writer-b")),
    ]
}

/// A lease with a history that has all there is.
pub(super) fn lease() -> LeaseFound {
    let mut view = held("reports/daily", 37, "writer-b", None, [65_000, 4_100, 5_000], 1);
    view["endings"] = json!([
        { "token": 33, "owner": "writer-a", "outcome": "expired", "ended_at": moment(184_000) },
        { "token": 34, "owner": "writer-b", "outcome": "released", "ended_at": moment(120_000) },
    ]);
    let contention: KeyContention = read(json!({
        "key": "reports/daily", "begins_at": moment(1_800_000), "refused_count": 3, "max_waiter_count": 2,
        "last_refused": { "owner": "cron@host-1/77", "refused_at": moment(30_000) },
    }));
    let events = NewEvents { events: daily(), cursor: 109, follows: false };
    LeaseFound { view: Some(read(view)), contention: Some(contention), events: Some(events) }
}

pub(super) fn events() -> NewEvents {
    let mut events = daily();
    let job = format!("job/{}", job_id(1));
    let claimed = json!({ "job_claimed": { "token": 41, "owner": "mailer-1@host-7/311", "attempt": 1 } });
    let crashed = json!({ "job_attempt_ended": {
        "token": 41, "owner": "mailer-1@host-7/311", "outcome": "crashed", "state": "scheduled", "retry_in_ms": 2_500,
    } });
    events.push(event(106, 100_000, &job, claimed));
    events.push(event(107, 95_000, &job, crashed));
    let paused = json!({ "queue_changed": { "queue": "invoices", "mode": "paused", "by": "ops@laptop" } });
    events.push(event(110, 20_000, "queue/invoices", paused));
    events.sort_by_key(|event| event.seq);
    NewEvents { events, cursor: 110, follows: false }
}

pub(super) fn workers() -> Found {
    let held = Held { leases: leases(), jobs: jobs(), hidden: Vec::new() };
    Found::Workers { held, events: Some(events()) }
}

/// Top on a terminal of this size, before it has seen anything.
pub(super) fn state(columns: u16, rows: u16) -> State {
    let mut state = State::new("file:/var/lib/fencehold".to_owned(), "default".to_owned(), 2_000, false);
    state.update(Input::Size { columns, rows });
    state
}

/// Begins what is due, and answers it with this.
#[track_caller]
pub(super) fn answer(state: &mut State, commands: Vec<Command>, found: Found) {
    let serial = commands.iter().find_map(|command| match command {
        Command::Fetch { serial, .. } => Some(*serial),
        _ => None,
    });
    let serial = serial.unwrap_or_else(|| panic!("nothing is fetched: {commands:?}"));
    let commands = state.update(Input::Found { serial, result: Ok(found) });
    assert_eq!(commands, []);
}
