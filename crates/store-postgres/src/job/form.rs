//! The forms in which parts of a job are kept: one place for the way in and the way out.

use fencehold_contract::job::{QueueMode, UndoOf};
use fencehold_core::job::{Cancel, State, Terms, Undo, UniqueKey};
use fencehold_core::lease::Notice;
use serde::{Deserialize, Serialize};

use super::value::Json;

/// What a job has beyond the usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Extra {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) labels: Vec<(Box<str>, Box<str>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unique: Option<UniqueKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) yield_within_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) undo_of: Option<UndoOf>,
}

impl Extra {
    /// As it is kept; `None`: there is nothing to keep.
    pub(super) fn kept(&self) -> Option<Json> {
        (*self != Extra::default())
            .then(|| serde_json::to_string(self).ok().map(Json))
            .flatten()
    }
}

/// The terms as they are kept beside the lane, which has the priority; `None`: the usual ones.
pub(super) fn kept_terms(terms: &Terms) -> Option<Json> {
    let usual = Terms { priority: terms.priority, ..Terms::default() };
    (*terms != usual).then(|| serde_json::to_string(terms).ok().map(Json)).flatten()
}

/// The terms of a job of this priority.
pub(super) fn terms_of(kept: Option<Terms>, priority: i16) -> Terms {
    Terms { priority, ..kept.unwrap_or_default() }
}

/// What is asked of the holder of a claim.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cancel: Option<Box<Cancel>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) notice: Option<Box<Notice>>,
}

const UNDO: [Undo; 4] = [Undo::Nothing, Undo::UnderWay, Undo::Done, Undo::Stopped];

pub(super) fn undo_of(tag: u8) -> Undo {
    UNDO.get(usize::from(tag)).copied().unwrap_or_default()
}

pub(super) fn undo_tag(undo: Undo) -> usize {
    UNDO.iter().position(|other| *other == undo).unwrap_or(0)
}

pub(super) fn state_of(tag: u8) -> State {
    State::ALL.get(usize::from(tag)).copied().unwrap_or(State::Indeterminate)
}

pub(super) fn state_tag(state: State) -> usize {
    State::ALL.iter().position(|other| *other == state).unwrap_or(7)
}

pub(super) fn mode_of(tag: u8) -> QueueMode {
    match tag {
        1 => QueueMode::Paused,
        2 => QueueMode::Draining,
        _ => QueueMode::Open,
    }
}

pub(super) fn mode_tag(mode: QueueMode) -> u8 {
    match mode {
        QueueMode::Open => 0,
        QueueMode::Paused => 1,
        QueueMode::Draining => 2,
    }
}

#[cfg(test)]
mod tests {
    use fencehold_conformance::golden::{self, samples};
    use fencehold_contract::job::ScheduleSpec;
    use fencehold_core::Event;
    use fencehold_core::job::{EffectName, Trail};
    use fencehold_core::ledger::Effect;
    use fencehold_core::retry::Backoff;

    use super::*;

    const HERE: &str = env!("CARGO_MANIFEST_DIR");

    fn write<T: Serialize>(value: &T) -> Vec<u8> {
        serde_json::to_vec(value).unwrap()
    }
    fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn the_bytes_of_every_version_are_known() {
        golden::current::<Terms>(HERE, "terms.v1.json", &Backoff::ALL.map(samples::terms), write, read);
        golden::current::<Trail>(HERE, "trail.v1.json", &[Trail::default(), samples::trail()], write, read);
        golden::current::<Effect>(HERE, "effect.v1.json", &samples::effects(), write, read);
        golden::current::<ScheduleSpec>(HERE, "schedule.v1.json", &[samples::schedule()], write, read);
        golden::current::<Event>(HERE, "event.v1.json", &samples::events(), write, read);
        let extra = Extra {
            labels: vec![("customer".into(), "7".into())],
            trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
            unique: UniqueKey::new("mail-7").ok(),
            yield_within_ms: Some(5_000),
            undo_of: Some(UndoOf { job: samples::job(4), effect: EffectName::new("charge").unwrap() }),
        };
        golden::current(HERE, "extra.v1.json", &[extra], |extra| extra.kept().unwrap().0.into_bytes(), read);
        let fencehold_core::job::Claim { cancel, notice, .. } = samples::claim();
        let asked = [
            Asked { cancel: cancel.clone(), notice: None },
            Asked { cancel: None, notice: notice.clone() },
            Asked { cancel, notice },
        ];
        golden::current(HERE, "asked.v1.json", &asked, write, read);
    }
}
