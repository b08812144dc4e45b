//! The `fencehold` command: leases and jobs for shells, scripts and people.
//!
//! Data flows one way: arguments, a verb, the library or the store, and back to stdout. Deliberately absent: rules of
//! leases and jobs (they are `fencehold-core`'s) and renewal (the library's).

#![allow(
    clippy::disallowed_methods,
    reason = "the command line is the edge: here real clocks are read, real time is waited for, and hold ids are made"
)]

#[cfg(not(target_os = "linux"))]
compile_error!("Fencehold runs on Linux only: it relies on the boot-time clock and on Linux process groups.");

#[cfg(feature = "server")]
mod access_tokens;
mod args;
mod checks;
mod context;
mod duration;
mod exit_code;
mod failure;
mod follow;
mod hold_id;
mod identity;
mod logging;
mod output;
mod process;
#[cfg(feature = "server")]
mod server_files;
mod shell;
mod show;
mod store_choice;
mod verb;

use std::num::NonZeroUsize;
use std::process::ExitCode;

/// Many small things that are made by one thread and let go by another: what a server and its engine do all day.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use failure::Failure;

fn main() -> ExitCode {
    if let Some(code) = std::env::args_os().nth(1).and_then(|name| process::helper_process(&name)) {
        return code;
    }
    act().unwrap_or_else(|failure| ExitCode::from(output::report(&failure)))
}

fn act() -> Result<ExitCode, Failure> {
    let Some(cli) = args::parse()? else { return Ok(ExitCode::SUCCESS) };
    let serves = cli.verb.serves();
    if !serves {
        // A server logs as its settings say.
        logging::start(cli.global.verbose, cli.verb.draws())?;
    }
    let context = context::Context::new(cli.global)?;
    let mut builder = if serves {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
            // One processor is left to the store's own thread: with more threads than processors, they mostly wake each
            // other.
            let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
            builder.worker_threads((processors - 1).max(1));
        }
        builder
    } else {
        // One thread: signals, children and the store's answers meet in one place, and the store has threads of its own.
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = builder.enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::failed(format!("the runtime cannot be started: {error}")))?;
    runtime.block_on(cli.verb.run(&context))
}
