//! A report that must be built by one process at a time: `cargo run --example lease [STORE]`.

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::time::Duration;

use fencehold::{Error, Fencehold, Token};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let fh = Fencehold::connect(&store).await?;

    let lease = fh
        .lease("reports/daily")
        .task("run-42")
        .ttl(Duration::from_secs(30))
        .acquire()
        .await?;
    let report = lease.run(build_report(lease.token())).await?; // stops the future if the lease is lost
    println!("{report}");

    // A caller that comes now learns who holds it, for how long, and what to do.
    if let Err(held) = fh.lease("reports/daily").try_acquire().await {
        println!("{held}");
    }

    lease.release().await?;
    fh.close().await;
    Ok(())
}

/// The work. Whatever it writes to should refuse a token that is smaller than one it has seen.
async fn build_report(token: Token) -> String {
    tokio::task::yield_now().await;
    format!("the report, written under token {token}")
}
