//! What was granted to a caller that has gone is given back; but never from under the same request, sent again, that has taken
//! it up meanwhile.

use crate::job_races::{A, JOB, JobRaceFixture, claim, renew};
use crate::session::Calls;

/// What the first sending does when it finds that its caller has gone.
fn abandon(hold: u8) -> String {
    format!("SELECT lease_abandon('default', 'k', '\\x{hold:02x}', 60000)")
}

/// Whether the first claim may still be given back.
fn unheard() -> String {
    format!("SELECT count(*) FROM job_unheard(ARRAY['{JOB}']::uuid[], ARRAY[1]::bigint[])")
}

#[test]
fn a_lease_that_the_same_request_resumed_is_left_to_it() {
    let (fixture, [gone, again]) = JobRaceFixture::with_sessions();
    let calls = Calls(fixture.test_store.schema);
    gone.value("BEGIN");
    gone.value(&calls.acquire("k", 1, "A"));
    // As young as the first: its connection was cut while it waited, and the request was sent again at once.
    let again = again.run_blocked_by(&gone, &calls.acquire("k", 1, "A"));
    gone.value("COMMIT");
    let (again, said) = again.ends_well();
    assert!(said.contains("\"resumed\": true"), "{said}");
    gone.value(&abandon(1));
    assert_eq!(again.value(&calls.holder("k")), "A", "it learned that it has the lease");
    again.value(&calls.release("k", 1, 1));
    assert_eq!(again.value(&calls.holder("k")), "");
}

#[test]
fn a_lease_that_was_renewed_is_left_to_its_holder() {
    let fixture = JobRaceFixture::new();
    let calls = Calls(fixture.test_store.schema);
    for checked in [false, true] {
        let session = fixture.session();
        let token: u64 = 1 + u64::from(checked);
        session.value(&calls.acquire("k", 1 + u8::from(checked), "A"));
        let renewing = if checked { calls.renew_checked("k", 2, token) } else { calls.renew("k", 1, token) };
        session.value(&renewing);
        session.value(&abandon(1 + u8::from(checked)));
        assert_eq!(session.value(&calls.holder("k")), "A");
        session.value(&calls.release("k", 1 + u8::from(checked), token));
    }
}

#[test]
fn a_lease_that_nobody_took_up_is_given_back_and_its_request_sent_again_learns_so() {
    let (fixture, [gone, again]) = JobRaceFixture::with_sessions();
    let calls = Calls(fixture.test_store.schema);
    gone.value(&calls.acquire("k", 1, "A"));
    gone.value("BEGIN");
    gone.value(&abandon(1));
    let again = again.run_blocked_by(&gone, &calls.acquire("k", 1, "A"));
    gone.value("COMMIT");
    let (again, said) = again.ends_well();
    assert!(said.contains("abandoned"), "{said}");
    assert_eq!(again.value(&calls.holder("k")), "");
}

#[test]
fn a_claim_that_the_same_request_repeated_is_left_to_it() {
    let (_fixture, [gone, again]) = JobRaceFixture::with_sessions();
    gone.value("BEGIN");
    assert_eq!(gone.value(&claim(A)), "1");
    let again = again.run_blocked_by(&gone, &claim(A));
    gone.value("COMMIT");
    assert_eq!(again.value(), "1", "the same job, the same token");
    assert_eq!(gone.value(&unheard()), "0");
}

#[test]
fn a_claim_that_was_renewed_is_left_to_its_holder() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    session.value(&claim(A));
    assert_eq!(session.value(&unheard()), "1");
    session.value(&renew(A, 1));
    assert_eq!(session.value(&unheard()), "0");
}

/// The second one waits: a claim that is being given back is not resumed, but taken anew.
#[test]
fn a_claim_sent_again_while_it_is_given_back_gets_a_token_of_its_own() {
    let (_fixture, [gone, again]) = JobRaceFixture::with_sessions();
    gone.value(&claim(A));
    gone.value("BEGIN");
    assert_eq!(gone.value(&unheard()), "1");
    let again = again.run_blocked_by(&gone, &claim(A));
    gone.value("WITH back AS (DELETE FROM job_running RETURNING lane, arrival)
         INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent) SELECT lane, arrival, 2, true, false, false FROM back");
    gone.value("COMMIT");
    assert_eq!(again.value(), "2");
}
