//! Hears an attempt instead of a store, by the same rules.

use std::sync::Mutex;

use fencehold_contract::job::{AttemptLedgerEntry, LedgerEntry, LedgerResponse, Report};
use fencehold_core::job::EffectName;
use fencehold_core::ledger::{self, Begun, Effect};

use crate::bell::lock;

/// Hears an attempt instead of a store.
pub(crate) struct Kit(Mutex<Book>);

/// What was heard.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) effects: Vec<Effect>,
    pub(super) had: Vec<EffectName>,
    pub(super) announced: Vec<EffectName>,
    pub(super) checkpoint: Option<Vec<u8>>,
    pub(super) progress: Vec<Box<str>>,
}

impl Kit {
    pub(super) fn new(effects: Vec<Effect>) -> Self {
        Kit(Mutex::new(Book { effects, ..Book::default() }))
    }

    pub(super) fn take(&self) -> Book {
        std::mem::take(&mut lock(&self.0))
    }

    pub(crate) fn hear(&self, word: Report) {
        let mut book = lock(&self.0);
        match word {
            Report::Checkpoint { checkpoint: bytes } => book.checkpoint = Some(bytes),
            Report::Progress { progress: note } => book.progress.push(note),
            // How an attempt ends is what its handler returns.
            _ => {}
        }
    }

    pub(crate) fn write(&self, entry: AttemptLedgerEntry) -> LedgerResponse {
        let mut book = lock(&self.0);
        let at = book.effects.iter().position(|effect| effect.name == *entry.entry.effect());
        let found = at.and_then(|at| book.effects.get(at));
        let nth = u16::try_from(book.effects.len()).unwrap_or(u16::MAX);
        let token = entry.attempt.token;
        let (kept, answer) = match entry.entry {
            LedgerEntry::Begin { effect, in_doubt_policy: policy } => {
                match ledger::begin(found, &effect, policy, token, nth, 0) {
                    Begun::Go(kept) => {
                        book.announced.push(effect);
                        (kept, LedgerResponse::Proceed {})
                    }
                    Begun::Recorded(effect) => return LedgerResponse::Recorded { recorded_effect: effect },
                    Begun::InDoubt => return LedgerResponse::InDoubt {},
                }
            }
            LedgerEntry::Record { effect, value, compensation: undo } => {
                let outcome =
                    ledger::Outcome { name: effect.clone(), value, compensation: undo.map(Box::new) };
                match ledger::record(found, &outcome, token, nth, 0) {
                    Ok(kept) => {
                        book.had.push(effect);
                        (kept.clone(), LedgerResponse::Recorded { recorded_effect: kept })
                    }
                    Err(first) => return LedgerResponse::Recorded { recorded_effect: first },
                }
            }
            LedgerEntry::Withdraw { effect } => {
                let goes = |found: &Effect| found.name == effect && ledger::withdraws(found, token);
                book.effects.retain(|found| !goes(found));
                return LedgerResponse::Withdrawn {};
            }
        };
        match at.and_then(|at| book.effects.get_mut(at)) {
            Some(effect) => *effect = kept,
            None => book.effects.push(kept),
        }
        answer
    }
}
