//! The database's clock is wall time: what becomes of leases and claims when it is set.

use fencehold_contract::job::{AttemptReport, QueueMode, Report, ScheduleSpec, SetQueueModeRequest};
use fencehold_contract::{AcquireLeaseRequest, HoldRef};
use fencehold_core::job::{JobKind, JobOptions, JobState, QueueName, ScheduleName};
use fencehold_core::{HoldId, Key, Owner};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, B, JOB, JobRaceFixture, claim, renew, run};
use crate::job_transactions::{attempt, call};
use crate::session::{Calls, LOOKS_MAX, Session};
use crate::template::START_MS;
use crate::test_store::PostgresTestStore;

const HOUR_MS: i64 = 60 * 60 * 1000;

fn request(name: &str, hold: u8, owner: &str) -> AcquireLeaseRequest {
    let hold = HoldId::from_random([hold; 16]);
    AcquireLeaseRequest::new(Key::new(name).unwrap(), hold, Owner::new(owner).unwrap(), 30_000)
}

/// R20: what was taken before anybody noticed has a larger token, so the old holder's fence is refused; from then on
/// nothing that was held runs out for one ttl.
#[test]
fn a_clock_set_forward_is_noticed_by_a_renewal_and_ends_nothing_more() {
    let test_store = PostgresTestStore::new();
    let (store, calls, user) = (test_store.store(), Calls(test_store.schema), Session::new(&test_store));
    let take = |name: &str, hold: u8| {
        let request = request(name, hold, "A");
        let acquired = block_on(store.acquire(&call(), request.clone())).unwrap();
        HoldRef { key: acquired.key, hold_id: request.hold_id, token: acquired.grant.token }
    };
    let (renewed, taken, idle) = (take("renewed", 1), take("taken", 2), take("idle", 3));
    block_on(store.renew(&call(), vec![renewed.clone()])).unwrap().results[0]
        .as_ref()
        .unwrap();
    // The clock jumps, and in the same moment a caller takes a key, before any handle can notice.
    user.value(&format!(
        "UPDATE {}.test_clock SET at_ms = at_ms + {HOUR_MS}; {}",
        test_store.schema,
        calls.acquire("taken", 9, "B")
    ));
    assert_eq!(user.run(&calls.fence("taken", taken.token.get())).unwrap_err().0, "FH001");
    let answers = block_on(store.renew(&call(), vec![renewed.clone(), taken])).unwrap().results;
    assert_eq!(answers[0].as_ref().unwrap().remaining_ms, 30_000, "it lives on");
    assert!(answers[1].is_err(), "over is over");
    let tried = block_on(store.acquire(&call(), request("idle", 8, "B")));
    assert!(tried.is_err(), "what was not renewed yet lives on too: {tried:?}");
    // For one ttl, and no longer.
    test_store.pass(29_999);
    assert!(block_on(store.acquire(&call(), request("idle", 7, "B"))).is_err());
    test_store.pass(1);
    assert!(block_on(store.acquire(&call(), request("idle", 6, "B"))).unwrap().grant.token > idle.token);
}

/// R20: a handle looks at the clock and then sweeps. If the clock jumps in between, the sweep ends nothing.
#[test]
fn a_clock_set_forward_between_a_look_and_a_sweep_ends_nothing() {
    let test_store = PostgresTestStore::new();
    let (store, user, schema) = (test_store.store(), Session::new(&test_store), test_store.schema);
    block_on(store.acquire(&call(), request("k", 1, "A"))).unwrap();
    // The first sweep comes after a jump.
    user.value(&format!(
        "ALTER FUNCTION {schema}.lease_sweep RENAME TO lease_sweep_after_the_jump;
         CREATE FUNCTION {schema}.lease_sweep(most integer, not_after_ms bigint DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql AS $$
         BEGIN
             UPDATE {schema}.test_clock SET at_ms = at_ms + {HOUR_MS} WHERE at_ms < {START_MS} + {HOUR_MS};
             RETURN {schema}.lease_sweep_after_the_jump(most, not_after_ms);
         END $$"
    ));
    let noticed = format!("SELECT suspended_from_ms > 0 FROM {schema}.store_state");
    assert!((0..LOOKS_MAX).any(|_| user.value(&noticed) == "t"), "the jump was not noticed");
    assert_eq!(user.value(&format!("SELECT count(*) FROM {schema}.lease_endings")), "0");
    // The bound is the caller's; only one sweeps at a time.
    let late = format!("SELECT {schema}.lease_sweep(10, {schema}.now_ms() - 1)");
    assert!((0..LOOKS_MAX).any(|_| user.value(&late) == "-1"), "it swept after the last moment");
}

/// R21: within one ttl of the next read.
#[test]
fn a_clock_set_back_makes_nothing_immortal() {
    let test_store = PostgresTestStore::new();
    let store = test_store.store();
    block_on(store.acquire(&call(), request("k", 1, "A"))).unwrap();
    test_store.shift(-HOUR_MS);
    let tried = block_on(store.acquire(&call(), request("k", 2, "B")));
    assert!(tried.is_err(), "it is held still: {tried:?}");
    test_store.pass(29_999);
    assert!(block_on(store.acquire(&call(), request("k", 3, "B"))).is_err());
    test_store.pass(1);
    block_on(store.acquire(&call(), request("k", 4, "B"))).unwrap();
}

/// R21: what is renewed after the step, by whichever call, lasts a ttl from then on, and then runs out.
#[test]
fn a_lease_that_is_renewed_after_the_clock_was_set_back_lasts_one_ttl() {
    for checked in [false, true] {
        let fixture = JobRaceFixture::new();
        let (session, calls) = (fixture.session(), Calls(fixture.test_store.schema));
        session.value(&calls.acquire("k", 1, "A"));
        fixture.test_store.shift(-HOUR_MS);
        let renewing = if checked { calls.renew_checked("k", 1, 1) } else { calls.renew("k", 1, 1) };
        session.value(&renewing);
        assert_eq!(run(&session, "SELECT deadline_ms - now_ms() FROM lease_hold").as_deref(), Some("30000"));
        session.value(&calls.sweep());
        fixture.test_store.pass(30_000);
        session.value(&calls.sweep());
        assert_eq!(session.value(&calls.holder("k")), "", "it has run out");
    }
}

/// R21, of a claim: no response says more than a ttl, and a holder that dies after its renewal is noticed.
#[test]
fn a_claim_that_is_renewed_or_sent_again_after_the_clock_was_set_back_lasts_one_ttl() {
    let again = claim(A).replace("SELECT token", "SELECT remaining_ms");
    for word in [renew(A, 1), again] {
        let fixture = JobRaceFixture::new();
        let session = fixture.session();
        run(&session, &claim(A));
        fixture.test_store.shift(-HOUR_MS);
        assert_eq!(run(&session, &word).as_deref(), Some("30000"), "{word}");
        fixture.test_store.pass(29_999);
        assert_eq!(run(&session, "SELECT count(*) FROM job_run_out(9)").as_deref(), Some("0"), "{word}");
        fixture.test_store.pass(1);
        assert_eq!(run(&session, "SELECT count(*) FROM job_run_out(9)").as_deref(), Some("1"), "{word}");
    }
}

/// R21: the same where the rules decide, for the job was cancelled.
#[test]
fn a_claim_that_the_rules_renew_after_the_clock_was_set_back_lasts_one_ttl() {
    let fixture = JobRaceFixture::new();
    let session = fixture.session();
    run(&session, &claim(A));
    run(&session, "UPDATE job_running SET asked = '{\"cancel\": {\"by\": \"P\", \"reason\": \"wrong\"}}'");
    fixture.test_store.shift(-HOUR_MS);
    let store = fixture.test_store.store();
    let renewed = block_on(store.jobs().unwrap().renew_attempts(&call(), vec![attempt(A, 1)])).unwrap();
    let renewed = renewed.results[0].as_ref().unwrap();
    assert!(renewed.cancel_requested);
    assert_eq!(renewed.remaining_ms, 30_000);
    assert_eq!(run(&session, "SELECT deadline_ms - now_ms() FROM job_running").as_deref(), Some("30000"));
}

/// What is reported after the step counts from the clock as it is then; and what a queue does is no matter of time.
#[test]
fn a_report_and_a_queue_order_after_the_clock_was_set_back_go_by_the_clock_as_it_is() {
    let fixture = JobRaceFixture::new();
    let (store, session) = (fixture.test_store.store(), fixture.session());
    let jobs = store.jobs().unwrap();
    run(&session, &claim(A));
    fixture.test_store.shift(-HOUR_MS);
    let order = SetQueueModeRequest {
        queue: QueueName::new("q").unwrap(),
        mode: QueueMode::Draining,
        by: Owner::new("P").unwrap(),
    };
    assert_eq!(block_on(jobs.set_queue_mode(&call(), order)).unwrap().mode, QueueMode::Draining);
    let word = Report::Snooze { delay_ms: 1_000 };
    let said = block_on(jobs.report(&call(), vec![AttemptReport { attempt: attempt(A, 1), report: word }]))
        .unwrap()
        .remove(0)
        .unwrap();
    assert_eq!((said.state, said.retry_in_ms), (JobState::Scheduled, Some(1_000)));
    fixture.test_store.pass(1_000);
    assert_eq!(run(&session, &claim(B)).as_deref(), Some("2"), "not an hour later");
    let word = Report::Complete { result: None };
    let said = block_on(jobs.report(&call(), vec![AttemptReport { attempt: attempt(B, 2), report: word }]))
        .unwrap()
        .remove(0)
        .unwrap();
    assert!(said.state == JobState::Completed && !said.late);
}

/// A failover may have lost the last grants: no token comes twice.
#[test]
fn another_timeline_lifts_the_floor() {
    let test_store = PostgresTestStore::new();
    let admin = Session::new(&test_store);
    let store = test_store.store();
    let first = block_on(store.acquire(&call(), request("k", 1, "A"))).unwrap().grant.token;
    // As the standby that takes over finds it: written by a server of another timeline.
    admin.value(&format!("UPDATE {}.store_state SET timeline = 4711", test_store.schema));
    test_store.restart();
    let store = test_store.store();
    let other = block_on(store.acquire(&call(), request("l", 2, "B"))).unwrap().grant.token;
    assert!(other.get() > first.get() + 1_000_000, "{other}");
    assert!(block_on(store.acquire(&call(), request("k", 3, "B"))).is_err(), "who holds goes on holding");
}

/// Also where a lease of a whole day was granted once: a second step is not taken for the first one.
#[test]
fn a_clock_that_is_set_forward_twice_is_noticed_twice() {
    let test_store = PostgresTestStore::new();
    let store = test_store.store();
    let long = AcquireLeaseRequest { ttl_ms: 24 * HOUR_MS.unsigned_abs(), ..request("long", 9, "L") };
    block_on(store.acquire(&call(), long)).unwrap();
    for step in 1..=2 {
        let request = request(&format!("k/{step}"), step, "A");
        let acquired = block_on(store.acquire(&call(), request.clone())).unwrap();
        let lease = HoldRef { key: acquired.key, hold_id: request.hold_id, token: acquired.grant.token };
        let renew = || block_on(store.renew(&call(), vec![lease.clone()])).unwrap().results.remove(0);
        renew().unwrap();
        test_store.shift(HOUR_MS);
        assert_eq!(renew().expect("it lives on").remaining_ms, 30_000, "step {step}");
        // An honest hour.
        test_store.pass(HOUR_MS.unsigned_abs());
    }
}

/// R20, of a claim: its holder's renewal notices the step before it learns that all is over.
#[test]
fn a_claim_that_is_renewed_after_the_clock_was_set_forward_lives_on() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    let jobs = store.jobs().unwrap();
    run(&fixture.session(), &claim(A));
    let renew = || {
        block_on(jobs.renew_attempts(&call(), vec![attempt(A, 1)]))
            .unwrap()
            .results
            .remove(0)
    };
    renew().unwrap();
    fixture.test_store.shift(HOUR_MS);
    assert_eq!(renew().expect("it lives on").remaining_ms, 30_000);
    assert_eq!(fixture.state(), "2");
}

/// R20: so does a sweep, which is woken by the step here and comes before every call.
#[test]
fn a_sweep_crashes_no_job_because_the_clock_was_set_forward() {
    let fixture = JobRaceFixture::new();
    let (store, session) = (fixture.test_store.store(), fixture.session());
    run(&session, &claim(A));
    block_on(store.jobs().unwrap().renew_attempts(&call(), vec![attempt(A, 1)])).unwrap();
    fixture.test_store.shift(HOUR_MS);
    let noted = "SELECT suspended_from_ms > 0 FROM store_state";
    assert!((0..LOOKS_MAX).any(|_| run(&session, noted).as_deref() == Some("t")), "no handle noticed");
    fixture.test_store.pass(29_999);
    assert_eq!(run(&session, "SELECT count(*) FROM job_run_out(9)").as_deref(), Some("0"));
    assert_eq!(fixture.state(), "2", "nothing runs out for one ttl");
    fixture.test_store.pass(1);
    fixture.until_swept();
}

/// R20: neither does what its holder has a transaction open on.
#[test]
fn a_claim_under_a_fence_is_given_a_ttl_after_a_step_as_any_other() {
    let fixture = JobRaceFixture::new();
    let (work, other) = (fixture.session(), fixture.session());
    run(&work, &claim(A));
    run(&work, "BEGIN");
    run(&work, &format!("SELECT fence_job('{JOB}', 1)"));
    fixture.test_store.shift(HOUR_MS);
    run(&other, "SELECT lease_suspend(0)");
    run(&other, "SELECT job_honour_suspension()");
    assert_eq!(run(&other, "SELECT deadline_ms - now_ms() FROM job_running").as_deref(), Some("30000"));
    run(&work, "COMMIT");
}

/// R43: the next moment of a schedule that fired while the clock was ahead is not what it would have been.
#[test]
fn a_schedule_goes_on_after_the_clock_was_ahead_for_a_moment() {
    const MINUTE_MS: u64 = 60_000;
    for sets_again in [false, true] {
        let test_store = PostgresTestStore::new();
        let (store, session) = (test_store.store(), Session::new(&test_store));
        session.run(&format!("SET search_path = {}", test_store.schema)).unwrap();
        let spec = ScheduleSpec {
            name: ScheduleName::new("beat").unwrap(),
            cron: "* * * * *".to_owned(),
            time_zone: "UTC".to_owned(),
            queue: QueueName::new("q").unwrap(),
            kind: JobKind::new("beat").unwrap(),
            payload: "1".into(),
            options: JobOptions::default(),
            labels: Vec::new(),
            by: Owner::new("P").unwrap(),
        };
        let set = || block_on(store.jobs().unwrap().set_schedule(&call(), spec.clone())).unwrap();
        let until = |what: &str, sql: &str| {
            let seen = (0..LOOKS_MAX).any(|_| session.value(sql) == "t");
            assert!(seen, "never: {what} (the next moment is {} ms away)", {
                session.value("SELECT next_ms - now_ms() FROM job_schedule")
            });
        };
        let first_ms = set().next_run_at_ms.unwrap();
        test_store.shift(24 * HOUR_MS);
        until("it fires while the clock is ahead", "SELECT count(*) = 1 FROM job_body");
        test_store.shift(-24 * HOUR_MS);
        if sets_again {
            let next_ms = set().next_run_at_ms.unwrap();
            assert!(next_ms <= first_ms + MINUTE_MS, "{next_ms} is not soon after {first_ms}");
        }
        until("its next moment is set right", "SELECT next_ms <= now_ms() + 60000 FROM job_schedule");
        // The moment that was fired while the clock was ahead is not fired again; the next one is.
        let fires = (0..LOOKS_MAX).any(|_| {
            test_store.pass(MINUTE_MS);
            session.value("SELECT count(*) > 1 FROM job_body") == "t"
        });
        assert!(fires, "it stays silent");
    }
}
