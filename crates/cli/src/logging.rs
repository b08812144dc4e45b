//! Logs, on stderr, if the user asks for them.

use std::io::{self, IsTerminal as _};

#[cfg(feature = "server")]
use fencehold_server::config::{LogFormat, LogSettings};
use tracing::Subscriber;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::{DefaultFields, Format};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry;
use tracing_subscriber::registry::LookupSpan;

use crate::context::variable;
use crate::failure::Failure;
use crate::show::Style;

const LOG_VARIABLE: &str = "FENCEHOLD_LOG";

/// Starts logging: by the variable, which can say most; else by the number of `-v`. Beside a verb that draws on the whole terminal only
/// where stderr is elsewhere.
pub(crate) fn start(verbose: u8, draws: bool) -> Result<(), Failure> {
    if draws && io::stderr().is_terminal() {
        if verbose > 0 {
            return Err(Failure::usage("-v would log over what is drawn")
                .with_next("Send the log elsewhere: `fencehold top -v 2>top.log`."));
        }
        return Ok(());
    }
    registry().with(filter(verbose, "error")?).with(lines()).init();
    Ok(())
}

/// Starts a server's logging: by the variable, else by `-v`, else by its settings.
#[cfg(feature = "server")]
pub(crate) fn start_server(verbose: u8, settings: &LogSettings) -> Result<(), Failure> {
    let quiet = settings.level.as_deref().unwrap_or("fencehold=info,warn");
    let registry = registry().with(filter(verbose, quiet)?);
    match settings.format {
        LogFormat::Json => registry.with(lines().json().flatten_event(true)).init(),
        _ => registry.with(lines()).init(),
    }
    Ok(())
}

/// Whether a server's settings say something that can be logged by.
#[cfg(feature = "server")]
pub(crate) fn check_server(settings: &LogSettings) -> Result<(), Failure> {
    filter(0, settings.level.as_deref().unwrap_or("info")).map(drop)
}

fn filter(verbose: u8, quiet: &str) -> Result<Targets, Failure> {
    let by_flags = match verbose {
        0 => quiet,
        1 => "fencehold=info,warn",
        2 => "fencehold=debug,info",
        _ => "trace",
    };
    let said = variable(LOG_VARIABLE).filter(|_| verbose == 0);
    let (from, wanted) = match said {
        Some(value) => (LOG_VARIABLE, value.to_string_lossy().into_owned()),
        None => ("log.level", by_flags.to_owned()),
    };
    let wrong = |why: String| Failure::usage(format!("{from}: {why}; it looks like fencehold=debug,warn"));
    if wanted.contains(['[', ']', '{', '}']) {
        return Err(wrong("logs are not filtered by spans or fields".to_owned()));
    }
    // An empty piece would stand for errors alone.
    let pieces: Vec<&str> = wanted.split(',').filter(|piece| !piece.trim().is_empty()).collect();
    pieces.join(",").parse().map_err(|error: ParseError| wrong(error.to_string()))
}

/// Lines on stderr, of what a filter lets pass.
fn lines<S: Subscriber + for<'a> LookupSpan<'a>>() -> fmt::Layer<S, DefaultFields, Format, fn() -> io::Stderr>
{
    fmt::layer()
        .with_writer(io::stderr as fn() -> io::Stderr)
        .with_ansi(Style::of(&io::stderr()).has_colours())
}
