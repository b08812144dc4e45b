//! The forms in which parts of a job are kept: one place for the way in and the way out. What is JSON in the tables is a type of
//! [`fencehold_contract::stored`] or one of these; `golden` has the JSON of each. Some of it is also read and written by the functions of
//! the database. Never rename or remove a field: add one.

use fencehold_contract::job::QueueMode;
use fencehold_contract::stored::{
    CancelV1, NoticeV1, StateV1, TermsV1, UndoOfV1, UndoV1, queue_mode_numbered,
};
use fencehold_core::job::{CompensationState, JobOptions, JobState, UniqueKey};
use serde::{Deserialize, Serialize};

/// What a job has beyond the usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JobExtra {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) labels: Vec<(Box<str>, Box<str>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unique: Option<UniqueKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) yield_within_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) undo_of: Option<UndoOfV1>,
}

impl JobExtra {
    /// `None`: there is nothing to keep.
    pub(super) fn kept(self) -> Option<Self> {
        (self != JobExtra::default()).then_some(self)
    }
}

/// The terms as they are kept beside the lane, which has the priority; `None`: the usual ones.
pub(super) fn kept_terms(terms: &JobOptions) -> Option<TermsV1> {
    let usual = JobOptions { priority: terms.priority, ..JobOptions::default() };
    (*terms != usual).then(|| TermsV1::from(*terms))
}

/// The terms of a job of this priority.
pub(super) fn terms_of(kept: Option<TermsV1>, priority: i16) -> JobOptions {
    JobOptions { priority, ..kept.map(JobOptions::from).unwrap_or_default() }
}

/// What is asked of the holder of a claim.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PendingSignals {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cancel: Option<CancelV1>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) notice: Option<NoticeV1>,
}

pub(super) fn undo_of(number: u8) -> CompensationState {
    UndoV1::numbered(number).map(CompensationState::from).unwrap_or_default()
}

pub(super) fn undo_number(undo: CompensationState) -> u8 {
    UndoV1::from(undo).number()
}

pub(super) fn state_of(number: u8) -> JobState {
    StateV1::numbered(number).map_or(JobState::InDoubt, JobState::from)
}

pub(super) fn state_number(state: JobState) -> u8 {
    StateV1::from(state).number()
}

pub(super) fn mode_of(number: u8) -> QueueMode {
    queue_mode_numbered(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use fencehold_conformance::golden::{self, samples};
    use fencehold_contract::job::ScheduleSpec;
    use fencehold_contract::stored::{EffectV1, EventV1, ScheduleV1, TrailV1};
    use fencehold_core::Event;
    use fencehold_core::job::{AttemptHistory, Claim, EffectName};
    use fencehold_core::ledger::Effect;
    use fencehold_core::retry::Backoff;
    use serde::de::DeserializeOwned;

    use super::*;

    const HERE: &str = env!("CARGO_MANIFEST_DIR");

    fn write(value: &impl Serialize) -> Vec<u8> {
        serde_json::to_vec(value).unwrap()
    }

    fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// The functions of the database know them too.
    #[test]
    fn the_numbers_of_states_are_known() {
        use JobState::{Cancelled, Completed, Failed, InDoubt, Quarantined, Queued, Running, Scheduled};
        let states = [Queued, Scheduled, Running, Completed, Failed, Cancelled, Quarantined, InDoubt];
        assert_eq!(states.map(state_number), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(states.map(|state| state_of(state_number(state))), states);
        let undoes = [
            CompensationState::None,
            CompensationState::Running,
            CompensationState::Done,
            CompensationState::Stopped,
        ];
        assert_eq!(undoes.map(undo_number), [0, 1, 2, 3]);
        assert_eq!(undoes.map(|undo| undo_of(undo_number(undo))), undoes);
        assert_eq!(
            [0, 1, 2, 9].map(mode_of),
            [QueueMode::Open, QueueMode::Paused, QueueMode::Draining, QueueMode::Open]
        );
    }

    #[test]
    fn the_json_of_what_a_job_has_is_known() {
        let terms = Backoff::ALL.map(samples::terms);
        let kept = |terms: &JobOptions| write(&kept_terms(terms).unwrap());
        golden::current(HERE, "terms.v1.json", &terms, kept, |bytes| Ok(terms_of(Some(read(bytes)?), -3)));
        let extra = JobExtra {
            labels: vec![("customer".into(), "7".into())],
            trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
            unique: UniqueKey::new("mail-7").ok(),
            yield_within_ms: Some(5_000),
            undo_of: Some(UndoOfV1 { job: samples::job(4), effect: EffectName::new("charge").unwrap() }),
        };
        let kept = |extra: &JobExtra| write(&extra.clone().kept().unwrap());
        golden::current(HERE, "extra.v1.json", &[extra], kept, read);
        let Claim { cancel, yield_request: notice, .. } = samples::claim();
        let (cancel, notice) =
            (cancel.map(|cancel| (*cancel).into()), notice.map(|notice| NoticeV1::from(*notice)));
        let asked = [
            PendingSignals { cancel: cancel.clone(), notice: None },
            PendingSignals { cancel: None, notice: notice.clone() },
            PendingSignals { cancel, notice },
        ];
        golden::current(HERE, "asked.v1.json", &asked, write, read);
        let trails = [AttemptHistory::default(), samples::trail()];
        let kept = |trail: &AttemptHistory| write(&TrailV1::from(trail.clone()));
        golden::current(HERE, "trail.v1.json", &trails, kept, |bytes| {
            read::<TrailV1>(bytes).map(AttemptHistory::from)
        });
    }

    #[test]
    fn the_json_of_effects_schedules_and_events_is_known() {
        let kept = |effect: &Effect| write(&EffectV1::from(effect));
        golden::current(HERE, "effect.v1.json", &samples::effects(), kept, |bytes| {
            read::<EffectV1<'_>>(bytes).map(Effect::from)
        });
        let kept = |spec: &ScheduleSpec| write(&ScheduleV1::from(spec));
        golden::current(HERE, "schedule.v1.json", &[samples::schedule()], kept, |bytes| {
            read::<ScheduleV1<'_>>(bytes).map(ScheduleSpec::from)
        });
        let kept = |event: &Event| write(&EventV1::from(event.clone()));
        for (file, events) in
            [("event.v1.json", samples::events()), ("later-event.v1.json", samples::later_events())]
        {
            golden::current(HERE, file, &events, kept, |bytes| read::<EventV1>(bytes).map(Event::from));
        }
    }
}
