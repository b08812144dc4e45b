//! The database's clock is wall time: what becomes of leases and claims when it is set.

use fencehold_contract::AcquireLeaseRequest;
use fencehold_contract::job::{QueueMode, Report, SetQueueModeRequest};
use fencehold_core::job::JobState;
use fencehold_test_servers::calls::{OneByOne as _, call, lease_request, owner, queue, schedule_spec};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, B, JOB, JobRaceFixture, claim, renew};
use crate::job_transactions::attempt;
use crate::session::{until, with_sessions};
use crate::template::START_MS;
use crate::test_store::PostgresTestStore;

const HOUR_MS: i64 = 60 * 60 * 1000;

/// R20: what was taken before anybody noticed has a larger token, so the old holder's fence is refused; from then on
/// nothing that was held runs out for one ttl.
#[test]
fn a_clock_set_forward_is_noticed_by_a_renewal_and_ends_nothing_more() {
    let (test_store, calls, [user]) = with_sessions();
    let store = test_store.store();
    let [renewed, taken, idle] = [("renewed", 1), ("taken", 2), ("idle", 3)]
        .map(|(name, hold)| store.take(lease_request(name, hold, "A")));
    store.renew_one(&renewed).unwrap();
    // The clock jumps, and in the same moment a caller takes a key, before any handle can notice.
    let taking = calls.acquire("taken", 9, "B");
    user.value(&format!("UPDATE test_clock SET at_ms = at_ms + {HOUR_MS}; {taking}"));
    assert_eq!(user.refusal(&calls.fence("taken", taken.token.get())).0, "FH001");
    let answers = block_on(store.renew(&call(), vec![renewed, taken])).unwrap().results;
    assert_eq!(answers[0].as_ref().unwrap().remaining_ms, 30_000, "it lives on");
    assert!(answers[1].is_err(), "over is over");
    let tried = block_on(store.acquire(&call(), lease_request("idle", 8, "B")));
    assert!(tried.is_err(), "what was not renewed yet lives on too: {tried:?}");
    // For one ttl, and no longer.
    test_store.pass(29_999);
    assert!(block_on(store.acquire(&call(), lease_request("idle", 7, "B"))).is_err());
    test_store.pass(1);
    assert!(store.take(lease_request("idle", 6, "B")).token > idle.token);
}

/// R20: a handle looks at the clock and then sweeps. If the clock jumps in between, the sweep ends nothing.
#[test]
fn a_clock_set_forward_between_a_look_and_a_sweep_ends_nothing() {
    let (test_store, _, [user]) = with_sessions();
    let schema = test_store.schema;
    test_store.store().take(lease_request("k", 1, "A"));
    // The first sweep comes after a jump.
    user.value(&format!(
        "ALTER FUNCTION {schema}.lease_sweep RENAME TO lease_sweep_after_the_jump;
         CREATE FUNCTION {schema}.lease_sweep(most integer, not_after_ms bigint DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql AS $$
         BEGIN
             UPDATE {schema}.test_clock SET at_ms = at_ms + {HOUR_MS} WHERE at_ms < {START_MS} + {HOUR_MS};
             RETURN {schema}.lease_sweep_after_the_jump(most, not_after_ms);
         END $$"
    ));
    let noticed = "SELECT suspended_from_ms > 0 FROM store_state";
    until("the jump is noticed", || user.value(noticed) == "t");
    assert_eq!(user.value("SELECT count(*) FROM lease_endings"), "0");
    // The bound is the caller's; only one sweeps at a time.
    let late = "SELECT lease_sweep(10, now_ms() - 1)";
    until("no sweep after the last moment", || user.value(late) == "-1");
}

/// R21: within one ttl of the next read.
#[test]
fn a_clock_set_back_makes_nothing_immortal() {
    let test_store = PostgresTestStore::new();
    let store = test_store.store();
    store.take(lease_request("k", 1, "A"));
    test_store.shift(-HOUR_MS);
    let tried = block_on(store.acquire(&call(), lease_request("k", 2, "B")));
    assert!(tried.is_err(), "it is held still: {tried:?}");
    test_store.pass(29_999);
    assert!(block_on(store.acquire(&call(), lease_request("k", 3, "B"))).is_err());
    test_store.pass(1);
    store.take(lease_request("k", 4, "B"));
}

/// R21: what is renewed after the step, by whichever call, lasts a ttl from then on, and then runs out.
#[test]
fn a_lease_that_is_renewed_after_the_clock_was_set_back_lasts_one_ttl() {
    for checked in [false, true] {
        let (test_store, calls, [session]) = with_sessions();
        session.value(&calls.acquire("k", 1, "A"));
        test_store.shift(-HOUR_MS);
        let renewing = if checked { calls.renew_checked("k", 1, 1) } else { calls.renew("k", 1, 1) };
        session.value(&renewing);
        assert_eq!(session.value("SELECT deadline_ms - now_ms() FROM lease_hold"), "30000");
        session.value(&calls.sweep());
        test_store.pass(30_000);
        session.value(&calls.sweep());
        assert_eq!(session.value(&calls.holder("k")), "", "it has run out");
    }
}

/// R21, of a claim: no response says more than a ttl, and a holder that dies after its renewal is noticed.
#[test]
fn a_claim_that_is_renewed_or_sent_again_after_the_clock_was_set_back_lasts_one_ttl() {
    let again = claim(A).replace("SELECT token", "SELECT remaining_ms");
    for word in [renew(A, 1), again] {
        let (fixture, [session]) = JobRaceFixture::with_sessions();
        session.value(&claim(A));
        fixture.test_store.shift(-HOUR_MS);
        assert_eq!(session.value(&word), "30000", "{word}");
        fixture.test_store.pass(29_999);
        assert_eq!(session.value("SELECT count(*) FROM job_run_out(9)"), "0", "{word}");
        fixture.test_store.pass(1);
        assert_eq!(session.value("SELECT count(*) FROM job_run_out(9)"), "1", "{word}");
    }
}

/// R21: the same where the rules decide, for the job was cancelled.
#[test]
fn a_claim_that_the_rules_renew_after_the_clock_was_set_back_lasts_one_ttl() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    session.value(&claim(A));
    session.value("UPDATE job_running SET asked = '{\"cancel\": {\"by\": \"P\", \"reason\": \"wrong\"}}'");
    fixture.test_store.shift(-HOUR_MS);
    let renewed = fixture.test_store.store().renew_attempt(&attempt(A, 1)).unwrap();
    assert_eq!((renewed.cancel_requested, renewed.remaining_ms), (true, 30_000));
    assert_eq!(session.value("SELECT deadline_ms - now_ms() FROM job_running"), "30000");
}

/// What is reported after the step counts from the clock as it is then; and what a queue does is no matter of time.
#[test]
fn a_report_and_a_queue_order_after_the_clock_was_set_back_go_by_the_clock_as_it_is() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    let store = fixture.test_store.store();
    session.value(&claim(A));
    fixture.test_store.shift(-HOUR_MS);
    let order = SetQueueModeRequest { queue: queue("q"), mode: QueueMode::Draining, by: owner("P") };
    let ordered = block_on(store.jobs().unwrap().set_queue_mode(&call(), order)).unwrap();
    assert_eq!(ordered.mode, QueueMode::Draining);
    let said = store.report_one(&attempt(A, 1), Report::Snooze { delay_ms: 1_000 }).unwrap();
    assert_eq!((said.state, said.retry_in_ms), (JobState::Scheduled, Some(1_000)));
    fixture.test_store.pass(1_000);
    assert_eq!(session.value(&claim(B)), "2", "not an hour later");
    let said = store.report_one(&attempt(B, 2), Report::Complete { result: None }).unwrap();
    assert!(said.state == JobState::Completed && !said.late);
}

/// A failover may have lost the last grants: no token comes twice.
#[test]
fn another_timeline_lifts_the_floor() {
    let (test_store, _, [admin]) = with_sessions();
    let first = test_store.store().take(lease_request("k", 1, "A")).token;
    // As the standby that takes over finds it: written by a server of another timeline.
    admin.value("UPDATE store_state SET timeline = 4711");
    test_store.restart();
    let store = test_store.store();
    let other = store.take(lease_request("l", 2, "B")).token;
    assert!(other.get() > first.get() + 1_000_000, "{other}");
    assert!(
        block_on(store.acquire(&call(), lease_request("k", 3, "B"))).is_err(),
        "who holds goes on holding"
    );
}

/// Also where a lease of a whole day was granted once: a second step is not taken for the first one.
#[test]
fn a_clock_that_is_set_forward_twice_is_noticed_twice() {
    let test_store = PostgresTestStore::new();
    let store = test_store.store();
    let long = AcquireLeaseRequest { ttl_ms: 24 * HOUR_MS.unsigned_abs(), ..lease_request("long", 9, "L") };
    store.take(long);
    for step in 1..=2 {
        let lease = store.take(lease_request(&format!("k/{step}"), step, "A"));
        store.renew_one(&lease).unwrap();
        test_store.shift(HOUR_MS);
        assert_eq!(store.renew_one(&lease).expect("it lives on").remaining_ms, 30_000, "step {step}");
        // An honest hour.
        test_store.pass(HOUR_MS.unsigned_abs());
    }
}

/// R20, of a claim: its holder's renewal notices the step before it learns that all is over.
#[test]
fn a_claim_that_is_renewed_after_the_clock_was_set_forward_lives_on() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    fixture.session().value(&claim(A));
    store.renew_attempt(&attempt(A, 1)).unwrap();
    fixture.test_store.shift(HOUR_MS);
    assert_eq!(store.renew_attempt(&attempt(A, 1)).expect("it lives on").remaining_ms, 30_000);
    assert_eq!(fixture.state(), "2");
}

/// R20: so does a sweep, which is woken by the step here and comes before every call.
#[test]
fn a_sweep_crashes_no_job_because_the_clock_was_set_forward() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    let store = fixture.test_store.store();
    session.value(&claim(A));
    store.renew_attempt(&attempt(A, 1)).unwrap();
    fixture.test_store.shift(HOUR_MS);
    let noted = "SELECT suspended_from_ms > 0 FROM store_state";
    until("a handle notices", || session.value(noted) == "t");
    fixture.test_store.pass(29_999);
    assert_eq!(session.value("SELECT count(*) FROM job_run_out(9)"), "0");
    assert_eq!(fixture.state(), "2", "nothing runs out for one ttl");
    fixture.test_store.pass(1);
    fixture.until_swept();
}

/// R20: a handle that looks at claims, finds that the clock has jumped and lets go of their rows may do so between two statements of
/// another handle: the one that writes down how long claims last now, and the one that looks for what has expired.
#[test]
fn a_claim_that_was_locked_when_a_step_was_written_down_has_not_expired() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    let schema = &fixture.test_store.schema;
    session.value(&claim(A));
    // Its row is always locked just then.
    session.value(&format!(
        "CREATE OR REPLACE FUNCTION {schema}.job_honour_suspension() RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$"
    ));
    fixture.test_store.shift(HOUR_MS);
    session.value("SELECT lease_suspend(0)");
    fixture.test_store.pass(29_999);
    assert_eq!(session.value("SELECT count(*) FROM job_run_out(9)"), "0");
    assert_eq!(fixture.state(), "2", "nothing runs out for one ttl");
}

/// R20: neither does what its holder has a transaction open on.
#[test]
fn a_claim_under_a_fence_is_given_a_ttl_after_a_step_as_any_other() {
    let (fixture, [work, other]) = JobRaceFixture::with_sessions();
    work.value(&claim(A));
    work.value("BEGIN");
    work.value(&format!("SELECT fence_job('{JOB}', 1)"));
    fixture.test_store.shift(HOUR_MS);
    other.value("SELECT lease_suspend(0)");
    other.value("SELECT job_honour_suspension()");
    assert_eq!(other.value("SELECT deadline_ms - now_ms() FROM job_running"), "30000");
    work.value("COMMIT");
}

/// R43: the next moment of a schedule that fired while the clock was ahead is not what it would have been.
#[test]
fn a_schedule_goes_on_after_the_clock_was_ahead_for_a_moment() {
    const MINUTE_MS: u64 = 60_000;
    for sets_again in [false, true] {
        let (test_store, _, [session]) = with_sessions();
        let store = test_store.store();
        let spec = schedule_spec("beat", "* * * * *", "q");
        let set = || block_on(store.jobs().unwrap().set_schedule(&call(), spec.clone())).unwrap();
        let is_so = |sql: &str| session.value(sql) == "t";
        let first_ms = set().next_run_at_ms.unwrap();
        test_store.shift(24 * HOUR_MS);
        until("it fires while the clock is ahead", || is_so("SELECT count(*) = 1 FROM job_body"));
        test_store.shift(-24 * HOUR_MS);
        if sets_again {
            let next_ms = set().next_run_at_ms.unwrap();
            assert!(next_ms <= first_ms + MINUTE_MS, "{next_ms} is not soon after {first_ms}");
        }
        let soon = "SELECT next_ms <= now_ms() + 60000 FROM job_schedule";
        until("its next moment is set right", || is_so(soon));
        // The moment that was fired while the clock was ahead is not fired again; the next one is.
        until("it fires again", || {
            test_store.pass(MINUTE_MS);
            is_so("SELECT count(*) > 1 FROM job_body")
        });
    }
}
