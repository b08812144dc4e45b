//! Hears an attempt instead of a store, by the same rules.

use std::sync::Mutex;

use fencehold_contract::job::{LedgerAct, LedgerAnswer, LedgerEntry, Word};
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

    pub(crate) fn hear(&self, word: Word) {
        let mut book = lock(&self.0);
        match word {
            Word::Checkpoint { bytes } => book.checkpoint = Some(bytes),
            Word::Progress { note } => book.progress.push(note),
            // How an attempt ends is what its handler returns.
            _ => {}
        }
    }

    pub(crate) fn write(&self, entry: LedgerEntry) -> LedgerAnswer {
        let mut book = lock(&self.0);
        let at = book.effects.iter().position(|effect| effect.name == *entry.act.effect());
        let found = at.and_then(|at| book.effects.get(at));
        let nth = u16::try_from(book.effects.len()).unwrap_or(u16::MAX);
        let token = entry.attempt.token;
        let (kept, answer) = match entry.act {
            LedgerAct::Begin { effect, policy } => {
                match ledger::begin(found, &effect, policy, token, nth, 0) {
                    Begun::Go(kept) => {
                        book.announced.push(effect);
                        (kept, LedgerAnswer::Go)
                    }
                    Begun::Recorded(effect) => return LedgerAnswer::Recorded(effect),
                    Begun::InDoubt => return LedgerAnswer::InDoubt,
                }
            }
            LedgerAct::Record { effect, value, undo } => {
                let outcome = ledger::Outcome { name: effect.clone(), value, undo: undo.map(Box::new) };
                match ledger::record(found, &outcome, token, nth, 0) {
                    Ok(kept) => {
                        book.had.push(effect);
                        (kept.clone(), LedgerAnswer::Recorded(kept))
                    }
                    Err(first) => return LedgerAnswer::Recorded(first),
                }
            }
            LedgerAct::Withdraw { effect } => {
                let goes = |found: &Effect| found.name == effect && ledger::withdraws(found, token);
                book.effects.retain(|found| !goes(found));
                return LedgerAnswer::Withdrawn;
            }
        };
        match at.and_then(|at| book.effects.get_mut(at)) {
            Some(effect) => *effect = kept,
            None => book.effects.push(kept),
        }
        answer
    }
}
