//! Hears an attempt instead of a store, by the same rules.

use std::sync::Mutex;

use fencehold_contract::job::{AttemptLedgerEntry, LedgerEntry, LedgerResponse, Report};
use fencehold_core::job::EffectName;
use fencehold_core::ledger::{self, Effect, EffectStart};

use crate::wake::lock;

/// Hears an attempt instead of a store.
pub(crate) struct FakeStore(Mutex<FakeStoreState>);

/// What was heard.
#[derive(Debug, Default)]
pub(super) struct FakeStoreState {
    pub(super) effects: Vec<Effect>,
    pub(super) had: Vec<EffectName>,
    pub(super) announced: Vec<EffectName>,
    pub(super) checkpoint: Option<Vec<u8>>,
    pub(super) progress: Vec<Box<str>>,
}

impl FakeStore {
    pub(super) fn new(effects: Vec<Effect>) -> Self {
        FakeStore(Mutex::new(FakeStoreState { effects, ..FakeStoreState::default() }))
    }

    pub(super) fn take(&self) -> FakeStoreState {
        std::mem::take(&mut lock(&self.0))
    }

    pub(crate) fn hear(&self, word: Report) {
        let mut state = lock(&self.0);
        match word {
            Report::Checkpoint { checkpoint: bytes } => state.checkpoint = Some(bytes),
            Report::Progress { progress: note } => state.progress.push(note),
            // How an attempt ends is what its handler returns.
            _ => {}
        }
    }

    pub(crate) fn write(&self, entry: AttemptLedgerEntry) -> LedgerResponse {
        let mut state = lock(&self.0);
        let at = state.effects.iter().position(|effect| effect.name == *entry.entry.effect());
        let found = at.and_then(|at| state.effects.get(at));
        let nth = u16::try_from(state.effects.len()).unwrap_or(u16::MAX);
        let token = entry.attempt.token;
        let (kept, answer) = match entry.entry {
            LedgerEntry::Begin { effect, in_doubt_policy: policy } => {
                match ledger::begin(found, &effect, policy, token, nth, 0) {
                    EffectStart::Go(kept) => {
                        state.announced.push(effect);
                        (kept, LedgerResponse::Proceed {})
                    }
                    EffectStart::Recorded(effect) => {
                        return LedgerResponse::Recorded { recorded_effect: effect };
                    }
                    EffectStart::InDoubt => return LedgerResponse::InDoubt {},
                }
            }
            LedgerEntry::Record { effect, value, compensation: undo } => {
                let outcome =
                    ledger::EffectOutcome { name: effect.clone(), value, compensation: undo.map(Box::new) };
                match ledger::record(found, &outcome, token, nth, 0) {
                    Ok(kept) => {
                        state.had.push(effect);
                        (kept.clone(), LedgerResponse::Recorded { recorded_effect: kept })
                    }
                    Err(first) => return LedgerResponse::Recorded { recorded_effect: first },
                }
            }
            LedgerEntry::Withdraw { effect } => {
                let goes = |found: &Effect| found.name == effect && ledger::withdraws(found, token);
                state.effects.retain(|found| !goes(found));
                return LedgerResponse::Withdrawn {};
            }
        };
        match at.and_then(|at| state.effects.get_mut(at)) {
            Some(effect) => *effect = kept,
            None => state.effects.push(kept),
        }
        answer
    }
}
