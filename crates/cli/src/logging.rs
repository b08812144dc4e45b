//! Logs, on stderr, for whoever asks.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::show::Palette;

const LOG_VARIABLE: &str = "FENCEHOLD_LOG";

/// Starts logging: by the variable, which can say most; else by the number of `-v`.
pub(crate) fn start(verbose: u8) -> Result<(), Failure> {
    let by_flags = match verbose {
        0 => "error",
        1 => "fencehold=info,fencehold_store=info,warn",
        2 => "fencehold=debug,fencehold_store=debug,info",
        _ => "trace",
    };
    let wanted = match std::env::var_os(LOG_VARIABLE).filter(|value| !value.is_empty() && verbose == 0) {
        Some(value) => value.to_string_lossy().into_owned(),
        None => by_flags.to_owned(),
    };
    let filter = EnvFilter::try_new(&wanted)
        .map_err(|error| Failure::new(Exit::Usage, format!("{LOG_VARIABLE}: {error}")))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(Palette::of(&io::stderr()).has_colours())
        .init();
    Ok(())
}
