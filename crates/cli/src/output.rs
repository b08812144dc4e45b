//! The only way to stdout and stderr: data on the one, everything else on the other.

use std::io::{self, Write};
use std::sync::OnceLock;

use clap::ValueEnum;
use fencehold_contract::http::Empty;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

use crate::failure::Failure;
use crate::process::from_the_background;
use crate::show::{Colour, Style, Table, make_room, safe, safe_json};

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

/// How to speak on stderr, once it is known.
static SPEECH: OnceLock<OutputState> = OnceLock::new();

#[derive(Clone, Copy, Debug, Default)]
struct OutputState {
    /// Nothing but errors.
    quiet: bool,
    /// Errors as JSON.
    json: bool,
}

/// Says how to speak on stderr from now on.
pub(crate) fn speak(format: Format, quiet: bool) {
    let json = matches!(format, Format::Json | Format::Jsonl);
    let _ = SPEECH.set(OutputState { quiet, json });
}

fn speech() -> OutputState {
    SPEECH.get().copied().unwrap_or_default()
}

/// Whether nothing but data and errors is wanted.
pub(crate) fn is_quiet() -> bool {
    speech().quiet
}

/// Where data goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) format: Format,
    pub(crate) style: Style,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Output { format, style: Style::of(&io::stdout()) }
    }

    /// Refuses the one format that fits only one verb.
    pub(crate) fn refuse_env(self) -> Result<(), Failure> {
        match self.format {
            Format::Env => {
                Err(Failure::usage("-o env is for `fencehold lease acquire` and `fencehold job claim` only"))
            }
            Format::Table | Format::Json | Format::Jsonl => Ok(()),
        }
    }

    /// Prints bytes as they are.
    #[expect(clippy::unused_self, reason = "a printer has been given the right to")]
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), Failure> {
        make_room();
        let mut stdout = io::stdout().lock();
        stdout
            .write_all(bytes)
            .and_then(|()| stdout.flush())
            .map_err(|error| match error.kind() {
                io::ErrorKind::BrokenPipe => Failure::ReaderGone,
                _ => Failure::failed(format!("stdout cannot be written: {error}")),
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
        text: impl FnOnce(Style) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Env => self.text(&safe(&text(self.style))),
            Format::Json => self.text(&pretty(thing)?),
            Format::Jsonl => self.line(thing),
        }
    }

    /// Prints a list: as a table for people, as the whole document, or each of its rows in a line.
    pub(crate) fn list<T: Serialize>(
        self,
        document: &impl Serialize,
        rows: &[T],
        nothing: &str,
        table: impl FnOnce(&[T]) -> Table,
    ) -> Result<(), Failure> {
        self.list_as(document, rows, nothing, || table(rows))
    }

    /// The same where the elements of the document are not what the table is made of.
    pub(crate) fn list_as<T: Serialize>(
        self,
        document: &impl Serialize,
        elements: impl IntoIterator<Item = T>,
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
                self.text(&table.render(self.style))
            }
            Format::Json => self.text(&pretty(document)?),
            Format::Jsonl => elements.into_iter().try_for_each(|element| self.line(&element)),
        }
    }

    /// Prints what has no more to say than that it was done: nothing for people.
    pub(crate) fn done(self) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Env => Ok(()),
            Format::Json | Format::Jsonl => self.line(&Empty {}),
        }
    }

    /// Whether data is for a program.
    pub(crate) fn is_json(self) -> bool {
        matches!(self.format, Format::Json | Format::Jsonl)
    }

    /// Prints one thing as one line of JSON.
    pub(crate) fn line<T: Serialize>(self, thing: &T) -> Result<(), Failure> {
        self.text(&json(thing, JsonLayout::Line)?)
    }
}

fn pretty<T: Serialize>(thing: &T) -> Result<String, Failure> {
    json(thing, JsonLayout::Indented(PrettyFormatter::new()))
}

fn json<T: Serialize>(thing: &T, layout: JsonLayout) -> Result<String, Failure> {
    let mut serializer = Serializer::with_formatter(Vec::new(), layout);
    thing.serialize(&mut serializer).map_err(|error| unprintable(&error))?;
    let json = String::from_utf8(serializer.into_inner());
    json.map(safe_json).map_err(|error| unprintable(&error))
}

/// How a document is laid out. One type for both ways: the code that writes one is compiled for each type that is printed, and for
/// each formatter.
enum JsonLayout {
    Line,
    Indented(PrettyFormatter<'static>),
}

macro_rules! lay_out {
    ($($step:ident($($argument:ident: $kind:ty)?);)*) => {
        impl Formatter for JsonLayout {$(
            fn $step<W: ?Sized + Write>(&mut self, writer: &mut W $(, $argument: $kind)?) -> io::Result<()> {
                match self {
                    JsonLayout::Line => CompactFormatter.$step(writer $(, $argument)?),
                    JsonLayout::Indented(formatter) => formatter.$step(writer $(, $argument)?),
                }
            }
        )*}
    };
}

// Where the two differ.
lay_out! {
    begin_array();
    end_array();
    begin_array_value(first: bool);
    end_array_value();
    begin_object();
    end_object();
    begin_object_key(first: bool);
    begin_object_value();
    end_object_value();
}

fn unprintable(error: &dyn std::error::Error) -> Failure {
    Failure::failed(format!("the answer cannot be written as JSON: {error}"))
}

/// Says something beside the data, on stderr, unless nothing but errors is wanted.
pub(crate) fn note(text: &str) {
    if !speech().quiet {
        complain(text);
    }
}

/// The same as a text, for another stderr than ours.
pub(crate) fn noted(text: &str) -> String {
    if speech().quiet { String::new() } else { format!("{}\n", safe(&format!("fencehold: {text}"))) }
}

/// Says on stderr what went wrong. If even that cannot be written, there is nothing left to do.
pub(crate) fn complain(text: &str) {
    let style = Style::of(&io::stderr());
    write_stderr(&style.wrap(&safe(&format!("fencehold: {text}")), 0));
}

/// Says on stderr why the command failed, and gives the exit code that goes with it.
pub(crate) fn report(failure: &Failure) -> u8 {
    let Failure::Said { exit, what, next, .. } = failure else { return 0 };
    if speech().json {
        write_stderr(&safe_json(failure.json()));
        return exit.code();
    }
    let style = Style::of(&io::stderr());
    complain(&style.paint(what, Colour::Bad));
    if let Some(next) = next {
        write_stderr(&style.wrap(&safe(next), 0));
    }
    exit.code()
}

fn write_stderr(text: &str) {
    // In one piece, as others write there too; and even while a command under a lease has the terminal.
    let line = format!("{text}\n");
    make_room();
    let _ = from_the_background(|| io::stderr().lock().write_all(line.as_bytes()));
}
