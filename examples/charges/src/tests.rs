//! The service without a socket and without a directory: requests go straight to its router, and time passes when the test says so.

use std::future::pending;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use fencehold::testing;
use tower::ServiceExt;

use super::*;

async fn app(store: &testing::ManualClockStore) -> anyhow::Result<App> {
    Ok(App { fh: store.connect().await?, providers: Arc::default() })
}

/// Status and body of a response.
async fn ask(app: &App, request: Request<Body>) -> anyhow::Result<(StatusCode, String)> {
    let response = router(app.clone()).oneshot(request).await?;
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await?;
    Ok((status, String::from_utf8(body.into())?))
}

async fn charge_once(app: &App, key: &str, cents: u64) -> anyhow::Result<(StatusCode, String)> {
    let body = serde_json::to_vec(&Charge { customer: "ada".to_owned(), cents })?;
    let request = Request::post("/charges")
        .header("idempotency-key", key)
        .header("content-type", "application/json");
    ask(app, request.body(body.into())?).await
}

#[tokio::test]
async fn a_request_that_arrives_twice_charges_once_and_mails_once() -> anyhow::Result<()> {
    let store = testing::store()?;
    let (one, other) = (app(&store).await?, app(&store).await?); // two processes on one store

    let (status, first) = charge_once(&one, "order-17", 990).await?;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(charge_once(&other, "order-17", 990).await?, (StatusCode::OK, first.clone()));
    assert_eq!(charge_once(&one, "order-17", 1).await?.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!((one.providers.charges(), other.providers.charges()), (vec![990], vec![]));

    let charged: Charged = serde_json::from_str(&first)?;
    let state = || Request::get(format!("/mails/{}", charged.mail)).body(Body::empty());
    assert_eq!(ask(&one, state()?).await?.1, r#""queued""#);
    worker(&one).until_empty().run_until(pending::<()>()).await?;
    assert_eq!(ask(&one, state()?).await?.1, r#""completed""#);
    assert_eq!(one.providers.mails(), ["ada: receipt for 990 cents"]);
    Ok(())
}

#[tokio::test]
async fn a_payment_that_was_declined_can_be_tried_again() -> anyhow::Result<()> {
    let app = app(&testing::store()?).await?;
    for _ in 0..2 {
        assert_eq!(charge_once(&app, "order-18", 0).await?.0, StatusCode::PAYMENT_REQUIRED);
    }
    assert_eq!(app.fh.queue("mails").counts().await?.queued, 0);
    Ok(())
}

/// A caller that carries a request out and stalls: its time runs out, and the same request is carried out again, under the same names.
#[tokio::test]
async fn after_a_stall_the_same_names_are_used_again() -> anyhow::Result<()> {
    let store = testing::store()?;
    let (stalled, app) = (app(&store).await?, app(&store).await?);
    let charge = Charge { customer: "ada".to_owned(), cents: 990 };
    let fencehold::OperationStatus::Started(operation) =
        stalled.fh.operations().begin::<Charged>("order-19", &charge).await?
    else {
        panic!("no one else has begun it");
    };
    let done = carry_out(&stalled, Job::clone(&operation), &charge)
        .await
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    assert_eq!(charge_once(&app, "order-19", 990).await?.0, StatusCode::CONFLICT);

    store.advance(Duration::from_secs(31));
    let (status, answer) = charge_once(&app, "order-19", 990).await?;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(serde_json::from_str::<Charged>(&answer)?.mail, done.mail, "one mail");
    assert!(operation.complete(&done).await.is_err(), "it comes too late");
    Ok(())
}
