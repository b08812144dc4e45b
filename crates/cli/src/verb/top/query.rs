//! What is fetched for a view, and what comes of it, as plain data; and the filters that people type.

use fencehold_contract::job::{JobDetail, JobFilter, JobView, QueueView};
use fencehold_contract::{KeyContention, LeaseView, ListLeasesRequest};
use fencehold_core::job::{JobId, JobState};
use fencehold_core::{BadInput, Event, Key};

/// At most this many rows of a view.
pub(super) const ROWS_MAX: usize = 1_000;

/// What is fetched. A cursor is the last event that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Query {
    Leases(ListLeasesRequest),
    Queues,
    Jobs(JobFilter),
    Workers { cursor: Option<u64> },
    Events { cursor: Option<u64> },
    Lease { key: Key, cursor: Option<u64> },
    Job(JobId),
}

/// What a query found.
#[derive(Clone, Debug)]
pub(super) enum Found {
    Leases(Page<LeaseView>),
    Queues(Vec<QueueView>),
    Jobs(Page<JobView>),
    Workers {
        held: Held,
        events: Option<NewEvents>,
    },
    /// `None`: the store keeps no events.
    Events(Option<NewEvents>),
    Lease(Box<LeaseFound>),
    Job(Option<Box<JobDetail>>),
}

/// The first rows of a list.
#[derive(Clone, Debug)]
pub(super) struct Page<T> {
    pub(super) rows: Vec<T>,
    /// Whether there are more than were read.
    pub(super) has_more: bool,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Page { rows: Vec::new(), has_more: false }
    }
}

/// What owners hold at the moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    pub(super) leases: Page<LeaseView>,
    pub(super) jobs: Page<JobView>,
    /// What the access token does not allow to see.
    pub(super) hidden: Vec<&'static str>,
}

/// Events that were not known before, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct NewEvents {
    pub(super) events: Vec<Event>,
    /// Where to go on.
    pub(super) cursor: u64,
    /// Whether they follow those that are known, and do not begin anew.
    pub(super) follows: bool,
}

/// What was found of one key.
#[derive(Clone, Debug)]
pub(super) struct LeaseFound {
    pub(super) view: Option<LeaseView>,
    pub(super) contention: Option<KeyContention>,
    /// `None`: the store keeps no events.
    pub(super) events: Option<NewEvents>,
}

/// Why something was not fetched, or not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// For people, and safe to show.
    pub(super) says: String,
    /// Whether the same may succeed by itself later.
    pub(super) passes: bool,
}

/// A filter as it is typed: terms `name=value`, and the rest, which is one text.
#[derive(Debug, Default)]
struct Terms<'a> {
    named: Vec<(&'a str, &'a str)>,
    rest: String,
}

impl<'a> Terms<'a> {
    fn of(text: &'a str, names: &[&str]) -> Self {
        let mut terms = Terms::default();
        let mut words = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let is_known = |(name, value): &(&str, &str)| names.contains(name) && !value.is_empty();
            let term = rest.split_once('=').filter(is_known);
            let quoted =
                term.and_then(|(name, value)| Some((name, value.strip_prefix('"')?.split_once('"')?)));
            if let Some((name, (value, after))) = quoted {
                terms.named.push((name, value));
                rest = after.trim_start();
                continue;
            }
            let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            match word.split_once('=').filter(is_known) {
                Some(term) => terms.named.push(term),
                None => words.push(word),
            }
            rest = after.trim_start();
        }
        terms.rest = words.join(" ");
        terms
    }
}

/// A term with its value, which is quoted where it has a blank.
pub(super) fn term(name: &str, value: &str) -> String {
    if value.contains(char::is_whitespace) {
        format!("{name}=\"{value}\"")
    } else {
        format!("{name}={value}")
    }
}

/// The names that a filter of leases knows.
pub(super) const LEASE_TERMS: [&str; 2] = ["owner", "task"];
/// The names that a filter of jobs knows.
pub(super) const JOB_TERMS: [&str; 4] = ["queue", "kind", "state", "owner"];

/// Which leases: `reports/ owner=NAME task=NAME`. The text is how their keys begin.
pub(super) fn lease_request(filter: &str, include_free: bool) -> Result<ListLeasesRequest, BadInput> {
    let terms = Terms::of(filter, &LEASE_TERMS);
    let mut request = ListLeasesRequest { include_free, limit: ROWS_MAX, ..ListLeasesRequest::default() };
    for (name, value) in terms.named {
        match name {
            "owner" => request.owner = Some(value.parse()?),
            _ => request.task_prefix = Some(value.parse()?),
        }
    }
    request.prefix = Some(terms.rest).filter(|prefix| !prefix.is_empty());
    Ok(request)
}

/// Which jobs, and the text that is to be found in what is shown of them: `queue=NAME state=failed TEXT`.
pub(super) fn job_filter(text: &str) -> Result<(JobFilter, String), BadInput> {
    let terms = Terms::of(text, &JOB_TERMS);
    let mut filter = JobFilter::default();
    for (name, value) in terms.named {
        match name {
            "queue" => filter.queue = Some(value.parse()?),
            "kind" => filter.kind = Some(value.parse()?),
            "state" => filter.states.push(value.parse::<JobState>()?),
            _ => filter.owner = Some(value.parse()?),
        }
    }
    Ok((filter, terms.rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_of_leases_is_a_prefix_and_names() {
        let request = lease_request("reports/ owner=ada task=run-42", true).unwrap();
        assert_eq!(request.prefix.as_deref(), Some("reports/"));
        assert_eq!(request.owner.unwrap().as_str(), "ada");
        assert_eq!(request.task_prefix.unwrap().as_str(), "run-42");
        assert!(request.include_free && request.limit == ROWS_MAX);
        assert_eq!(lease_request("", false).unwrap().prefix, None);
        let request = lease_request(&format!("a  b {} c", term("owner", "ada of ops")), false).unwrap();
        assert_eq!(request.owner.unwrap().as_str(), "ada of ops");
        assert_eq!(request.prefix.as_deref(), Some("a b c"));
        // What looks like a term and is none belongs to the key.
        assert_eq!(lease_request("colour=red", false).unwrap().prefix.as_deref(), Some("colour=red"));
    }

    #[test]
    fn a_filter_of_jobs_names_states_or_says_which_there_are() {
        let (filter, text) = job_filter("queue=emails state=failed state=in_doubt welcome").unwrap();
        assert_eq!(filter.queue.unwrap().as_str(), "emails");
        assert_eq!(filter.states, [JobState::Failed, JobState::InDoubt]);
        assert_eq!(text, "welcome");
        let error = job_filter("state=nonsense").unwrap_err().to_string();
        assert!(error.contains("quarantined"), "{error}");
    }
}
