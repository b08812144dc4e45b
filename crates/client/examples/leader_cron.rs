//! Something that happens every so often, on one of many machines: on the one that leads. `cargo run --example leader_cron [STORE]`.

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]
#![allow(clippy::disallowed_methods, reason = "time passes between two ticks")]

use std::convert::Infallible;
use std::time::Duration;

use fencehold::{Election, Error, Fencehold, LeadershipEnd};
use tokio::sync::watch;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let fh = Fencehold::connect(&store).await?;

    // Two machines. Each has a signal to stop; a program of its own would wait for SIGTERM.
    let election = fh.election("leader/cron").ttl(Duration::from_secs(5));
    let (ticks, mut ticked) = watch::channel(0);
    let (stop_first, first_stops) = watch::channel(());
    let (stop_second, second_stops) = watch::channel(());
    let first = tokio::spawn(machine(election.clone().owner("first"), ticks.clone(), first_stops));
    ticked.changed().await.expect("the first machine ticks");
    let second = tokio::spawn(machine(election.clone().owner("second"), ticks, second_stops));

    drop(stop_first); // the first machine is shut down, and the second leads at once
    first.await.expect("it does not panic")?;
    ticked.changed().await.expect("the second machine ticks");
    drop(stop_second);
    second.await.expect("it does not panic")?;
    fh.close().await;
    Ok(())
}

async fn machine(
    election: Election,
    ticks: watch::Sender<u64>,
    mut stops: watch::Receiver<()>,
) -> Result<(), Error> {
    let stop = async move { while stops.changed().await.is_ok() {} };
    let lead = election.lead(stop, async |leader| {
        println!("{} leads under token {}", leader.owner(), leader.token());
        loop {
            // What is done here shows the token to whatever it changes, so that a leader that stalls does no harm.
            ticks.send_replace(leader.token().get());
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    });
    // The work never ends by itself.
    let LeadershipEnd::<Infallible>::Stopped = lead.await?;
    Ok(())
}
