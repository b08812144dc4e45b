//! An API that takes two calls at once from all machines together, and six that want to call it, on plain threads:
//! `cargo run --example semaphore [STORE]`.

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::sync::atomic::{AtomicUsize, Ordering};

use fencehold::Error;
use fencehold::blocking::Fencehold;

/// A key for each call that the API takes at once.
const SLOTS: [&str; 2] = ["partner-api/0", "partner-api/1"];

fn main() -> Result<(), Error> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let fh = Fencehold::connect(&store)?;
    let busy = AtomicUsize::new(0);

    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..6)
            .map(|nth| {
                let (fh, busy) = (&fh, &busy);
                scope.spawn(move || {
                    let slot = fh.lease_any_of(SLOTS).task(format!("call-{nth}")).acquire()?;
                    let at_once = busy.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(at_once <= SLOTS.len(), "never more than the API takes");
                    println!("call-{nth} on {} under token {}, {at_once} at once", slot.key(), slot.token());
                    busy.fetch_sub(1, Ordering::SeqCst);
                    slot.release()
                })
            })
            .collect();
        callers
            .into_iter()
            .try_for_each(|caller| caller.join().expect("a caller does not panic"))
    })?;
    fh.close();
    Ok(())
}
