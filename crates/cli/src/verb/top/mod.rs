//! `fencehold top`: leases, queues, jobs, workers and events on a terminal, as they change.
//!
//! ```text
//! keys, time, data ──► state ──► commands ──► fetch, act ──► data
//!                        │
//!                        └────► draw ──► screen
//! ```
//!
//! The state knows no clock, no store and no terminal, and drawing changes nothing: both are tested without any of them. One loop waits for
//! keys, signals, time and the store at once, so a store that does not answer holds up no key.
//!
//! Nouns: a *list* is one of the five tabs, a *detail* is what is opened from it, an *overlay* lies above both.

mod action;
mod captions;
mod detail;
mod draw;
mod fetch;
mod keyboard;
mod overlay;
mod press;
mod query;
mod rows;
#[cfg(test)]
mod samples;
mod screen;
#[cfg(test)]
mod snapshots;
mod state;
mod timeline;
#[cfg(test)]
mod transitions;
mod workers;

use std::future::pending;
use std::io::{self, IsTerminal, stdin, stdout};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_core::Owner;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use self::keyboard::{KeyParser, REST_WITHIN};
use self::screen::Screen;
use self::state::{Command, Input, State};
use crate::context::{Context, OpenStore};
use crate::duration::parse_ms;
use crate::exit_code;
use crate::failure::Failure;
use crate::identity::ByArgs;
use crate::output::Format;
use crate::process::Signals;
use crate::show::Style;
use crate::verb::VerbResult;

/// How often the state learns what time it is.
const TIME_EVERY: Duration = Duration::from_millis(250);
/// A store is not asked more often than this.
const EVERY_MS_MIN: u64 = 100;

/// Show leases, queues, jobs, workers and events as they change
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold top
fencehold top --store http://localhost:7117 --every 5s
fencehold --namespace team-a top")]
#[command(after_help = "\
Press ? for the keys. Only what is on the screen is read, at most a thousand rows of it; on object storage each \
lease is a request, so look less often there. Force asks for a reason, and ends the hold that was shown, not a later one.")]
pub(crate) struct Args {
    /// How often to look
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "2s")]
    every: u64,
    #[command(flatten)]
    by: ByArgs,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult<ExitCode> {
        if context.output.format != Format::Table {
            return Err(Failure::usage("top draws on a terminal: it has no data for -o").with_next(
                "For programs there are `fencehold lease ls -o json` and `fencehold event watch -o jsonl`.",
            ));
        }
        if self.every < EVERY_MS_MIN {
            return Err(Failure::usage(format!("--every <DURATION>: at least {EVERY_MS_MIN}ms")));
        }
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if !stdin().is_terminal() || !stdout().is_terminal() || is_dumb {
            return Err(Failure::usage("top needs a terminal to draw on and to read keys from").with_next(
                "Elsewhere there are `fencehold lease ls` and `fencehold event watch`; over ssh, `ssh -t`.",
            ));
        }
        let by = self.by.owner()?;
        let unusable = |error: io::Error| Failure::failed(format!("the terminal cannot be used: {error}"));
        // Before the terminal is taken over: a signal that came in between would leave it so.
        let mut signals = Signals::listen().map_err(unusable)?;
        let store = context.open_to_wait()?;
        let namespace = context.namespace.to_string();
        let has_colours = Style::of(&stdout()).has_colours();
        let state = State::new(store.name.clone(), namespace, self.every, has_colours);
        store
            .closing(async |store| watch(store, state, &by, &mut signals).await.map_err(unusable))
            .await
    }
}

/// What the loop waits for from the store: an input, once it is there.
type Awaited<'a> = Option<Pin<Box<dyn Future<Output = Input> + 'a>>>;

/// Waits for what was begun, or for ever.
async fn done(awaited: &mut Awaited<'_>) -> Input {
    match awaited {
        Some(input) => input.await,
        None => pending().await,
    }
}

/// Shows the store until a key or a signal ends it.
async fn watch(
    store: &OpenStore,
    mut state: State,
    by: &Owner,
    signals: &mut Signals,
) -> io::Result<ExitCode> {
    let mut resized = signal(SignalKind::window_change())?;
    let mut continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
    let mut screen = Screen::enter()?;
    let mut typed = keyboard::listen();
    let mut parser = KeyParser::default();
    let (mut fetching, mut acting): (Awaited<'_>, Awaited<'_>) = (None, None);
    let mut inputs: Vec<Input> = Vec::new();
    loop {
        let size = screen.size()?;
        let size = Input::Size { columns: size.width, rows: size.height };
        for input in [Input::Time(SystemClock.now()), size].into_iter().chain(inputs.drain(..)) {
            for command in state.update(input) {
                match command {
                    Command::Fetch { serial, query } => {
                        let found =
                            async move { Input::Found { serial, result: fetch::fetch(store, query).await } };
                        fetching = Some(Box::pin(found));
                    }
                    Command::Act(action, reason) => {
                        let acted = fetch::act(store, action, reason, by.clone());
                        acting = Some(Box::pin(async move { Input::Acted(acted.await) }));
                    }
                    Command::Redraw => screen.redraw()?,
                    Command::Quit => return Ok(ExitCode::SUCCESS),
                }
            }
        }
        screen.draw(|frame| draw::draw(frame, &state))?;
        tokio::select! {
            biased;
            signal = signals.next() => {
                if !matches!(signal, Signal::USR1 | Signal::USR2) {
                    return Ok(ExitCode::from(exit_code::of_signal(signal.as_raw())));
                }
            }
            bytes = typed.recv() => match bytes {
                Some(bytes) => inputs.extend(parser.feed(&bytes).into_iter().map(Input::Key)),
                // The terminal is gone.
                None => return Ok(ExitCode::from(exit_code::of_signal(Signal::HUP.as_raw()))),
            },
            () = sleep(REST_WITHIN), if parser.is_waiting() => {
                inputs.extend(parser.rest_did_not_come().into_iter().map(Input::Key));
            }
            _ = resized.recv() => {}
            _ = continued.recv() => screen.enter_again()?,
            input = done(&mut acting) => {
                acting = None;
                inputs.push(input);
            }
            input = done(&mut fetching) => {
                fetching = None;
                inputs.push(input);
            }
            () = sleep(TIME_EVERY) => {}
        }
    }
}
