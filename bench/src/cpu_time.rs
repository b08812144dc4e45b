//! What this process takes of the processors. Unlike a rate, it hardly depends on what else the machine does.

use std::time::Duration;

use fencehold_load::Measured;
use rustix::time::{ClockId, clock_gettime};

/// Processor time of all threads of this process so far.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Measures, and gives also how many microseconds of processor time each of what was done took, in this process.
pub(crate) async fn each<E>(
    measuring: impl Future<Output = Result<Measured, E>>,
) -> Result<(Measured, f64), E> {
    let before = used();
    let measured = measuring.await?;
    let took = used().saturating_sub(before);
    let each_us = took.as_secs_f64() * 1e6 / measured.done.max(1) as f64;
    Ok((measured, each_us))
}
