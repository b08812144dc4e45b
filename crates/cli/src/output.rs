//! The only way to stdout and stderr: data on the one, everything else on the other.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::process::from_the_background;
use crate::show::{Colour, Palette, Table, safe, safe_json};

/// How data is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    // Not documented to clap, which would give every help a page more.
    // For people.
    #[default]
    Table,
    // One JSON document.
    Json,
    // One line of JSON for each row or event.
    Jsonl,
    // Lines for `eval` in a shell.
    Env,
}

/// Where data goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) format: Format,
    pub(crate) palette: Palette,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Output { format, palette: Palette::of(&io::stdout()) }
    }

    /// Refuses the one format that fits only one verb.
    pub(crate) fn refuse_env(self) -> Result<(), Failure> {
        match self.format {
            Format::Env => Err(Failure::new(
                Exit::Usage,
                "-o env is for `fencehold lease acquire` and `fencehold job claim` only",
            )),
            Format::Table | Format::Json | Format::Jsonl => Ok(()),
        }
    }

    /// Prints bytes as they are.
    #[expect(clippy::unused_self, reason = "whoever prints has been given the right to")]
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout
            .write_all(bytes)
            .and_then(|()| stdout.flush())
            .map_err(|error| match error.kind() {
                io::ErrorKind::BrokenPipe => Failure::ReaderGone,
                _ => Failure::new(Exit::Failed, format!("stdout cannot be written: {error}")),
            })
    }

    /// Prints a text, ended by a line break.
    pub(crate) fn text(self, text: &str) -> Result<(), Failure> {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        self.write(format!("{text}{end}").as_bytes())
    }

    /// Prints one thing: as a text for people, or as it is.
    pub(crate) fn one<T: Serialize>(
        self,
        thing: &T,
        text: impl FnOnce(Palette) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Env => self.text(&safe(&text(self.palette))),
            Format::Json => self.text(&pretty(thing)?),
            Format::Jsonl => self.line(thing),
        }
    }

    /// Prints many things: as a table for people, or each as it is.
    pub(crate) fn many<T: Serialize>(
        self,
        things: &[T],
        nothing: &str,
        table: impl FnOnce() -> Table,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Env => {
                let table = table();
                if table.is_empty() {
                    note(nothing);
                    return Ok(());
                }
                self.text(&table.render(self.palette))
            }
            Format::Json => self.text(&pretty(&things)?),
            Format::Jsonl => things.iter().try_for_each(|thing| self.line(thing)),
        }
    }

    /// Prints one thing as one line of JSON.
    pub(crate) fn line<T: Serialize>(self, thing: &T) -> Result<(), Failure> {
        self.text(&safe_json(serde_json::to_string(thing).map_err(|error| unprintable(&error))?))
    }
}

fn pretty<T: Serialize>(thing: &T) -> Result<String, Failure> {
    serde_json::to_string_pretty(thing)
        .map(safe_json)
        .map_err(|error| unprintable(&error))
}

fn unprintable(error: &serde_json::Error) -> Failure {
    Failure::new(Exit::Failed, format!("the answer cannot be written as JSON: {error}"))
}

/// Says something beside the data, on stderr. If even that cannot be written there is nobody left to tell.
pub(crate) fn note(text: &str) {
    // In one piece, as others write there too; and even while a command under a lease has the terminal.
    let line = format!("fencehold: {}\n", safe(text));
    let _ = from_the_background(|| io::stderr().lock().write_all(line.as_bytes()));
}

/// Says on stderr what went wrong, and gives the exit code that goes with it.
pub(crate) fn report(failure: &Failure) -> u8 {
    let Failure::Said { exit, what, next } = failure else { return 0 };
    let palette = Palette::of(&io::stderr());
    note(&palette.paint(what, Colour::Bad));
    if let Some(next) = next {
        let mut stderr = io::stderr().lock();
        let _ = writeln!(stderr, "{}", safe(next));
    }
    exit.code()
}
