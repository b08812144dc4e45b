//! What is said of each list: what it has, why it is empty, and which keys matter.

use std::fmt::Write as _;

use super::state::{Detail, State, Tab};

/// What a list has, in a few words.
pub(super) fn summary(state: &State, count: usize) -> String {
    let more = |has_more: bool| if has_more { ", and there are more" } else { "" };
    match state.tab {
        Tab::Leases => {
            let held = state.leases.rows.iter().filter_map(|lease| lease.holder.as_ref());
            let yields = held.clone().filter(|holder| holder.yield_request.is_some()).count();
            let in_line: u64 = state.leases.rows.iter().map(|lease| lease.waiter_count).sum();
            let mut says = format!("{} held, {in_line} in line", held.count());
            if yields > 0 {
                let _ = write!(says, ", {yields} asked to yield");
            }
            if state.has_free_keys {
                says.push_str(", free keys too");
            }
            says + more(state.leases.has_more)
        }
        Tab::Queues => counted(count, "queue"),
        Tab::Jobs => {
            let has_states = state.filter().contains("state=");
            let which = if has_states { "" } else { ": those that need a person, that run, that wait" };
            format!("{}{which}{}", counted(count, "job"), more(state.jobs.has_more))
        }
        Tab::Workers => {
            let mut says = format!("{} with something held, now or lately", counted(count, "owner"));
            says.push_str(more(state.held.leases.has_more || state.held.jobs.has_more));
            for what in &state.held.hidden {
                let _ = write!(says, "; not allowed to see {what}");
            }
            says
        }
        Tab::Events => format!("the last {}, newest first", counted(count, "event")),
    }
}

fn counted(count: usize, of: &str) -> String {
    format!("{count} {of}{}", if count == 1 { "" } else { "s" })
}

/// What to say of an empty list.
pub(super) fn nothing(state: &State) -> &'static [&'static str] {
    match state.tab {
        _ if !state.filter().is_empty() => &["Nothing matches. Esc shows all of it again."],
        Tab::Leases => &[
            "Nothing is held. A command that holds a lease while it runs:",
            "fencehold run --key demo -- sleep 60",
        ],
        Tab::Queues => &[
            "There are no queues. A job makes its own:",
            "fencehold job enqueue --queue emails --kind welcome --payload 1",
        ],
        Tab::Jobs => &["No job waits, runs or needs a person. / state=completed shows those that are done."],
        Tab::Workers => &["No owner holds a lease or works on a job, and none did lately."],
        Tab::Events if state.events.is_missing => &["This store keeps no events."],
        Tab::Events => &["Nothing has happened yet that is still known."],
    }
}

/// The keys that matter here.
pub(super) fn hints(state: &State) -> Vec<(&'static str, &'static str)> {
    let pause = if state.is_paused { ("p", "go on") } else { ("p", "pause") };
    let mut hints = match (&state.detail, state.tab) {
        (Some(Detail::Lease(_)), _) => vec![("Esc", "back"), ("x", "revoke")],
        (Some(Detail::Job(_)), _) => vec![("Esc", "back"), ("x", "cancel"), ("t", "retry")],
        (None, Tab::Leases) => {
            vec![("Enter", "timeline"), ("/", "filter"), ("x", "revoke"), ("f", "free keys")]
        }
        (None, Tab::Queues) => vec![("Enter", "jobs"), ("/", "filter"), ("s", "pause or resume")],
        (None, Tab::Jobs) => vec![("Enter", "attempts"), ("/", "filter"), ("x", "cancel"), ("t", "retry")],
        (None, Tab::Workers) => vec![("Enter", "leases"), ("/", "filter")],
        (None, Tab::Events) => vec![("Enter", "open"), ("/", "filter")],
    };
    hints.extend([("?", "keys"), ("q", "quit"), pause, ("r", "refresh")]);
    hints
}
