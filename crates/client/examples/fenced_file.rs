//! A log that no late holder can spoil, and in which no line is doubled: `cargo run --example fenced_file`.

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use fencehold::blocking::{FencedFile, Fencehold};
use fencehold::fence::file::Appended;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A fence outlives its process, and a store in memory does not: the example takes a new file each time.
    let folder = std::env::temp_dir().join(format!("fencehold-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("orders.log");

    let fh = Fencehold::connect("memory:")?;
    let file = FencedFile::open(&path)?;

    let first = fh.lease("orders").owner("worker-1").acquire()?;
    file.raise(&first)?; // the first thing under a new lease: from now on every older holder is refused
    file.append(&first, "order-1", "order 1 shipped\n")?;

    // The first worker stalls, and its lease passes on. What it still has in its hands is an old token.
    let late = first.key_token();
    first.release()?;
    let second = fh.lease("orders").owner("worker-2").acquire()?;
    file.raise(&second)?;

    // The second cannot know whether order 1 was written, so it writes it: nothing is doubled.
    let again = file.append(&second, "order-1", "order 1 shipped\n")?;
    assert_eq!(again, Appended::Duplicate);
    file.append(&second, "order-2", "order 2 shipped\n")?;

    // The first wakes up.
    if let Err(stale) = file.append(&late, "order-2", "order 2 shipped\n") {
        println!("{stale}");
    }
    print!("{}", std::fs::read_to_string(&path)?);
    second.release()?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
