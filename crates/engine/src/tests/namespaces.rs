//! Looking leaves no trace: only what is taken in a namespace makes one.

use fencehold_conformance::assert_matches;
use fencehold_contract::job::{
    AttemptRef, AttemptReport, ChangeJobsRequest, ClaimJobsRequest, JobAction, JobSelector,
    ListEffectsRequest, ListJobsRequest, NewJob, Report, WaitRequest,
};
use fencehold_contract::operation::{JobRequest, JobResponse, StoreRequest, StoreResponse};
use fencehold_contract::{HoldRef, ListEventsRequest, ListLeasesRequest, RevokeLeasesRequest, RevokeTarget};
use fencehold_core::job::{JobId, JobKind, QueueName};
use fencehold_core::{HoldId, Namespace, Owner, Reason, Token};

use super::{TestEngine, claim, key, request};

#[test]
fn whoever_only_looks_makes_no_namespace() {
    let mut rig = TestEngine::new();
    rig.take(request("k", 1));
    let events = ListEventsRequest { limit: 1, wait_ms: 50, ..ListEventsRequest::default() };
    let list = ListLeasesRequest { limit: 1, ..ListLeasesRequest::default() };
    for nth in 0..10 {
        for ask in [
            StoreRequest::Get(key("k")),
            StoreRequest::List(list.clone()),
            StoreRequest::Events(events.clone()),
            StoreRequest::Status,
        ] {
            rig.send_in(&nobodys(nth), 1_000 + nth, ask);
        }
    }
    rig.pass(50);
    rig.sweep(10);
    let (_, answers) = rig.engine.take_batch(true);
    assert_eq!(answers.len(), 40, "each was answered all the same");
    assert_eq!(rig.engine.table.namespaces(), 1);
}

/// Anyone who can reach the store could otherwise fill its memory with names.
#[test]
fn whoever_speaks_for_no_lease_makes_no_namespace() {
    let mut rig = TestEngine::new();
    rig.take(request("k", 1));
    let hold = HoldRef { key: key("k"), hold_id: HoldId::from_random([7; 16]), token: Token::new(3) };
    let (by, reason) = (Owner::new("P").unwrap(), Reason::new("because").unwrap());
    let revoke = |which| StoreRequest::Revoke {
        request: RevokeLeasesRequest { target: which, by: by.clone(), reason: reason.clone() },
        from: 0,
    };
    for nth in 0..10 {
        let asks = [
            StoreRequest::Renew(vec![hold.clone()]),
            StoreRequest::Release(vec![hold.clone()]),
            revoke(RevokeTarget::Key { key: key("k"), only_token: None }),
            revoke(RevokeTarget::Prefix(String::new())),
        ];
        for ask in asks {
            rig.send_in(&nobodys(nth), 1_000 + nth, ask);
        }
    }
    let (_, answers) = rig.engine.take_batch(true);
    assert_eq!(answers.len(), 40, "each was answered all the same");
    assert_eq!(rig.engine.table.namespaces(), 1);
    assert_eq!(rig.held(), 1, "and the same key elsewhere was left alone");

    let events = ListEventsRequest { limit: 10, ..ListEventsRequest::default() };
    rig.send_in(&nobodys(0), 2_000, StoreRequest::Events(events));
    let (_, mut answers) = rig.engine.take_batch(true);
    let said = answers.pop().unwrap().result.said();
    let page = assert_matches!(said, Ok(StoreResponse::Events(page)) => page);
    assert_eq!(page.events.len(), 2, "a token that was never given is an alarm: {page:?}");
}

fn nobodys(nth: u64) -> Namespace {
    Namespace::new(format!("nobodys-{nth}")).unwrap()
}

fn claim_of(nth: u64, wait_ms: u64) -> StoreRequest {
    StoreRequest::Job(JobRequest::Claim(ClaimJobsRequest { wait_ms, ..claim("q", nth) }))
}

/// What is said for a job, or asked about one, where there is none.
#[test]
fn whoever_speaks_of_no_job_makes_no_namespace() {
    let mut rig = TestEngine::new();
    rig.take(request("k", 1));
    let job = JobId::from_random(1_800_000_000_000, [7; 10]);
    let attempt = AttemptRef { job_id: job, hold_id: HoldId::from_random([7; 16]), token: Token::new(3) };
    let by = Owner::new("P").unwrap();
    let report = |word| JobRequest::Report(vec![AttemptReport { attempt: attempt.clone(), report: word }]);
    let cancel = |on| {
        let action = JobAction::Cancel { reason: None, force: true };
        JobRequest::Change(ChangeJobsRequest { limit: 10, ..ChangeJobsRequest::new(on, action, by.clone()) })
    };
    for nth in 0..10 {
        let asks = [
            JobRequest::Renew(vec![attempt.clone()]),
            report(Report::Complete { result: None }),
            report(Report::Fail { error: "no".to_owned(), retry_in_ms: None, permanent: true }),
            report(Report::Release {}),
            cancel(JobSelector::Ids { job_ids: vec![job] }),
            cancel(JobSelector::All {}),
            JobRequest::Get(job),
            JobRequest::WaitFor(WaitRequest { id: job, wait_ms: 1_000 }),
            JobRequest::List(ListJobsRequest { limit: 10, ..ListJobsRequest::default() }),
            JobRequest::Effects(ListEffectsRequest { limit: 10, ..ListEffectsRequest::default() }),
            JobRequest::Queues,
            JobRequest::Schedules,
        ];
        for ask in asks {
            rig.send_in(&nobodys(nth), 1_000 + nth, StoreRequest::Job(ask));
        }
    }
    let (_, answers) = rig.engine.take_batch(true);
    assert_eq!(answers.len(), 120, "each was answered all the same");
    assert_eq!(rig.engine.table.namespaces(), 1);
}

/// A claim may wait for the first job of its namespace. If none comes, nothing is left of it.
#[test]
fn a_claim_that_was_given_nothing_leaves_no_namespace() {
    let mut rig = TestEngine::new();
    for nth in 0..10 {
        let (at_once, waits, leaves) = (1_000 + 3 * nth, 1_001 + 3 * nth, 1_002 + 3 * nth);
        for (ticket, hold, wait_ms) in [(at_once, 1, 0), (waits, 2, 50), (leaves, 3, 60_000)] {
            rig.send_in(&nobodys(nth), ticket, claim_of(hold, wait_ms));
        }
        rig.engine.serve_claims(rig.now, &mut rig.archive);
        assert_eq!(rig.engine.table.namespaces(), 1, "two stand in line there");
        rig.pass(50);
        rig.sweep(10);
        rig.engine.cancel(rig.now, leaves);
        assert_eq!(rig.engine.table.namespaces(), 0);
    }
    let (_, answers) = rig.engine.take_batch(true);
    assert_eq!(answers.len(), 20, "those who stayed were answered");
}

/// Sent again, the later sending takes the place of the earlier, in the namespace that exists only for them.
#[test]
fn a_claim_that_is_sent_again_keeps_its_namespace() {
    let mut rig = TestEngine::new();
    let here = nobodys(1);
    for ticket in [1_000, 1_001] {
        rig.send_in(&here, ticket, claim_of(1, 60_000));
    }
    assert_eq!(rig.engine.table.namespaces(), 1);
    let job = NewJob::new(
        JobId::from_random(1_800_000_000_000, [7; 10]),
        QueueName::new("q").unwrap(),
        JobKind::new("k").unwrap(),
        "{}",
    );
    rig.send_in(&here, 1_002, StoreRequest::Job(JobRequest::Enqueue(vec![job])));
    rig.engine.serve_claims(rig.now, &mut rig.archive);
    let (_, answers) = rig.engine.take_batch(true);
    let given: Vec<u64> = answers.iter().filter(|a| a.granted.is_some()).map(|a| a.ticket).collect();
    assert_eq!(given, [1_001]);
    assert_eq!(rig.engine.table.namespaces(), 1, "there is a job in it now");
}

/// A queue that only claims had named belongs to no namespace, and is not shown.
#[test]
fn a_namespace_that_does_not_exist_has_no_queues() {
    let mut rig = TestEngine::new();
    rig.send_in(&nobodys(1), 1_000, claim_of(1, 0));
    rig.engine.serve_claims(rig.now, &mut rig.archive);
    rig.engine.take_batch(true);
    let queues = rig.answer(StoreRequest::Job(JobRequest::Queues));
    assert_matches!(queues, Ok(StoreResponse::Job(JobResponse::Queues(list))) if list.queues.is_empty());
}

#[test]
fn a_namespace_is_found_again_among_many() {
    let mut rig = TestEngine::new();
    let names: Vec<Namespace> = (0..500).map(|nth| Namespace::new(format!("team-{nth}")).unwrap()).collect();
    let numbers: Vec<u32> = names.iter().map(|name| rig.engine.table.space(name)).collect();
    let again: Vec<Option<u32>> = names.iter().map(|name| rig.engine.table.find_space(name)).collect();
    assert_eq!(again, numbers.into_iter().map(Some).collect::<Vec<_>>());
    assert_eq!(rig.engine.table.namespaces(), 500);
}
