//! Reading a log, also while a server writes it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use fencehold_contract::FlatEvent;
use fencehold_contract::http::access::AuditEntry;
use fencehold_core::wire::Moment;
use fencehold_core::{Event, Namespace};
use serde::Deserialize;

use super::EventLogError;
use super::files::{numbers, path};

/// A line of a log.
#[derive(Debug)]
#[non_exhaustive]
pub struct LogLine {
    /// The line as it stands there: a JSON object.
    pub text: String,
    /// When it happened, in wall time.
    pub at_ms: u64,
    /// Its namespace; `*`: all.
    pub namespace: Option<String>,
    /// Its number among those of its kind.
    pub seq: Option<u64>,
    /// What it says.
    pub record: LogRecord,
}

/// What a line says.
#[derive(Debug)]
#[non_exhaustive]
pub enum LogRecord {
    /// Something happened.
    Event(Box<Event>),
    /// A caller used force.
    Audit(Box<AuditEntry>),
    /// Something is missing, or may be: what, for people.
    Gap(String),
    /// The events of a namespace begin here.
    Start,
    /// A file begins.
    Begin,
    /// Something that a newer version wrote.
    Unknown,
}

#[derive(Deserialize)]
struct CommonFields {
    r#type: String,
    at: Option<Moment>,
    namespace: Option<String>,
    seq: Option<u64>,
    message: Option<String>,
}

/// Reads the lines of a log, oldest file first. A last line that is still being written is left out.
pub fn read(directory: &Path) -> Result<impl Iterator<Item = Result<LogLine, EventLogError>>, EventLogError> {
    let files: Vec<PathBuf> = numbers(directory)?.into_iter().map(|number| path(directory, number)).collect();
    Ok(files.into_iter().flat_map(|path| {
        let source = match File::open(&path) {
            Ok(file) => Some(Ok(BufReader::new(file))),
            // It has been removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => Some(Err(error)),
        };
        FileLines { path, source, line: 0 }
    }))
}

struct FileLines {
    path: PathBuf,
    /// `None`: there are no more lines.
    source: Option<io::Result<BufReader<File>>>,
    line: u64,
}

impl Iterator for FileLines {
    type Item = Result<LogLine, EventLogError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = Vec::new();
        self.line += 1;
        let mut source = self.source.take()?;
        let read = source.as_mut().map_err(|error| io::Error::from(error.kind()));
        if let Err(error) = read.and_then(|source| source.read_until(b'\n', &mut bytes)) {
            return Some(Err(EventLogError::io(&self.path)(error)));
        }
        if bytes.pop() != Some(b'\n') {
            return None;
        }
        self.source = Some(source);
        let damaged = || EventLogError::Damaged { path: self.path.clone(), line: self.line };
        Some(parse(bytes).ok_or_else(damaged))
    }
}

fn parse(bytes: Vec<u8>) -> Option<LogLine> {
    let text = String::from_utf8(bytes).ok()?;
    let common: CommonFields = serde_json::from_str(&text).ok()?;
    let CommonFields { r#type: kind, at, namespace, seq, message } = common;
    let record = match kind.as_str() {
        "begin" => LogRecord::Begin,
        "start" => LogRecord::Start,
        "gap" => LogRecord::Gap(message.unwrap_or_default()),
        "audit" => {
            serde_json::from_str(&text).map_or(LogRecord::Unknown, |entry| LogRecord::Audit(Box::new(entry)))
        }
        _ => event(&text, namespace.as_deref()).unwrap_or(LogRecord::Unknown),
    };
    Some(LogLine { text, at_ms: at.map_or(0, |at| at.wall_ms), namespace, seq, record })
}

fn event(text: &str, namespace: Option<&str>) -> Option<LogRecord> {
    let mut line: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
    line.remove("namespace");
    let FlatEvent(mut event): FlatEvent<Event> = serde_json::from_value(line.into()).ok()?;
    event.namespace = Namespace::new(namespace?).ok()?;
    Some(LogRecord::Event(Box::new(event)))
}
