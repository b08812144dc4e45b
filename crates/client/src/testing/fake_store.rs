//! Hears an attempt instead of a store, by the same rules.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use fencehold_contract::job::{AttemptLedgerEntry, LedgerEntry, LedgerResponse, Report};
use fencehold_core::job::EffectName;
use fencehold_core::ledger::{self, Effect, EffectStart};

use crate::wake::lock;

/// Hears an attempt instead of a store.
pub(crate) struct FakeStore {
    state: Mutex<FakeStoreState>,
    /// What is to be done beside the handler.
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    open: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Who drives them.
    driver: Option<Waker>,
}

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
        let state = FakeStoreState { effects, ..FakeStoreState::default() };
        FakeStore { state: Mutex::new(state), tasks: Mutex::default() }
    }

    pub(super) fn take(&self) -> FakeStoreState {
        std::mem::take(&mut lock(&self.state))
    }

    #[cfg(feature = "tokio-util")]
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        tasks.open.push(Box::pin(task));
        if let Some(driver) = tasks.driver.take() {
            driver.wake();
        }
    }

    /// Drives what is to be done beside the handler. Never ends by itself.
    pub(super) async fn drive_tasks(&self) {
        poll_fn(|context| {
            let mut tasks = lock(&self.tasks);
            tasks.driver = Some(context.waker().clone());
            tasks.open.retain_mut(|task| task.as_mut().poll(context).is_pending());
            Poll::<()>::Pending
        })
        .await;
    }

    pub(crate) fn hear(&self, word: Report) {
        let mut state = lock(&self.state);
        match word {
            Report::Checkpoint { checkpoint: bytes } => state.checkpoint = Some(bytes),
            Report::Progress { progress: note } => state.progress.push(note),
            // How an attempt ends is what its handler returns.
            _ => {}
        }
    }

    pub(crate) fn write(&self, entry: AttemptLedgerEntry) -> LedgerResponse {
        let mut state = lock(&self.state);
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
