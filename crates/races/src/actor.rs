//! Those who act in a script, and their calls while they are on their way.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use fencehold_core::{Key, Owner};
use fencehold_test_store::TestCaller;

use crate::gate::{HeldMessage, MessageFate};
use crate::protocol::{AcquireTerms, HeldLease, LeaseCall, LeaseReply};
use crate::record::record;
use crate::script::{Script, ScriptEnd, seconds};
use crate::trace::{Trace, fields};

/// How long an answer that must come may take, in real time. Only a broken store ever waits this long.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How many take keys at once, where many are taken.
const HANDS: usize = 4;

/// One who acts.
#[derive(Clone, Copy)]
pub(crate) struct RaceActor<'a> {
    pub(crate) script: &'a Script,
    pub(crate) name: &'static str,
    pub(crate) owner: &'static str,
}

impl RaceActor<'_> {
    /// The same actor under another owner's name.
    pub(crate) fn named(self, owner: &'static str) -> Self {
        RaceActor { owner, ..self }
    }

    /// The terms of an ordinary try: a fresh hold id, the arena's ttl, no waiting.
    pub(crate) fn wish(&self) -> AcquireTerms {
        AcquireTerms {
            key: self.script.key.clone(),
            hold: self.script.fresh_hold(),
            owner: Owner::new(self.owner).expect("a short name"),
            hold_age_ms: 0,
            ttl_ms: self.script.ttl_ms(),
            wait_ms: 0,
        }
    }

    pub(crate) fn asks(&self, wish: AcquireTerms) -> LeaseReply {
        self.does(LeaseCall::Acquire(wish))
    }

    /// Takes the key, which must be free.
    pub(crate) fn acquires(&self) -> Result<HeldLease, ScriptEnd> {
        match self.asks(self.wish()) {
            LeaseReply::Granted(lease) => Ok(lease),
            told => Err(ScriptEnd::Broken(format!(
                "broken: a free key is granted, but {} got {told:?}",
                self.name
            ))),
        }
    }

    pub(crate) fn renews(&self, lease: &HeldLease) -> LeaseReply {
        self.does(LeaseCall::Renew(lease.clone()))
    }

    pub(crate) fn releases(&self, lease: &HeldLease) -> LeaseReply {
        self.does(LeaseCall::Release(lease.clone()))
    }

    pub(crate) fn revokes(&self) -> LeaseReply {
        self.does(LeaseCall::Revoke(self.script.key.clone()))
    }

    pub(crate) fn completes(&self, lease: &HeldLease, result: &str) -> LeaseReply {
        self.does(LeaseCall::Complete(lease.clone(), result.to_owned()))
    }

    /// Shows the new token to what the lease protects, before anything is written. The naive twin has no fence.
    pub(crate) fn raises_the_fence(&self, lease: &HeldLease) {
        if self.script.ours().is_ok() {
            self.script.resource.raise(lease.token);
            self.script
                .trace
                .note(self.name, format!("raises the fence to {}", lease.token));
        }
    }

    pub(crate) fn does(&self, act: LeaseCall) -> LeaseReply {
        let (script, protocol) = (self.script, self.script.protocol());
        let told = script.drive(async { act.perform(&*protocol, self.name).await });
        record(&script.trace, self.name, &act, &told);
        told
    }

    /// The next message of this call meets a fate on its way.
    pub(crate) fn next_meets(&self, message: &'static str, fate: MessageFate) {
        self.script.gate.decide(self.name, message, fate);
    }

    /// Begins a call, and returns when its message that changes something is on its way.
    pub(crate) fn begins(&self, act: LeaseCall) -> Result<PendingCall<LeaseReply>, ScriptEnd> {
        self.begins_call(act.message(), self.call(act))
    }

    /// The same of any call, which puts its answer into the trace by itself.
    pub(crate) fn begins_call<T: Send + 'static>(
        &self,
        message: &'static str,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<PendingCall<T>, ScriptEnd> {
        let held = self.script.gate.hold(self.name, message);
        let under_way = self.starts(call, Some(held));
        if under_way.held.as_ref().is_some_and(HeldMessage::is_there) {
            return Ok(under_way);
        }
        Err(ScriptEnd::Broken(format!("broken: a call is answered, but {} never got to the gate", self.name)))
    }

    /// Stands in line, and returns when it can be seen there.
    pub(crate) fn waits(&self, wish: AcquireTerms) -> Result<PendingCall<LeaseReply>, ScriptEnd> {
        let script = self.script;
        if script.ours().is_ok() && !script.test_store.store().capabilities().supports_waiting {
            return Err(ScriptEnd::NotApplicable("waiting there is polling".to_owned()));
        }
        let protocol = script.protocol();
        let in_line = || script.drive(async { protocol.in_line(&script.key).await });
        let before = in_line();
        script
            .trace
            .note(self.name, format!("waits for up to {}", seconds(wish.wait_ms)));
        let under_way = self.starts(self.call(LeaseCall::Acquire(wish)), None);
        script.comes("the waiter stands in line", || in_line() > before)?;
        Ok(under_way)
    }

    /// Takes so many other keys, some at a time: one step in the picture.
    pub(crate) fn takes_others(&self, count: usize) -> Result<Vec<HeldLease>, ScriptEnd> {
        let (script, protocol) = (self.script, self.script.protocol());
        let key = |nth| Key::new(format!("{}/{nth}", script.key)).expect("a short text");
        let take = |nth: usize| {
            let wish = AcquireTerms { key: key(nth), ..self.wish() };
            match script.drive(async { protocol.acquire(self.name, &wish).await }) {
                LeaseReply::Granted(lease) => Ok(lease),
                told => Err(ScriptEnd::Broken(format!("broken: a free key is granted, but got {told:?}"))),
            }
        };
        let share = |hand: usize| (hand..count).step_by(HANDS).map(&take).collect::<Result<Vec<_>, _>>();
        let shares: Result<Vec<_>, ScriptEnd> = std::thread::scope(|scope| {
            let share = &share;
            let hands: Vec<_> = (0..HANDS).map(|hand| scope.spawn(move || share(hand))).collect();
            hands
                .into_iter()
                .map(|hand| hand.join().expect("a thread that did not panic"))
                .collect()
        });
        script.trace.note(self.name, format!("takes {count} other keys"));
        Ok(shares?.concat())
    }

    /// Renews many, one after the other, and gives the answer to each: one step in the picture.
    pub(crate) fn renews_all(&self, leases: &[HeldLease]) -> Vec<LeaseReply> {
        let (script, protocol) = (self.script, self.script.protocol());
        let renew = |lease| script.drive(async { protocol.renew(self.name, lease).await });
        let told: Vec<LeaseReply> = leases.iter().map(renew).collect();
        let renewed = told.iter().filter(|told| matches!(told, LeaseReply::Renewed { .. })).count();
        script
            .trace
            .note(self.name, format!("renews all {}: {renewed} are granted", told.len()));
        told
    }

    /// A call that puts its answer into the trace.
    fn call(&self, act: LeaseCall) -> impl Future<Output = LeaseReply> + Send + 'static {
        let (protocol, who) = (self.script.protocol(), self.name);
        let trace = Arc::clone(&self.script.trace);
        async move {
            let told = act.perform(&*protocol, who).await;
            record(&trace, who, &act, &told);
            told
        }
    }

    pub(crate) fn starts<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
        held: Option<HeldMessage>,
    ) -> PendingCall<T> {
        let (sender, answer) = mpsc::channel();
        let test_store = Arc::clone(&self.script.test_store);
        let caller = TestCaller::default();
        let call = caller.calls(call);
        let (trace, who) = (Arc::clone(&self.script.trace), self.name);
        std::thread::spawn(move || {
            test_store.drive(Box::pin(async move {
                if let Some(told) = call.await {
                    let _ = sender.send(told);
                }
            }));
        });
        PendingCall { held, answer, caller, trace, who }
    }

    /// Has come to the end of its work.
    pub(crate) fn exits(&self, reason: &str) {
        let fields = fields!(owner: self.owner, reason: reason);
        self.script
            .trace
            .event(self.name, format!("exits: {reason}"), "worker_exit", fields);
    }
}

/// A call on its way.
pub(crate) struct PendingCall<T> {
    held: Option<HeldMessage>,
    answer: Receiver<T>,
    caller: TestCaller,
    trace: Arc<Trace>,
    who: &'static str,
}

impl<T> PendingCall<T> {
    /// Lets the message through, and gives the answer to its sender.
    pub(crate) fn goes_on(mut self) -> Result<T, ScriptEnd> {
        if let Some(held) = self.held.take() {
            held.open();
        }
        self.told()
    }

    /// The answer to its sender, which must come.
    pub(crate) fn told(self) -> Result<T, ScriptEnd> {
        let answer = self.answer.recv_timeout(ANSWER_WITHIN);
        answer.map_err(|_| ScriptEnd::Broken("broken: every call is answered in time".to_owned()))
    }

    /// Its sender looks away: what is answered from now on lies there, and is not picked up.
    pub(crate) fn is_not_looked_at(&self) {
        self.caller.looks_away();
        self.trace.note(self.who, "looks away");
    }

    /// Its sender goes, without an answer.
    pub(crate) fn loses_its_sender(self) -> Result<(), ScriptEnd> {
        self.trace.note(self.who, "goes");
        self.caller.goes();
        match self.answer.recv_timeout(ANSWER_WITHIN) {
            Err(RecvTimeoutError::Disconnected) => Ok(()),
            Err(RecvTimeoutError::Timeout) => Err(ScriptEnd::Broken("broken: a call can be left".to_owned())),
            Ok(_) => Err(ScriptEnd::Broken(format!(
                "broken: {} looked away and was answered all the same",
                self.who
            ))),
        }
    }
}
