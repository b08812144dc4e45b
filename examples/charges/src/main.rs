//! A payment service. `POST /charges` carries out a request once for its `Idempotency-Key`, however often it arrives, and a job mails the
//! receipt.
//!
//! What it remembers is in a directory of this machine: there is no other server, and nothing to clean up after a crash. Any number of these
//! processes can share the directory.
//!
//! ```sh
//! cargo run -p charges &
//! curl -i localhost:8080/charges -H 'idempotency-key: 17' -H 'content-type: application/json' -d '{"customer":"ada","cents":990}'
//! ```

mod providers;
#[cfg(test)]
mod tests;

use std::env;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use fencehold::job::JobState;
use fencehold::{Error, Fencehold, Job, JobBuilder, JobError, JobId, OperationError, TypedJob, Worker};
use providers::{PaymentError, Providers};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

/// What requests and jobs need.
#[derive(Clone)]
struct App {
    fh: Fencehold,
    providers: Arc<Providers>,
}

#[derive(Serialize, Deserialize)]
struct Charge {
    customer: String,
    cents: u64,
}

#[derive(Serialize, Deserialize)]
struct Charged {
    receipt: String,
    mail: JobId,
}

/// The job that mails a receipt.
#[derive(Serialize, Deserialize)]
struct Mail {
    to: String,
    receipt: String,
}

impl TypedJob for Mail {
    const KIND: &'static str = "mail";
    type Result = ();

    fn options(job: JobBuilder<Self>) -> JobBuilder<Self> {
        job.max_failures(5).attempt_timeout(Duration::from_secs(60))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let store = env::var("FENCEHOLD_STORE").unwrap_or_else(|_| "file:charges-data?create=true".to_owned());
    let address = env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let app = App { fh: Fencehold::connect(&store).await?, providers: Arc::default() };
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);

    let serve = axum::serve(listener, router(app.clone())).with_graceful_shutdown(stop_signal());
    let work = worker(&app).run_until(stop_signal());
    let serve = async { serve.await.map_err(anyhow::Error::from) };
    let ((), drained) = tokio::try_join!(serve, async { work.await.map_err(anyhow::Error::from) })?;
    println!("{} mails were sent", drained.finished);
    app.fh.close().await;
    Ok(())
}

fn router(app: App) -> Router {
    Router::new()
        .route("/charges", post(charge))
        .route("/mails/{job}", get(mail_state))
        .with_state(app)
}

async fn charge(
    State(app): State<App>,
    headers: HeaderMap,
    Json(charge): Json<Charge>,
) -> Result<Json<Charged>, (StatusCode, String)> {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        return Err((StatusCode::BAD_REQUEST, "an Idempotency-Key is needed".to_owned()));
    };
    let operations = app.fh.operations();
    let charged = operations.once(key, &charge, async |job| carry_out(&app, job, &charge).await);
    charged.await.map(Json).map_err(|error| (status_of(&error), error.to_string()))
}

/// Should this process be killed here, the next request with the same key does it again: under the same names, so both the provider and
/// the queue recognise the repetition.
async fn carry_out(app: &App, job: Job, charge: &Charge) -> Result<Charged, PaymentError> {
    let receipt = app.providers.charge(&job.idempotency_key("charge")?, charge.cents)?;
    let mail = Mail { to: charge.customer.clone(), receipt: receipt.clone() };
    let mail = app.fh.queue("mails").typed_job(&mail);
    let mail = mail.unique(job.id().to_string(), Duration::from_secs(86_400)).enqueue().await?;
    Ok(Charged { receipt, mail: mail.id() })
}

fn status_of(error: &OperationError<PaymentError>) -> StatusCode {
    match error {
        OperationError::Work(PaymentError::Declined) => StatusCode::PAYMENT_REQUIRED,
        OperationError::InProgress { .. } => StatusCode::CONFLICT,
        // The key was used for another charge.
        OperationError::Store(Error::Conflict { .. }) => StatusCode::UNPROCESSABLE_ENTITY,
        OperationError::Store(error) if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

async fn mail_state(State(app): State<App>, Path(job): Path<JobId>) -> Result<Json<JobState>, StatusCode> {
    match app.fh.jobs().get(job).await {
        Ok(detail) => Ok(Json(detail.job.state)),
        Err(Error::JobNotFound { .. }) => Err(StatusCode::NOT_FOUND),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

fn worker(app: &App) -> Worker {
    // If this process is killed, another takes its jobs up after the ttl.
    let worker = app.fh.worker().queue("mails").ttl(Duration::from_secs(5));
    worker.state(app.clone()).handle_typed(mail)
}

async fn mail(job: Job, mail: Mail, fencehold::State(app): fencehold::State<App>) -> Result<(), JobError> {
    job.once("mail", async |key| Ok(app.providers.mail(&key, &mail.to, &mail.receipt)))
        .await
}

/// SIGTERM or Ctrl-C.
async fn stop_signal() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
