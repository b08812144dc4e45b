//! What a key does to what is shown: asked for, confirmed with a reason where one is kept, and done to exactly what was confirmed.

use fencehold_contract::LeaseView;
use fencehold_contract::job::{JobView, QueueMode, QueueView};
use fencehold_core::job::{JobId, QueueName};
use fencehold_core::limits::REASON_BYTES_MAX;
use fencehold_core::{Key, Owner, Reason, Token};

use super::keyboard::Key as Pressed;

/// An act on one thing, as it was shown when it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ends the hold under this token, and no later one.
    Revoke {
        key: Key,
        token: Token,
        owner: Owner,
    },
    SetMode {
        queue: QueueName,
        mode: QueueMode,
    },
    Cancel {
        job: JobId,
    },
    Retry {
        job: JobId,
    },
}

impl Action {
    /// `None`: it is free.
    pub(super) fn revoke(lease: &LeaseView) -> Option<Self> {
        let owner = lease.holder.as_ref()?.owner.clone();
        Some(Action::Revoke { key: lease.key.clone(), token: lease.token, owner })
    }

    /// What an open queue is not, and the other way round.
    pub(super) fn switch(queue: &QueueView) -> Self {
        let mode = if queue.mode == QueueMode::Open { QueueMode::Paused } else { QueueMode::Open };
        Action::SetMode { queue: queue.name.clone(), mode }
    }

    pub(super) fn cancel(job: &JobView) -> Self {
        Action::Cancel { job: job.id }
    }

    pub(super) fn retry(job: &JobView) -> Self {
        Action::Retry { job: job.id }
    }

    /// What it is, in a few words.
    pub(super) fn title(&self) -> &'static str {
        match self {
            Action::Revoke { .. } => "Revoke a lease",
            Action::SetMode { mode: QueueMode::Paused, .. } => "Pause a queue",
            Action::SetMode { .. } => "Resume a queue",
            Action::Cancel { .. } => "Cancel a job",
            Action::Retry { .. } => "Retry a job",
        }
    }

    /// What it does, to what exactly.
    pub(super) fn explanation(&self) -> String {
        match self {
            Action::Revoke { key, token, owner } => format!(
                "{key}: ends the hold of {owner} under token {token}, and no later one. The holder learns it at once \
                 where the store can tell it, else at its next renewal; until then only a fence keeps it out."
            ),
            Action::SetMode { queue, mode: QueueMode::Paused } => {
                format!("{queue}: it takes jobs and hands out none. What runs goes on.")
            }
            Action::SetMode { queue, .. } => format!("{queue}: it takes jobs and hands them out again."),
            Action::Cancel { job } => {
                format!("{job}: it is not tried any more. If it runs, its worker is asked to stop.")
            }
            Action::Retry { job } => format!("{job}: it starts over."),
        }
    }

    fn wants(&self) -> ReasonKind {
        match self {
            Action::Revoke { .. } => ReasonKind::Required,
            Action::Cancel { .. } => ReasonKind::Optional,
            Action::SetMode { .. } | Action::Retry { .. } => ReasonKind::None,
        }
    }
}

/// Whether a reason is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasonKind {
    None,
    Optional,
    Required,
}

/// A text that is being typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TextField {
    pub(super) text: String,
}

impl TextField {
    pub(super) fn of(text: &str) -> Self {
        TextField { text: text.to_owned() }
    }

    /// Whether the key belongs to the text.
    pub(super) fn press(&mut self, key: &Pressed) -> bool {
        match key {
            Pressed::Char(c) => self.push(*c),
            Pressed::Paste(text) => {
                text.chars().for_each(|c| self.push(if c.is_control() { ' ' } else { c }));
            }
            Pressed::Backspace => _ = self.text.pop(),
            Pressed::Control('u') => self.text.clear(),
            Pressed::Control('w') => {
                let end = self.text.trim_end().rfind(' ').map_or(0, |space| space + 1);
                self.text.truncate(end);
            }
            _ => return false,
        }
        true
    }

    fn push(&mut self, c: char) {
        if self.text.len() + c.len_utf8() <= REASON_BYTES_MAX {
            self.text.push(c);
        }
    }
}

/// An act that waits for its confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Confirmation {
    pub(super) action: Action,
    pub(super) reason: TextField,
    /// Why it was not taken yet.
    pub(super) problem: Option<String>,
}

/// What became of a confirmation by a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Confirmed {
    NotYet,
    No,
    Yes(Option<Reason>),
}

impl Confirmation {
    pub(super) fn of(action: Action) -> Self {
        Confirmation { action, reason: TextField::default(), problem: None }
    }

    pub(super) fn wants(&self) -> ReasonKind {
        self.action.wants()
    }

    pub(super) fn press(&mut self, key: &Pressed) -> Confirmed {
        match key {
            Pressed::Escape => return Confirmed::No,
            Pressed::Enter => {}
            key => {
                if self.wants() != ReasonKind::None {
                    self.reason.press(key);
                    self.problem = None;
                }
                return Confirmed::NotYet;
            }
        }
        let text = self.reason.text.trim();
        match (self.wants(), text.is_empty()) {
            (ReasonKind::None, _) | (ReasonKind::Optional, true) => return Confirmed::Yes(None),
            (ReasonKind::Required, true) => {
                self.problem = Some("Say why: the reason is kept in the history of the lease.".to_owned());
            }
            _ => match Reason::new(text) {
                Ok(reason) => return Confirmed::Yes(Some(reason)),
                Err(bad) => self.problem = Some(bad.to_string()),
            },
        }
        Confirmed::NotYet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revocation() -> Confirmation {
        let (key, owner) = (Key::new("reports/daily").unwrap(), Owner::new("ada").unwrap());
        Confirmation::of(Action::Revoke { key, token: Token::new(7), owner })
    }

    #[test]
    fn force_needs_a_reason_and_enter() {
        let mut asked = revocation();
        assert_eq!(asked.press(&Pressed::Enter), Confirmed::NotYet);
        assert!(asked.problem.as_deref().is_some_and(|problem| problem.starts_with("Say why")));
        for key in [Pressed::Char(' '), Pressed::Enter] {
            assert_eq!(asked.press(&key), Confirmed::NotYet, "blanks are no reason");
        }
        for c in "gone".chars() {
            asked.press(&Pressed::Char(c));
        }
        assert_eq!(asked.press(&Pressed::Enter), Confirmed::Yes(Some(Reason::new("gone").unwrap())));
        assert_eq!(revocation().press(&Pressed::Escape), Confirmed::No);
    }

    #[test]
    fn what_is_pasted_confirms_nothing() {
        let mut asked = revocation();
        assert_eq!(asked.press(&Pressed::Paste("x\ngone\r".to_owned())), Confirmed::NotYet);
        assert_eq!(asked.reason.text, "x gone ");
    }

    #[test]
    fn a_text_can_be_changed_and_has_an_end() {
        let mut field = TextField::of("one two");
        field.press(&Pressed::Control('w'));
        assert_eq!(field.text, "one ");
        field.press(&Pressed::Backspace);
        assert_eq!(field.text, "one");
        field.press(&Pressed::Control('u'));
        field.press(&Pressed::Paste("ü".repeat(1_000)));
        assert_eq!(field.text.len(), REASON_BYTES_MAX);
    }
}
