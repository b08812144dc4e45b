//! An effect is recorded once, whatever the number of attempts; and what is to be undone is, in reverse order.

use fencehold::job::{
    AttemptOutcome, CompensationState, EffectState, JobState, ListEffectsRequest, RetryPolicy,
};
use fencehold::store::StoreError;
use fencehold::{InDoubtPolicy, Job, JobError, JobId, Worker};
use serde::Serialize;
use std::time::Duration;
use tokio::sync::mpsc;

use crate::gated_store::{
    CallFate, FIRST_BACKOFF_MS, GatedCall, GatedFixture, RENEWED_BY_MS, done, next, secs, with, within,
};

/// The retry comes after exactly this.
const RETRY_MS: u32 = 1_000;

/// A job that is tried again after that.
async fn enqueue(fixture: &GatedFixture, payload: &impl Serialize) -> JobId {
    let soon = RetryPolicy::fixed(Duration::from_millis(RETRY_MS.into())).jitter_percent(0);
    let job = fixture.fh.queue("q").job("charge", payload).retry(soon);
    done(job.enqueue()).await.job_id
}

/// A handler that has one effect, tells under which key, and fails its first attempt afterwards.
fn charging(
    fixture: &GatedFixture,
    told: mpsc::UnboundedSender<String>,
    policy: Option<InDoubtPolicy>,
) -> Worker {
    fixture.worker().handle("charge", move |job: Job, cents: u64| {
        let told = told.clone();
        async move {
            let effect = async |key: String| {
                told.send(key.clone())?;
                Ok(format!("receipt for {cents}"))
            };
            let receipt = match policy {
                None => job.once("charge", effect).await?,
                Some(policy) => job.once_with_intent("charge", policy, effect).await?,
            };
            if job.attempt() == 1 {
                return Err(JobError::new("the mail server is away"));
            }
            Ok(receipt)
        }
    })
}

#[tokio::test]
async fn a_recorded_effect_gives_its_value_and_does_not_happen_again() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let worker = charging(&fixture, told, None).start().unwrap();
    let id = enqueue(&fixture, &990_u64).await;
    let failed = fixture.until_failed(id).await;
    assert_eq!((failed.effects.len(), failed.effects[0].state), (1, EffectState::Done));
    fixture.pass(RETRY_MS.into());
    let receipt: String = fixture.result(id).await;
    assert_eq!(receipt, "receipt for 990");
    done(worker.drain()).await;
    assert_eq!(next(&mut telling).await, format!("{id}/charge"));
    assert_eq!(telling.recv().await, None, "two attempts, one effect");
    let detail = fixture.job(id).await;
    assert_eq!(detail.effects.len(), 1);
    assert_eq!(detail.effects[0].token, detail.attempts[0].token, "recorded by the first");
}

#[tokio::test]
async fn an_effect_that_could_not_be_recorded_happens_again_under_the_same_key() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let worker = charging(&fixture, told, None).start().unwrap();
    let fails = StoreError::Unusable { store: "here".to_owned(), message: "the test says so".to_owned() };
    fixture.gate.next(GatedCall::Ledger, CallFate::Refuse(fails));
    let id = enqueue(&fixture, &990_u64).await;
    fixture.until_failed(id).await;
    fixture.pass(RETRY_MS.into());
    let receipt: String = fixture.result(id).await;
    assert_eq!(receipt, "receipt for 990");
    done(worker.drain()).await;
    let keys = [telling.recv().await.unwrap(), telling.recv().await.unwrap()];
    assert_eq!(keys[0], keys[1], "whatever it calls can tell");
    assert_eq!(telling.recv().await, None);
}

#[tokio::test]
async fn a_lost_answer_of_the_ledger_is_asked_for_again() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let worker = charging(&fixture, told, Some(InDoubtPolicy::Manual)).start().unwrap();
    fixture.gate.next(GatedCall::Ledger, CallFate::LoseAnswer);
    fixture.gate.next(GatedCall::Ledger, CallFate::Pass);
    fixture.gate.next(GatedCall::Ledger, CallFate::LoseAnswer);
    let id = enqueue(&fixture, &990_u64).await;
    // The announcement, twice; then the effect; then its record, twice.
    fixture.gate.arrived(GatedCall::Ledger, 1).await;
    fixture.pass_to_next(FIRST_BACKOFF_MS).await;
    fixture.gate.arrived(GatedCall::Ledger, 2).await;
    next(&mut telling).await;
    fixture.gate.arrived(GatedCall::Ledger, 3).await;
    fixture.pass_to_next(FIRST_BACKOFF_MS).await;
    fixture.gate.arrived(GatedCall::Ledger, 4).await;
    let failed = fixture.until_failed(id).await;
    assert_eq!(failed.effects[0].state, EffectState::Done);
    done(worker.drain()).await;
    assert_eq!(telling.recv().await, None, "the effect happened once");
}

/// A handler whose effect is begun and never comes to its end in the first attempt.
fn doubtful(fixture: &GatedFixture, told: mpsc::UnboundedSender<u32>, policy: InDoubtPolicy) -> Worker {
    fixture.worker().handle("charge", move |job: Job, (): ()| {
        let told = told.clone();
        async move {
            let attempt = job.attempt();
            let effect = async |_key: String| {
                told.send(attempt)?;
                if attempt == 1 { Err(JobError::new("no answer")) } else { Ok(attempt) }
            };
            job.once_with_intent("charge", policy, effect).await
        }
    })
}

#[tokio::test]
async fn an_effect_in_doubt_stops_the_job_for_a_person_to_look() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let worker = doubtful(&fixture, told, InDoubtPolicy::Manual).start().unwrap();
    let id = enqueue(&fixture, &()).await;
    assert_eq!(within(telling.recv()).await, Some(1));
    let failed = fixture.until_failed(id).await;
    assert_eq!(failed.effects[0].state, EffectState::Intended(InDoubtPolicy::Manual));
    fixture.pass(RETRY_MS.into());
    let stopped = fixture.until_state(id, JobState::InDoubt).await;
    assert_eq!(stopped.attempts[1].outcome, AttemptOutcome::InDoubt);
    assert_eq!(stopped.job.failure_count, 1, "to stop is no failure");
    let findings = done(fixture.fh.jobs().effects(ListEffectsRequest { cursor: None, limit: 10 })).await;
    assert_eq!((findings.effects.len(), findings.effects[0].job_id), (1, id));

    done(fixture.fh.jobs().effect_happened(id, "charge", &77_u32)).await;
    let value: u32 = fixture.result(id).await;
    assert_eq!(value, 77, "as the person said");
    done(worker.drain()).await;
    assert_eq!(telling.recv().await, None, "it was begun once");
}

#[tokio::test]
async fn an_effect_that_may_be_repeated_is() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let worker = doubtful(&fixture, told, InDoubtPolicy::Retry).start().unwrap();
    let id = enqueue(&fixture, &()).await;
    assert_eq!(within(telling.recv()).await, Some(1));
    fixture.until_failed(id).await;
    fixture.pass(RETRY_MS.into());
    assert_eq!(within(telling.recv()).await, Some(2));
    assert_eq!(within(fixture.fh.jobs().result::<u32>(id, secs(60))).await, Ok(2));
    done(worker.drain()).await;
}

#[tokio::test]
async fn a_stale_attempt_records_nothing_and_begins_nothing() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let worker = fixture
        .worker()
        .handle_blocking("charge", move |job: fencehold::blocking::Job, (): ()| {
            let effect = |_key| {
                told.send("begun".to_owned())?;
                let _ = gone.lock().unwrap().recv();
                Ok(())
            };
            let error = job.once("charge", effect).run().unwrap_err();
            told.send(error.to_string())?;
            assert!(error.is_lost());
            let error = job.once("ship", |_key| Ok(())).run().unwrap_err();
            told.send(error.to_string())?;
            Err::<(), _>(error)
        });
    let worker = worker.start().unwrap();
    let id = fixture.enqueue("charge").await;
    assert_eq!(next(&mut telling).await, "begun");
    done(fixture.fh.jobs().force_cancel(id, None)).await;
    fixture.pass(RENEWED_BY_MS);
    fixture.gate.arrived(GatedCall::RenewClaims, 1).await;
    go.send(()).unwrap();
    let refused = next(&mut telling).await;
    assert!(refused.starts_with(&format!("the claim of job {id} under token 1 is lost")), "{refused}");
    let refused = next(&mut telling).await;
    assert!(refused.contains("is lost"), "{refused}");
    done(worker.drain()).await;
    let detail = fixture.job(id).await;
    assert_eq!((detail.job.state, detail.effects.len()), (JobState::Cancelled, 0));
}

#[tokio::test]
async fn one_effect_is_under_way_once_in_an_attempt() {
    let fixture = GatedFixture::new().await;
    let worker = fixture.worker().handle("twice", async |job: Job, (): ()| {
        let inner = job.clone();
        let effect = async |_key| {
            let error = inner.once("same", async |_key| Ok(1)).await.unwrap_err();
            Ok(error.to_string())
        };
        let error: String = job.once("same", effect).await?;
        let again: String = job.once("same", async |_key| Ok("another".to_owned())).await?;
        Ok::<_, JobError>((error == again, error))
    });
    let worker = worker.start().unwrap();
    let id = fixture.enqueue("twice").await;
    let (same, error): (bool, String) = fixture.result(id).await;
    assert_eq!(error, "effect same is under way already in this attempt");
    assert!(same, "afterwards it is recorded like any other");
    done(worker.drain()).await;
}

#[tokio::test]
async fn the_effects_of_a_job_that_failed_for_good_are_undone_last_one_first() {
    let fixture = GatedFixture::new().await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let worker = fixture.worker().handle("trip", async |job: Job, (): ()| -> Result<(), _> {
        job.once("flight", async |_key| Ok(11))
            .compensate_with("undo", "the flight")
            .await?;
        job.once("insurance", async |_key| Ok(12)).await?;
        let hotel = job.once("hotel", async |_key| Ok(13));
        hotel.compensate_from("undo", |number| format!("hotel {number}")).await?;
        Err(JobError::new("there is no car").permanent())
    });
    let undo = with(told, |told, job, what: String| async move {
        let of = job.compensates().expect("it undoes an effect");
        Ok(told.send((of.job_id, of.effect.to_string(), what))?)
    });
    let worker = worker.handle("undo", undo).start().unwrap();
    let id = fixture.enqueue("trip").await;
    let undone = |effect: &str, what: &str| (id, effect.to_owned(), what.to_owned());
    assert_eq!(next(&mut telling).await, undone("hotel", "hotel 13"));
    assert_eq!(next(&mut telling).await, undone("flight", "the flight"));
    let detail = fixture
        .until_job(id, |detail| detail.job.compensation_state == CompensationState::Done)
        .await;
    assert_eq!(detail.job.state, JobState::Failed);
    let states: Vec<_> = detail.effects.iter().map(|effect| effect.state).collect();
    assert_eq!(states, [EffectState::Compensated, EffectState::Done, EffectState::Compensated]);
    done(worker.drain()).await;
    assert_eq!(telling.recv().await, None, "once each");
}

#[tokio::test]
async fn a_bad_name_or_a_bad_undo_is_told_before_the_effect_happens() {
    let fixture = GatedFixture::new().await;
    let worker = fixture.worker().handle("bad", async |job: Job, (): ()| {
        let mut errors = Vec::new();
        let never = async |_key: String| -> Result<(), JobError> { panic!("it must not happen") };
        errors.push(job.once("", never).await.unwrap_err().to_string());
        errors.push(job.once("a", never).compensate_with("", &()).await.unwrap_err().to_string());
        let nowhere = job.once("a", never).compensate_with("k", &()).compensation_queue("");
        errors.push(nowhere.await.unwrap_err().to_string());
        errors.push(job.idempotency_key("a\n").unwrap_err().to_string());
        Ok::<_, JobError>(errors)
    });
    let worker = worker.start().unwrap();
    let id = fixture.enqueue("bad").await;
    let errors: Vec<String> = fixture.result(id).await;
    let [name, kind, queue, key] = errors.as_slice() else { panic!("{errors:?}") };
    assert_eq!((name.as_str(), kind.as_str()), ("effect must not be empty", "kind must not be empty"));
    assert_eq!(queue, "queue must not be empty");
    assert_eq!(key, "effect has a control character at byte 1");
    done(worker.drain()).await;
}

/// An effect that fails its first time, in a way that is certain or not.
fn refused(fixture: &GatedFixture, error: fn() -> JobError) -> Worker {
    fixture.worker().handle("charge", move |job: Job, _cents: u64| async move {
        let attempt = job.attempt();
        job.once_with_intent("charge", InDoubtPolicy::Manual, async move |_key| {
            if attempt == 1 { Err(error()) } else { Ok("receipt".to_owned()) }
        })
        .await
    })
}

#[tokio::test]
async fn a_definite_error_of_an_effect_leaves_nothing_in_doubt() {
    let passed_on = || JobError::from(std::io::Error::other("refused")).effect_did_not_happen();
    for error in [|| JobError::new("429: nothing was charged").effect_did_not_happen(), passed_on] {
        let fixture = GatedFixture::new().await;
        let worker = refused(&fixture, error).start().unwrap();
        let id = enqueue(&fixture, &990_u64).await;
        let failed = fixture.until_failed(id).await;
        assert!(failed.effects.is_empty(), "the intent is closed: {:?}", failed.effects);
        fixture.pass(RETRY_MS.into());
        let receipt: String = fixture.result(id).await;
        assert_eq!(receipt, "receipt");
        done(worker.drain()).await;
    }
}

#[tokio::test]
async fn an_error_that_may_come_after_the_effect_leaves_it_in_doubt() {
    let passed_on = || JobError::from(std::io::Error::other("timed out"));
    for error in [|| JobError::new("no answer came"), passed_on] {
        let fixture = GatedFixture::new().await;
        let worker = refused(&fixture, error).start().unwrap();
        let id = enqueue(&fixture, &990_u64).await;
        fixture.until_failed(id).await;
        fixture.pass(RETRY_MS.into());
        fixture.until_state(id, JobState::InDoubt).await;
        done(worker.drain()).await;
    }
}
