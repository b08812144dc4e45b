//! The lines of the log: one JSON object each, with the number that its stream goes on from.

use std::collections::BTreeMap;

use fencehold_contract::FlatEvent;
use fencehold_contract::http::access::AuditEntry;
use fencehold_core::wire::Moment;
use fencehold_core::{Event, Namespace};
use serde::{Deserialize, Serialize};

use super::Stream;

/// The version of the format.
pub(super) const VERSION: u32 = 1;

/// The first line of every file: where each stream was when it began.
#[derive(Debug, Serialize, Deserialize)]
struct BeginLine {
    r#type: String,
    at: Moment,
    version: u32,
    /// The cursor of the events of each namespace.
    cursors: BTreeMap<String, u64>,
    /// The cursor of the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    audit_cursor: Option<u64>,
}

/// Something is missing, or may be.
#[derive(Debug, Serialize)]
pub(super) struct GapLine<'a> {
    r#type: &'static str,
    stream: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a Namespace>,
    /// Where the stream goes on: after this.
    seq: u64,
    /// Where it stopped.
    after: u64,
    at: Moment,
    reason: &'static str,
    message: String,
}

impl<'a> GapLine<'a> {
    /// The store no longer keeps what came after the cursor.
    pub(super) fn forgotten(namespace: &'a Namespace, at_ms: u64, after: u64, until: u64) -> Self {
        let message = format!(
            "the store no longer keeps the events of this namespace between {after} and {until}: those that there were are missing"
        );
        GapLine::events(namespace, at_ms, "no_longer_kept", (after, until), message)
    }

    /// The store is not as far as the log.
    pub(super) fn behind(namespace: &'a Namespace, at_ms: u64, after: u64, until: u64) -> Self {
        let message = format!(
            "the store has not come to event {after}, which is in this log: it was restored or replaced. What it keeps follows, and may \
             repeat events"
        );
        GapLine::events(namespace, at_ms, "store_behind", (after, until), message)
    }

    fn events(
        namespace: &'a Namespace,
        at_ms: u64,
        reason: &'static str,
        (after, seq): (u64, u64),
        message: String,
    ) -> Self {
        let at = Moment { wall_ms: at_ms };
        GapLine {
            r#type: "gap",
            stream: "events",
            namespace: Some(namespace),
            seq,
            after,
            at,
            reason,
            message,
        }
    }

    /// The access file is another one.
    pub(super) fn other_audit(at_ms: u64, after: u64) -> Self {
        let message = format!(
            "the access file has no entry {after}, which is in this log: it was replaced. All that it has follows"
        );
        GapLine::audit(at_ms, "access_file_replaced", (after, 0), message)
    }

    /// Denied attempts were forgotten before they were read.
    pub(super) fn denials(at_ms: u64, after: u64, until: u64) -> Self {
        let message =
            format!("the access file no longer keeps {} denied attempts", until.saturating_sub(after));
        GapLine::audit(at_ms, "no_longer_kept", (after, until), message)
    }

    fn audit(at_ms: u64, reason: &'static str, (after, seq): (u64, u64), message: String) -> Self {
        let at = Moment { wall_ms: at_ms };
        GapLine { r#type: "gap", stream: "audit", namespace: None, seq, after, at, reason, message }
    }
}

pub(super) fn gap_line(gap: &GapLine<'_>) -> String {
    written(gap)
}

/// Where the events of a namespace begin in this log.
pub(super) fn start_line(namespace: &Namespace, at_ms: u64, seq: u64) -> String {
    #[derive(Serialize)]
    struct StartLine<'a> {
        r#type: &'static str,
        namespace: &'a Namespace,
        seq: u64,
        at: Moment,
    }
    written(&StartLine { r#type: "start", namespace, seq, at: Moment { wall_ms: at_ms } })
}

/// An event, as the API shows it, with its namespace.
pub(super) fn event_line(namespace: &Namespace, event: &Event) -> String {
    format!("{{\"namespace\":{},{}", written(namespace), &written(&FlatEvent(event))[1..])
}

/// An act of force, as the API shows it.
pub(super) fn audit_line(entry: &AuditEntry) -> String {
    format!("{{\"type\":\"audit\",{}", &written(entry)[1..])
}

/// Texts, numbers and moments can always be written.
fn written(line: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(line).unwrap_or_default()
}

/// The cursors of all streams.
pub(super) type Cursors = BTreeMap<Stream, u64>;

pub(super) fn begin_line(cursors: &Cursors, at_ms: u64) -> String {
    let events = cursors.iter().filter_map(|(stream, cursor)| match stream {
        Stream::Events(namespace) => Some((namespace.to_string(), *cursor)),
        Stream::Audit => None,
    });
    written(&BeginLine {
        r#type: "begin".to_owned(),
        at: Moment { wall_ms: at_ms },
        version: VERSION,
        cursors: events.collect(),
        audit_cursor: cursors.get(&Stream::Audit).copied(),
    })
}

/// What a line tells of the cursors.
#[derive(Debug)]
pub(super) enum LineCursor {
    /// Those of all streams, and when its file began.
    All(Cursors, u64),
    /// That of one stream.
    One(Stream, u64),
}

/// Reads what a line tells of the cursors. `None`: it is no line of a log.
pub(super) fn cursor_of(line: &[u8]) -> Option<LineCursor> {
    #[derive(Deserialize)]
    struct AnyLine {
        r#type: String,
        stream: Option<String>,
        namespace: Option<String>,
        seq: Option<u64>,
    }
    let any: AnyLine = serde_json::from_slice(line).ok()?;
    if any.r#type == "begin" {
        let begin: BeginLine = serde_json::from_slice(line).ok()?;
        let events = begin.cursors.into_iter();
        let events = events.map(|(name, cursor)| Some((Stream::Events(Namespace::new(name).ok()?), cursor)));
        let mut cursors: Cursors = events.collect::<Option<_>>()?;
        cursors.extend(begin.audit_cursor.map(|cursor| (Stream::Audit, cursor)));
        return Some(LineCursor::All(cursors, begin.at.wall_ms));
    }
    let is_audit = any.r#type == "audit" || any.stream.as_deref() == Some("audit");
    let stream = if is_audit { Stream::Audit } else { Stream::Events(Namespace::new(any.namespace?).ok()?) };
    Some(LineCursor::One(stream, any.seq?))
}
