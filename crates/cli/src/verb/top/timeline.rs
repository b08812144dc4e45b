//! One key: who held it, when, under which token, and how each hold ended; refused stale writes and other incidents between them.
//!
//! Nouns: a *hold* is put together from the events of its token, and from the endings that the store remembers of the key where its events
//! are gone. A *lane* is a line of the picture: all that one owner held, on one axis of time.

use std::collections::BTreeMap;

use fencehold_contract::{KeyContention, LeaseView};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{Event, EventData, Owner, Reason, Task, Token};

use crate::duration::show_ms;

/// So many holds are shown: the last ones.
const HOLDS_MAX: usize = 30;

/// A hold of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) owner: Option<Owner>,
    pub(super) task: Option<Task>,
    pub(super) from_ms: Option<u64>,
    pub(super) to_ms: Option<u64>,
    pub(super) outcome: Option<LeaseOutcome>,
    pub(super) by: Option<Owner>,
    pub(super) reason: Option<Reason>,
}

/// Something else that happened to the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Incident {
    pub(super) at_ms: u64,
    /// On whose lane.
    pub(super) owner: Option<Owner>,
    pub(super) says: String,
}

/// The holds by their tokens.
pub(super) fn holds(view: Option<&LeaseView>, events: &[Event]) -> BTreeMap<Token, Hold> {
    let mut holds: BTreeMap<Token, Hold> = BTreeMap::new();
    for ending in view.iter().flat_map(|view| &view.endings) {
        let hold = holds.entry(ending.token).or_default();
        hold.owner = Some(ending.owner.clone());
        hold.task.clone_from(&ending.task);
        hold.to_ms = Some(ending.ended_at_ms);
        hold.outcome = Some(ending.outcome);
        hold.by.clone_from(&ending.by);
        hold.reason.clone_from(&ending.reason);
    }
    for event in events {
        match &event.data {
            EventData::LeaseAcquired { token, owner, task, .. } => {
                let hold = holds.entry(*token).or_default();
                hold.owner = Some(owner.clone());
                hold.task.clone_from(task);
                hold.from_ms = Some(event.at_ms);
            }
            EventData::LeaseEnded { token, owner, task, outcome, by, reason } => {
                let hold = holds.entry(*token).or_default();
                hold.owner = Some(owner.clone());
                hold.task.clone_from(task);
                hold.to_ms = Some(event.at_ms);
                hold.outcome = Some(*outcome);
                hold.by.clone_from(by);
                hold.reason.clone_from(reason);
            }
            _ => {}
        }
    }
    if let Some((view, holder)) = view.and_then(|view| Some((view, view.holder.as_ref()?))) {
        let hold = holds.entry(view.token).or_default();
        hold.owner = Some(holder.owner.clone());
        hold.task.clone_from(&holder.task);
        hold.from_ms = Some(holder.acquired_at_ms);
    }
    while holds.len() > HOLDS_MAX {
        holds.pop_first();
    }
    holds
}

/// What else happened to the key since the first of the holds.
pub(super) fn incidents(
    holds: &BTreeMap<Token, Hold>,
    events: &[Event],
    contention: Option<&KeyContention>,
) -> Vec<Incident> {
    let owner_of = |token: &Token| holds.get(token).and_then(|hold| hold.owner.clone());
    let since_ms = holds.values().find_map(|hold| hold.from_ms.or(hold.to_ms)).unwrap_or_default();
    let of_event = |event: &Event| {
        let (owner, says) = match &event.data {
            EventData::StaleWriteBlocked { token, .. } => {
                (owner_of(token), event.data.stale_write_refused().unwrap_or_default())
            }
            EventData::YieldRequested { token, contender, yield_in_ms, .. } => {
                let within = show_ms(*yield_in_ms);
                (owner_of(token), format!("{contender} asked token {token} to yield within {within}"))
            }
            EventData::StoreRewound { token, current_token } => (
                None,
                format!(
                    "token {token} was shown, and none above {current_token} is known: the store was rewound"
                ),
            ),
            _ => return None,
        };
        (event.at_ms >= since_ms).then_some(Incident { at_ms: event.at_ms, owner, says })
    };
    let refused = contention.and_then(|contended| contended.last_refused.as_ref());
    let refused = refused.map(|refused| Incident {
        at_ms: refused.refused_at_ms,
        owner: Some(refused.owner.clone()),
        says: format!("{} was refused: another owner held the key", refused.owner),
    });
    let mut found: Vec<Incident> = events.iter().filter_map(of_event).chain(refused).collect();
    found.sort_by_key(|incident| incident.at_ms);
    found
}

/// What stands in one column of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Nothing,
    /// A hold, and how it ended; `None`: it lasts.
    Held(Option<LeaseOutcome>),
    /// Its end.
    End(LeaseOutcome),
    /// A letter of its token.
    Token(char, Option<LeaseOutcome>),
    Incident,
}

/// All that one owner held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) owner: String,
    pub(super) marks: Vec<Mark>,
}

/// The lanes of the owners that held the key last, by name, from a moment until now.
pub(super) fn lanes(
    holds: &BTreeMap<Token, Hold>,
    incidents: &[Incident],
    (from_ms, now_ms): (u64, u64),
    columns: usize,
    lanes_max: usize,
) -> Vec<Lane> {
    let mut owners: Vec<&Owner> = Vec::new();
    let of_incidents = incidents.iter().filter_map(|incident| incident.owner.as_ref());
    for owner in holds.values().rev().filter_map(|hold| hold.owner.as_ref()).chain(of_incidents) {
        if owners.len() < lanes_max && !owners.contains(&owner) {
            owners.push(owner);
        }
    }
    // By name: lanes that change places with every hold cannot be followed.
    owners.sort();
    let column = |at_ms: u64| {
        let at = u128::from(at_ms.clamp(from_ms, now_ms) - from_ms);
        let span = u128::from((now_ms - from_ms).max(1));
        usize::try_from(at * (columns.max(1) - 1) as u128 / span).unwrap_or(0)
    };
    let lane = |owner: &Owner| {
        let mut marks = vec![Mark::Nothing; columns.max(1)];
        let is_shown = |hold: &Hold| {
            hold.owner.as_ref() == Some(owner) && hold.to_ms.is_none_or(|to_ms| to_ms >= from_ms)
        };
        for (token, hold) in holds.iter().filter(|(_, hold)| is_shown(hold)) {
            let begins = hold.from_ms.or(hold.to_ms).map_or(0, column);
            let ends = hold.to_ms.map_or(columns.max(1) - 1, column).max(begins);
            marks[begins..=ends].fill(Mark::Held(hold.outcome));
            // The token, where there is room for it and for an end beside it.
            let label = token.to_string();
            if ends - begins > label.len() {
                for (mark, letter) in marks[begins + 1..].iter_mut().zip(label.chars()) {
                    *mark = Mark::Token(letter, hold.outcome);
                }
            }
            if let Some(outcome) = hold.outcome {
                marks[ends] = Mark::End(outcome);
            }
        }
        let is_shown =
            |incident: &&Incident| incident.owner.as_ref() == Some(owner) && incident.at_ms >= from_ms;
        for incident in incidents.iter().filter(is_shown) {
            let at = column(incident.at_ms);
            // A late holder is refused right after its end: both are seen.
            let after_end = at + usize::from(matches!(marks[at], Mark::End(_)));
            let at = after_end.min(marks.len() - 1);
            marks[at] = Mark::Incident;
        }
        Lane { owner: owner.to_string(), marks }
    };
    owners.into_iter().map(lane).collect()
}

/// Where the picture begins: with the first hold that is shown, but not so early that one long ago leaves no room for the others.
pub(super) fn begins_at_ms(holds: &BTreeMap<Token, Hold>, now_ms: u64) -> u64 {
    let begins = |hold: &Hold| hold.from_ms.or(hold.to_ms);
    let mut at_ms = now_ms;
    let mut busy_ms = 0_u64;
    for hold in holds.values().rev() {
        let Some(begins_ms) = begins(hold) else { continue };
        let ends_ms = hold.to_ms.unwrap_or(now_ms);
        let idle_ms = at_ms.saturating_sub(ends_ms);
        // What was idle for much longer than all that came after it was another time.
        if busy_ms > 0 && idle_ms > (now_ms - at_ms).max(busy_ms).saturating_mul(20) {
            break;
        }
        busy_ms = busy_ms.saturating_add(ends_ms.saturating_sub(begins_ms));
        at_ms = at_ms.min(begins_ms);
    }
    at_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::top::samples;

    #[test]
    fn a_hold_is_put_together_from_events_and_endings() {
        let found = samples::lease();
        let events = found.events.unwrap().events;
        let holds = holds(found.view.as_ref(), &events);
        let shown: Vec<_> = holds
            .iter()
            .map(|(token, hold)| (token.get(), hold.owner.as_ref().unwrap().as_str(), hold.outcome))
            .collect();
        assert_eq!(
            shown,
            [
                (33, "writer-a", Some(LeaseOutcome::Expired)),
                (34, "writer-b", Some(LeaseOutcome::Released)),
                (35, "writer-a", Some(LeaseOutcome::Revoked)),
                (37, "writer-b", None),
            ]
        );
        // Of this one the store remembers the end alone.
        assert_eq!(holds[&Token::new(33)].from_ms, None);
        let incidents = incidents(&holds, &events, found.contention.as_ref());
        assert_eq!(incidents.len(), 2);
        assert!(
            incidents[0]
                .says
                .contains("stale renewal under token 33 refused: the newest is 34")
        );
        assert_eq!(incidents[0].owner.as_ref().unwrap().as_str(), "writer-a", "whose token it was");
    }

    #[test]
    fn a_picture_of_any_times_fits_into_any_room() {
        let hold = |from_ms, to_ms| Hold {
            owner: Some(Owner::new("o").unwrap()),
            from_ms,
            to_ms,
            outcome: to_ms.map(|_| LeaseOutcome::Released),
            ..Hold::default()
        };
        let times = [(Some(0), Some(0)), (Some(5), Some(3)), (None, Some(9)), (Some(u64::MAX), None)];
        let holds: BTreeMap<Token, Hold> = times
            .iter()
            .zip(1..)
            .map(|((from, to), n)| (Token::new(n), hold(*from, *to)))
            .collect();
        for now_ms in [0, 9, u64::MAX] {
            let from_ms = begins_at_ms(&holds, now_ms);
            assert!(from_ms <= now_ms);
            for columns in [0, 1, 2, 60] {
                let lanes = lanes(&holds, &[], (from_ms, now_ms), columns, 3);
                assert!(lanes.iter().all(|lane| lane.marks.len() == columns.max(1)));
            }
        }
    }

    #[test]
    fn an_end_and_the_refusal_right_after_it_are_both_seen() {
        let owner = || Some(Owner::new("o").unwrap());
        let hold = |from_ms, to_ms| Hold {
            owner: owner(),
            from_ms: Some(from_ms),
            to_ms: Some(to_ms),
            outcome: Some(LeaseOutcome::Expired),
            ..Hold::default()
        };
        let holds = BTreeMap::from([(Token::new(1), hold(0, 4)), (Token::new(7), hold(10, 14))]);
        let incident = |at_ms| Incident { at_ms, owner: owner(), says: String::new() };
        let lanes = lanes(&holds, &[incident(3), incident(14)], (10, 20), 11, 3);
        let end = Some(LeaseOutcome::Expired);
        let expected = [
            Mark::Held(end),
            Mark::Token('7', end),
            Mark::Held(end),
            Mark::Held(end),
            Mark::End(LeaseOutcome::Expired),
            Mark::Incident,
        ];
        assert_eq!(lanes[0].marks[..6], expected, "and what was before is not");
        assert!(lanes[0].marks[6..].iter().all(|mark| *mark == Mark::Nothing));
    }

    #[test]
    fn a_hold_of_yesterday_leaves_room_for_those_of_today() {
        let day_ms = 86_400_000;
        let hold = |from_ms, to_ms| Hold { from_ms: Some(from_ms), to_ms: Some(to_ms), ..Hold::default() };
        let holds = BTreeMap::from([
            (Token::new(1), hold(0, 1_000)),
            (Token::new(2), hold(day_ms, day_ms + 60_000)),
            (Token::new(3), hold(day_ms + 70_000, day_ms + 90_000)),
        ]);
        assert_eq!(begins_at_ms(&holds, day_ms + 100_000), day_ms);
    }
}
