//! The gate in front of the store: every message of every actor passes it, and a script decides the fate of the one that
//! matters. A delay is a hold that is opened after time has passed; two held messages that are opened in the other order
//! are reordered.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_channel::oneshot;

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

/// A message that waits at the gate.
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

/// The gate. Whatever no rule speaks of passes.
#[derive(Default)]
pub(crate) struct MessageGate {
    rules: Mutex<Vec<GateRule>>,
}

impl MessageGate {
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

    /// Carries a message to what answers it. `None`: no answer comes back.
    pub(crate) async fn carry<T, F: Future<Output = T>>(
        &self,
        trace: &Trace,
        who: &str,
        message: &'static str,
        deliver: impl Fn() -> F,
    ) -> Option<T> {
        self.carry_as(trace, who, message, message, deliver).await
    }

    /// The same of a message that the picture calls by another name.
    pub(crate) async fn carry_as<T, F: Future<Output = T>>(
        &self,
        trace: &Trace,
        who: &str,
        message: &'static str,
        shown: &'static str,
        deliver: impl Fn() -> F,
    ) -> Option<T> {
        match self.fate_of(who, message) {
            None => Some(deliver().await),
            Some(MessageFate::Held(arrived, opened)) => {
                trace.note(who, format!("{shown} … on its way"));
                let _ = arrived.send(());
                // A script that ended early drops the other end: the message goes on, unwatched.
                let _ = opened.await;
                trace.note(who, format!("{shown} arrives"));
                Some(deliver().await)
            }
            Some(MessageFate::AnswerLost) => {
                drop(deliver().await);
                trace.note(who, format!("{shown}: its answer is lost"));
                None
            }
            Some(MessageFate::Lost) => {
                trace.note(who, format!("{shown} is lost"));
                None
            }
            Some(MessageFate::Doubled) => {
                drop(deliver().await);
                trace.note(who, format!("{shown} arrives once more"));
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
