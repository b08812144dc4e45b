//! The gate in front of the store: every message of every actor passes it, and a script decides the fate of the one that
//! matters. A delay is a hold that is opened after time has passed; two held messages that are opened in the other order
//! are reordered.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_channel::oneshot;

use crate::environment::Interrupt;
use crate::trace::Trace;

/// How long a message that must come to the gate may take, in real time. Only a broken store ever waits this long.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

/// What becomes of a message.
pub(crate) enum MessageFate {
    /// It waits until it is let through.
    Held(Sender<()>, oneshot::Receiver<()>),
    /// It arrives and is carried out; its answer is lost.
    AnswerLost,
    /// It is lost on its way there.
    Lost,
    /// It arrives twice; the sender hears the second answer.
    Doubled,
}

/// A message that waits at the gate. One that is dropped never arrives.
pub(crate) struct HeldMessage {
    arrived: Receiver<()>,
    go: oneshot::Sender<()>,
}

impl HeldMessage {
    /// Returns when the message is at the gate. False: it never came.
    pub(crate) fn is_there(&self) -> bool {
        self.arrived.recv_timeout(ARRIVES_WITHIN).is_ok()
    }

    /// Lets it through.
    pub(crate) fn open(self) {
        let _ = self.go.send(());
    }
}

struct GateRule {
    who: String,
    message: &'static str,
    fate: MessageFate,
}

/// The gate. Whatever no rule speaks of passes, until the race is interrupted.
pub(crate) struct MessageGate {
    rules: Mutex<Vec<GateRule>>,
    pub(crate) trace: Arc<Trace>,
    interrupt: Interrupt,
}

impl MessageGate {
    pub(crate) fn new(trace: Arc<Trace>, interrupt: Interrupt) -> Self {
        MessageGate { rules: Mutex::default(), trace, interrupt }
    }

    /// Decides the fate of an actor's next message of this name.
    pub(crate) fn decide(&self, who: &str, message: &'static str, fate: MessageFate) {
        let rule = GateRule { who: who.to_owned(), message, fate };
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).push(rule);
    }

    /// Has an actor's next message of this name wait here.
    pub(crate) fn hold(&self, who: &str, message: &'static str) -> HeldMessage {
        let ((at, arrived), (go, opened)) = (mpsc::channel(), oneshot::channel());
        self.decide(who, message, MessageFate::Held(at, opened));
        HeldMessage { arrived, go }
    }

    /// Carries a message, which the picture may call by another name, to what answers it. `None`: no answer comes back.
    pub(crate) async fn carry<T, F: Future<Output = T>>(
        &self,
        who: &str,
        message: &'static str,
        shown: &'static str,
        deliver: impl Fn() -> F,
    ) -> Option<T> {
        let note = |what: &str| self.trace.note(who, format!("{shown}{what}"));
        match self.fate_of(who, message) {
            _ if self.interrupt.is_set() => None,
            None => Some(deliver().await),
            Some(MessageFate::Held(arrived, opened)) => {
                note(" … on its way");
                let _ = arrived.send(());
                // A script that ended early has dropped the other end.
                opened.await.ok()?;
                note(" arrives");
                Some(deliver().await)
            }
            Some(MessageFate::AnswerLost) => {
                drop(deliver().await);
                note(": its answer is lost");
                None
            }
            Some(MessageFate::Lost) => {
                note(" is lost");
                None
            }
            Some(MessageFate::Doubled) => {
                drop(deliver().await);
                note(" arrives once more");
                Some(deliver().await)
            }
        }
    }

    fn fate_of(&self, who: &str, message: &'static str) -> Option<MessageFate> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let at = rules.iter().position(|rule| rule.who == who && rule.message == message)?;
        Some(rules.remove(at).fate)
    }
}
