//! Three candidates, one leader at a time: `cargo run --example election [STORE]`.

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::time::Duration;

use fencehold::{Error, Fencehold};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let fh = Fencehold::connect(&store).await?;
    let election = fh.election("leader/scheduler").ttl(Duration::from_secs(5));
    let mut observer = election.observe().await?;

    let candidates: Vec<_> = ["anna", "ben", "carla"]
        .map(|name| {
            let candidacy = election.clone().owner(name);
            tokio::spawn(async move {
                let leader = candidacy.campaign().await?;
                println!("{name} leads under token {}", leader.token());
                leader.run(schedule_once()).await?;
                leader.resign().await
            })
        })
        .into();

    // Anybody can see who leads, without standing for election.
    observer.changed().await?;
    let seen = observer.leader().map(|leading| leading.owner.to_string());
    println!("an observer saw {}", seen.as_deref().unwrap_or("nobody"));

    for candidate in candidates {
        candidate.await.expect("a candidate does not panic")?;
    }
    fh.close().await;
    Ok(())
}

/// What only a leader may do. A leader that loses its lease stops in the middle of it.
async fn schedule_once() {
    tokio::task::yield_now().await;
}
