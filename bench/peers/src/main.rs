//! Other job queues on PostgreSQL under the load that `fencehold bench job --store postgres://…` puts on ours.
//!
//! `peers PEER process JOBS CONCURRENCY BATCH` enqueues so many jobs in bulk and then works them off; `peers PEER single
//! CLIENTS SECONDS` enqueues one at a time. Both on the database that `DATABASE_URL` names, in a schema that is made afresh. What
//! was measured goes to stdout as one line of JSON. `plain` is no peer but a table, for comparison; `peers snapshot` holds a snapshot
//! open until its standard input ends. `peers PEER fill JOBS` only enqueues, and `peers graphile_worker work` is one of many processes that work
//! them off, one at a time.
//!
//! Deliberately absent: any judgement. The bars are ours, and stand where ours is measured.

mod awa;
mod graphile;
mod load;
mod plain;

use std::error::Error;
use std::time::Duration;

use load::{Peer, Settings};

type Failed = Box<dyn Error + Send + Sync>;

const USAGE: &str = "usage: peers awa|graphile_worker|plain process JOBS CONCURRENCY BATCH | single CLIENTS SECONDS | fill JOBS; peers graphile_worker work; peers snapshot";

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let url = std::env::var("DATABASE_URL").map_err(|_| "DATABASE_URL names no database")?;
    let said = match words.as_slice() {
        ["awa", what @ ..] => measure(awa::Awa::new(&url).await?, what).await?,
        ["graphile_worker", "work"] => {
            graphile::work_until_told(&url).await?;
            // What it still does in the background is of no interest.
            std::process::exit(0);
        }
        ["graphile_worker", what @ ..] => measure(graphile::Graphile::new(&url).await?, what).await?,
        ["plain", what @ ..] => measure(plain::Plain::new(&url).await?, what).await?,
        ["snapshot"] => return plain::hold_snapshot(&url).await,
        _ => return Err(USAGE.into()),
    };
    println!("{said}");
    Ok(())
}

async fn measure(peer: impl Peer, what: &[&str]) -> Result<serde_json::Value, Failed> {
    match what {
        ["process", jobs, concurrency, batch] => {
            let settings = Settings { concurrency: concurrency.parse()?, batch: batch.parse()? };
            load::process(peer, jobs.parse()?, settings).await
        }
        ["fill", jobs] => load::fill(&peer, jobs.parse()?).await.map(|()| serde_json::Value::Null),
        ["single", clients, seconds] => {
            load::single(peer, clients.parse()?, Duration::from_secs_f64(seconds.parse()?)).await
        }
        _ => Err(USAGE.into()),
    }
}
