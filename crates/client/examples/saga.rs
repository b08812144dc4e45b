//! A trip of three bookings, of which the third fails: the other two are undone, last one first:
//! `cargo run --example saga [STORE]`.

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::time::Duration;

use fencehold::job::CompensationState;
use fencehold::{Error, Fencehold, Job, JobError};
use tokio::sync::mpsc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let fh = Fencehold::connect(&store).await?;
    let (undone, mut undoing) = mpsc::unbounded_channel();

    let worker = fh
        .worker()
        .queue("trips")
        .handle("book", book)
        .handle("unbook", move |_job: Job, booking: String| {
            let undone = undone.clone();
            async move {
                println!("{booking} is undone");
                undone.send(booking)?;
                Ok::<_, JobError>(())
            }
        })
        .start()?;

    let trip = fh.queue("trips").job("book", &"Lisbon").enqueue().await?;
    match fh.jobs().result::<()>(trip.job_id, Duration::from_secs(30)).await {
        Err(failed @ Error::JobFailed { .. }) => println!("{failed}"),
        other => panic!("the third booking fails: {other:?}"),
    }

    // Each undo job is enqueued when the one before it has completed.
    assert_eq!(undoing.recv().await.as_deref(), Some("hotel in Lisbon"));
    assert_eq!(undoing.recv().await.as_deref(), Some("flight to Lisbon"));
    while fh.jobs().get(trip.job_id).await?.job.compensation_state != CompensationState::Done {
        tokio::task::yield_now().await;
    }
    worker.drain().await?;
    fh.close().await;
    Ok(())
}

async fn book(job: Job, city: String) -> Result<(), JobError> {
    for booking in [format!("flight to {city}"), format!("hotel in {city}")] {
        let number = job
            .once(&booking, async |key| Ok(reserve(&key, &booking)))
            .compensate_with("unbook", &booking)
            .await?;
        println!("{booking} is booked: {number}");
    }
    Err(JobError::new(format!("there is no car to be had in {city}")).permanent())
}

/// What would call another service, which tells a repetition by the key.
fn reserve(key: &str, booking: &str) -> String {
    format!("{booking} under {key}")
}
