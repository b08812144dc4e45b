//! Typed jobs in a queue, and a worker that runs them: `cargo run --example worker [STORE]`.

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::time::Duration;

use fencehold::{Error, Fencehold, Job, JobBuilder, JobError, State, TypedJob};
use serde::{Deserialize, Serialize};

/// A job: what enqueues it, what runs it and what waits for it agree on these types.
#[derive(Serialize, Deserialize)]
struct Email {
    to: String,
    subject: String,
}

impl TypedJob for Email {
    const KIND: &'static str = "email";
    type Result = String;

    fn options(job: JobBuilder<Self>) -> JobBuilder<Self> {
        job.max_failures(5).attempt_timeout(Duration::from_secs(60))
    }
}

/// What handlers need of the program.
#[derive(Clone)]
struct App {
    sender: &'static str,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let fh = Fencehold::connect(&store).await?;

    // A program of its own would call `.run()`, which works until SIGTERM or SIGINT.
    let worker = fh
        .worker()
        .queue("emails")
        .concurrency(4)
        .state(App { sender: "reports@example.org" })
        .handle_typed(send)
        .start()?;

    let emails = fh.queue("emails");
    let mut sent = Vec::new();
    for to in ["anna@example.org", "ben@example.org", "carla@example.org"] {
        let email = Email { to: to.to_owned(), subject: "Your report".to_owned() };
        // The same report is mailed once, however often this is called.
        let job = emails
            .typed_job(&email)
            .unique(format!("report-42/{to}"), Duration::from_secs(3_600));
        sent.push(job.label("report", "42").enqueue().await?);
    }
    for job in sent {
        println!("{}", job.result(Duration::from_secs(30)).await?); // a String: nothing else compiles
    }

    let drained = worker.drain().await?;
    println!("the worker has ended in good order after {} jobs", drained.finished);
    fh.close().await;
    Ok(())
}

/// What it returns is the job's result. An error is a failure, and is tried again by the job's policy.
async fn send(job: Job, email: Email, State(app): State<App>) -> Result<String, JobError> {
    if !email.to.contains('@') {
        return Err(JobError::new(format!("{} is no address", email.to)).permanent());
    }
    // A later attempt gets the stored value, and mails nothing.
    job.once("smtp", async |key| Ok(format!("{} to {}: {} (key {key})", app.sender, email.to, email.subject)))
        .await
}
