//! Jobs in a queue, and a worker that runs them: `cargo run --example worker [STORE]`.

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::time::Duration;

use fencehold::{Error, Fencehold, Job, JobError};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Email {
    to: String,
    subject: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let fh = Fencehold::connect(&store).await?;

    // A program of its own would call `.run()`, which works until SIGTERM or SIGINT.
    let worker = fh
        .worker()
        .queue("emails", 1)
        .concurrency(4)
        .ttl(Duration::from_secs(10))
        .handle("send", send)
        .start()?;

    let emails = fh.queue("emails");
    let mut sent = Vec::new();
    for to in ["anna@example.org", "ben@example.org", "carla@example.org"] {
        let email = Email { to: to.to_owned(), subject: "Your report".to_owned() };
        // The same invoice is mailed once, however often this is called.
        let job = emails
            .job("send", &email)
            .unique(format!("report-42/{to}"), Duration::from_secs(3_600));
        sent.push(job.max_failures(5).label("report", "42").enqueue().await?);
    }
    for job in sent {
        let receipt: String = fh.jobs().result(job.job_id, Duration::from_secs(30)).await?;
        println!("{receipt}");
    }

    let drained = worker.drain().await?;
    println!("the worker has ended in good order after {} jobs", drained.finished);
    fh.close().await;
    Ok(())
}

/// What it returns is the job's result; an error is a failure, and is tried again by the job's policy.
async fn send(job: Job, email: Email) -> Result<String, JobError> {
    if !email.to.contains('@') {
        return Err(JobError::new(format!("{} is no address", email.to)).permanent());
    }
    Ok(format!("{}: {} (attempt {}, token {})", email.to, email.subject, job.attempt(), job.token()))
}
