//! What a request handler does is done once for one idempotency key.

use fencehold::job::JobState;
use fencehold::{Error, HoldTarget, InDoubtPolicy, Job, Operation, OperationError, OperationStatus};
use tokio::sync::{mpsc, oneshot};

use crate::gated_store::{CallFate, FIRST_BACKOFF_MS, GatedCall, GatedFixture, done, next, secs, within};

async fn begin(fixture: &GatedFixture, policy: InDoubtPolicy, payload: &str) -> OperationStatus<String> {
    let operations = fixture.fh.operations().ttl(secs(10)).in_doubt_policy(policy);
    done(operations.begin("order-42", payload)).await
}

fn new(begun: OperationStatus<String>) -> Operation {
    match begun {
        OperationStatus::Started(operation) => operation,
        other => panic!("not new: {other:?}"),
    }
}

#[tokio::test]
async fn the_stored_answer_is_given_to_everybody_who_asks_again() {
    let fixture = GatedFixture::new().await;
    let operation = new(begin(&fixture, InDoubtPolicy::Retry, "990").await);
    assert!(operation.is_live());
    match begin(&fixture, InDoubtPolicy::Retry, "990").await {
        OperationStatus::InProgress { owner, token, remaining, job_id, .. } => {
            assert_eq!((owner.as_str(), token, job_id), ("me", operation.token(), operation.id()));
            assert_eq!(remaining, secs(10));
        }
        other => panic!("{other:?}"),
    }
    done(operation.complete("receipt")).await;
    for _ in 0..2 {
        let again = begin(&fixture, InDoubtPolicy::Retry, "990").await;
        assert!(matches!(&again, OperationStatus::Completed(answer) if answer == "receipt"), "{again:?}");
    }
    let other = within(fixture.fh.operations().begin::<String>("order-42", "1"))
        .await
        .unwrap_err();
    assert!(matches!(&other, Error::Conflict { field, .. } if field == "idempotency_key"), "{other:?}");
}

#[tokio::test]
async fn work_is_done_once_and_its_answer_is_given_again() {
    let fixture = GatedFixture::new().await;
    let operations = fixture.fh.operations().ttl(secs(10));
    let never = async |_: Job| -> Result<String, &str> { panic!("it is done already") };
    let failed = within(operations.once("order-42", "990", async |_| Err::<String, _>("no paper"))).await;
    assert_eq!(failed, Err(OperationError::Work("no paper")));

    let (begun, mut beginning) = mpsc::unbounded_channel();
    let (go, gone) = oneshot::channel::<()>();
    let first = operations.clone();
    let first = tokio::spawn(async move {
        let work = async move |job: Job| {
            begun.send(()).unwrap();
            gone.await.map(|()| format!("receipt {}", job.token()))
        };
        first.once("order-42", "990", work).await
    });
    next(&mut beginning).await;
    let meanwhile = within(operations.once("order-42", "990", never)).await;
    assert!(
        matches!(&meanwhile, Err(OperationError::InProgress { owner, .. }) if owner.as_str() == "me"),
        "{meanwhile:?}"
    );
    go.send(()).unwrap();
    // The failed one was begun, too: this is the second attempt.
    assert_eq!(within(first).await.unwrap(), Ok("receipt 2".to_owned()));
    assert_eq!(within(operations.once("order-42", "990", never)).await, Ok("receipt 2".to_owned()));
    let other = within(operations.once("order-42", "1", never)).await;
    assert!(matches!(&other, Err(OperationError::Store(Error::Conflict { .. }))), "{other:?}");
}

#[tokio::test]
async fn work_is_dropped_where_its_operation_is_lost() {
    let fixture = GatedFixture::new().await;
    let operations = fixture.fh.operations().ttl(secs(10));
    let (begun, mut beginning) = mpsc::unbounded_channel();
    let working = tokio::spawn(async move {
        let work = async move |_: Job| {
            begun.send(()).unwrap();
            std::future::pending::<Result<(), &str>>().await
        };
        operations.once("order-42", "990", work).await
    });
    next(&mut beginning).await;
    fixture.gate.close(GatedCall::RenewClaims);
    fixture.pass(9_001);
    let lost = within(working).await.unwrap();
    assert!(matches!(&lost, Err(OperationError::Store(Error::Lost { .. }))), "{lost:?}");
}

#[tokio::test]
async fn a_failed_operation_stays_failed() {
    let fixture = GatedFixture::new().await;
    let operation = new(begin(&fixture, InDoubtPolicy::Retry, "990").await);
    done(operation.fail("the card is refused")).await;
    match begin(&fixture, InDoubtPolicy::Retry, "990").await {
        OperationStatus::Failed { state, error, .. } => {
            assert_eq!((state, error.as_deref()), (JobState::Failed, Some("the card is refused")));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_operation_is_renewed_for_as_long_as_it_is_carried_out() {
    let fixture = GatedFixture::new().await;
    let operation = new(begin(&fixture, InDoubtPolicy::Manual, "990").await);
    for _ in 0..10 {
        fixture.pass_renewal(&operation, 10_000).await;
    }
    assert!(operation.is_live());
    done(operation.complete("receipt")).await;
}

#[tokio::test]
async fn one_that_is_dropped_can_be_begun_anew_where_it_may_be_repeated() {
    let fixture = GatedFixture::new().await;
    let operation = new(begin(&fixture, InDoubtPolicy::Retry, "990").await);
    let (id, token) = (operation.id(), operation.token());
    drop(operation);
    let again = loop {
        match begin(&fixture, InDoubtPolicy::Retry, "990").await {
            OperationStatus::Started(operation) => break operation,
            OperationStatus::InProgress { .. } => tokio::task::yield_now().await,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(again.id(), id);
    assert!(again.token() > token);
    done(again.release()).await;
    let third = new(begin(&fixture, InDoubtPolicy::Retry, "990").await);
    done(third.complete("receipt")).await;
}

#[tokio::test]
async fn one_that_is_dropped_is_indeterminate_where_somebody_must_be_asked() {
    let fixture = GatedFixture::new().await;
    let operation = new(begin(&fixture, InDoubtPolicy::Manual, "990").await);
    drop(operation);
    let at_once = begin(&fixture, InDoubtPolicy::Manual, "990").await;
    assert!(matches!(at_once, OperationStatus::InProgress { .. }), "{at_once:?}");
    fixture.pass(11_000);
    let later = begin(&fixture, InDoubtPolicy::Manual, "990").await;
    assert!(matches!(later, OperationStatus::InDoubt { .. }), "{later:?}");
}

#[tokio::test]
async fn a_holder_that_died_gives_way_to_the_next_and_can_say_nothing_more() {
    let fixture = GatedFixture::new().await;
    let operation = new(begin(&fixture, InDoubtPolicy::Retry, "990").await);
    fixture.gate.close(GatedCall::RenewClaims);
    fixture.pass(11_000);
    assert!(!operation.is_live());
    let next = new(begin(&fixture, InDoubtPolicy::Retry, "990").await);
    assert!(next.token() > operation.token());
    let late = within(operation.complete("too late")).await.unwrap_err();
    assert!(matches!(late, Error::Lost { target: HoldTarget::Job(_), .. }) && !late.is_retryable(), "{late}");
    done(next.complete("in time")).await;
    let done = begin(&fixture, InDoubtPolicy::Retry, "990").await;
    assert!(matches!(&done, OperationStatus::Completed(answer) if answer == "in time"), "{done:?}");
}

#[tokio::test]
async fn a_lost_answer_of_begin_is_asked_for_again_and_is_the_same_beginning() {
    let fixture = GatedFixture::new().await;
    fixture.gate.next(GatedCall::Begin, CallFate::LoseAnswer);
    let time = fixture.time.clone();
    let (begun, ()) = tokio::join!(begin(&fixture, InDoubtPolicy::Manual, "990"), async {
        fixture.gate.arrived(GatedCall::Begin, 1).await;
        time.pass_to_next(FIRST_BACKOFF_MS).await;
    });
    let operation = new(begun);
    assert_eq!(operation.attempt(), 1);
    done(operation.complete("receipt")).await;
}

#[tokio::test]
async fn effects_of_an_operation_are_recorded_once_as_a_jobs_are() {
    let fixture = GatedFixture::new().await;
    let operation = new(begin(&fixture, InDoubtPolicy::Retry, "990").await);
    let receipt = done(operation.once("charge", async |key| Ok(key)).into_future()).await;
    assert_eq!(receipt, format!("{}/charge", operation.id()));
    done(operation.release()).await;
    let again = new(begin(&fixture, InDoubtPolicy::Retry, "990").await);
    let stored: String = done(again.once("charge", async |_| panic!("recorded")).into_future()).await;
    assert_eq!(stored, receipt);
    done(again.complete(&stored)).await;
}
