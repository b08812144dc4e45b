//! Six pieces of work on two slots, on plain threads: `cargo run --example semaphore [STORE]`.

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::sync::atomic::{AtomicUsize, Ordering};

use fencehold::Error;
use fencehold::blocking::Fencehold;

const SLOTS: [&str; 2] = ["gpu/0", "gpu/1"];

fn main() -> Result<(), Error> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let fh = Fencehold::connect(&store)?;
    let busy = AtomicUsize::new(0);

    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|nth| {
                let (fh, busy) = (&fh, &busy);
                scope.spawn(move || {
                    let slot = fh.lease_any_of(SLOTS).task(format!("piece-{nth}")).acquire()?;
                    let at_once = busy.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(at_once <= SLOTS.len(), "never more than there are slots");
                    println!("piece-{nth} on {} under token {}, {at_once} at once", slot.key(), slot.token());
                    busy.fetch_sub(1, Ordering::SeqCst);
                    slot.release()
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    fh.close();
    Ok(())
}
