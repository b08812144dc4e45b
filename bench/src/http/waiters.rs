//! Thousands that wait in line for one key, each over a connection of its own, and what that costs the server.

use std::path::Path;
use std::time::{Duration, Instant};

use fencehold_load::Failed;

use super::raw;
use super::server_process::ServerProcess;
use crate::figure::Figure;
use crate::scratch_dir::open_url;

/// How much memory the server may have meanwhile.
const BYTES_MAX: u64 = 250_000_000;

/// Has so many wait, and weighs the server while they do: one of its own, that has done nothing else.
pub(super) async fn weigh(directory: &Path, many: usize) -> Result<Figure, Failed> {
    raw::allow_connections(many)?;
    let served = ServerProcess::start(directory)?;
    let target = open_url(served.url())?;
    let hold = target.acquire(&target.key(format_args!("crowd"))?, 600_000, 0).await?;
    let before = served.resident_bytes();
    let mut waiting = Vec::with_capacity(many);
    for nth in 0..many {
        let body = format!(
            r#"{{"keys":["bench/crowd"],"hold":"{nth:032x}","owner":"bench-owner-of-20-by","ttl_ms":60000,"wait_ms":600000}}"#,
        );
        waiting.push(raw::post(served.address(), "/v1/leases/acquire", &body).await?);
    }
    let started = Instant::now();
    while target.store.status(&target.call).await?.waiter_count < many as u64 {
        if started.elapsed() > Duration::from_secs(30) {
            return Err("not all of them came to wait within 30 s".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let with = served.resident_bytes();
    drop(waiting);
    target.release(hold).await?;
    target.store.close().await;
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let each = with.saturating_sub(before) as f64 / many as f64 / 1e3;
    let what = format!(
        "memory of the server while {many} requests wait: {:.0} MB ({:.0} MB before, {each:.1} kB each)",
        mb(with),
        mb(before)
    );
    Ok(Figure::new(what, many).bar("under 250 MB", with < BYTES_MAX))
}
