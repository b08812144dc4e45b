//! Those who act in a script, and their calls while they are on their way.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use fencehold_core::{Key, Owner};
use fencehold_test_store::TestCaller;

use crate::gate::{HeldMessage, MessageFate};
use crate::protocol::{AcquireTerms, HeldLease, LeaseCall, LeaseReply, RaceCall};
use crate::script::{Script, ScriptEnd, seconds};
use crate::trace::fields;

/// How long an answer that must come may take, in real time. Only a broken store ever waits this long.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How many take keys at once, where many are taken.
const HANDS: usize = 4;

/// One who acts, by calls about keys or by calls about the job.
pub(crate) struct RaceActor<'a, C = LeaseCall> {
    pub(crate) script: &'a Script,
    pub(crate) name: &'static str,
    owner: &'static str,
    calls: PhantomData<C>,
}

impl<'a, C: RaceCall> RaceActor<'a, C> {
    pub(crate) fn new(script: &'a Script, name: &'static str) -> Self {
        RaceActor { script, name, owner: name, calls: PhantomData }
    }

    /// The same actor under another owner's name.
    pub(crate) fn named(self, owner: &'static str) -> Self {
        RaceActor { owner, ..self }
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner::new(self.owner).expect("a short name")
    }

    pub(crate) fn does(&self, act: C) -> C::Reply {
        self.script.drive(self.call(act))
    }

    /// The next message of this call meets a fate on its way.
    pub(crate) fn next_meets(&self, message: &'static str, fate: MessageFate) {
        self.script.gate.decide(self.name, message, fate);
    }

    /// Begins a call, and returns when its message that changes something is on its way.
    pub(crate) fn begins(&self, act: C) -> Result<PendingCall<'a, C::Reply>, ScriptEnd> {
        let held = self.script.gate.hold(self.name, act.message());
        let under_way = self.starts(act, Some(held));
        if under_way.held.as_ref().is_some_and(HeldMessage::is_there) {
            return Ok(under_way);
        }
        self.script
            .broken(&format!("a call is answered, but {} never got to the gate", self.name))
    }

    pub(crate) fn starts(&self, act: C, held: Option<HeldMessage>) -> PendingCall<'a, C::Reply> {
        let (sender, answer) = mpsc::channel();
        let test_store = Arc::clone(&self.script.test_store);
        let caller = TestCaller::default();
        let call = caller.calls(self.call(act));
        let thread = std::thread::spawn(move || {
            test_store.drive(Box::pin(async move {
                if let Some(told) = call.await {
                    let _ = sender.send(told);
                }
            }));
        });
        PendingCall { held, answer, caller, script: self.script, who: self.name, thread: Some(thread) }
    }

    /// A call that puts its answer into the trace.
    fn call(&self, act: C) -> impl Future<Output = C::Reply> + Send + use<C> {
        let (protocols, who) = (self.script.protocols.clone(), self.name);
        let (trace, key) = (Arc::clone(&self.script.trace), self.script.key.clone());
        async move {
            let told = act.perform(&protocols, who).await;
            act.record(&trace, &key, who, &told);
            told
        }
    }

    /// Has come to the end of its work.
    pub(crate) fn exits(&self, reason: &str) {
        let fields = fields!(owner: self.owner, reason: reason);
        self.script
            .trace
            .event(self.name, format!("exits: {reason}"), "worker_exit", fields);
    }
}

impl<'a> RaceActor<'a> {
    /// The terms of an ordinary try: a fresh hold id, the arena's ttl, no waiting.
    pub(crate) fn wish(&self) -> AcquireTerms {
        AcquireTerms {
            key: self.script.key.clone(),
            hold: self.script.fresh_hold(),
            owner: self.owner(),
            hold_age_ms: 0,
            ttl_ms: self.script.ttl_ms(),
            wait_ms: 0,
        }
    }

    pub(crate) fn asks(&self, wish: AcquireTerms) -> LeaseReply {
        self.does(LeaseCall::Acquire(wish))
    }

    /// Takes a key, which must be free.
    pub(crate) fn takes(&self, wish: AcquireTerms) -> Result<HeldLease, ScriptEnd> {
        match self.asks(wish) {
            LeaseReply::Granted(lease) => Ok(lease),
            told => self
                .script
                .broken(&format!("a free key is granted, but {} got {told:?}", self.name)),
        }
    }

    /// Takes the key, which must be free.
    pub(crate) fn acquires(&self) -> Result<HeldLease, ScriptEnd> {
        self.takes(self.wish())
    }

    pub(crate) fn renews(&self, lease: &HeldLease) -> LeaseReply {
        self.does(LeaseCall::Renew(lease.clone()))
    }

    pub(crate) fn releases(&self, lease: &HeldLease) -> LeaseReply {
        self.does(LeaseCall::Release(lease.clone()))
    }

    pub(crate) fn completes(&self, lease: &HeldLease, result: &'static str) -> LeaseReply {
        self.does(LeaseCall::Complete(lease.clone(), result))
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

    /// Stands in line, and returns when it can be seen there.
    pub(crate) fn waits(&self, wait_ms: u64) -> Result<PendingCall<'a, LeaseReply>, ScriptEnd> {
        let script = self.script;
        if script.ours().is_ok() && !script.test_store.store().capabilities().supports_waiting {
            return Err(ScriptEnd::NotApplicable("waiting there is polling".to_owned()));
        }
        let in_line = || script.lease().in_line;
        let before = in_line();
        script.trace.note(self.name, format!("waits for up to {}", seconds(wait_ms)));
        let under_way = self.starts(LeaseCall::Acquire(AcquireTerms { wait_ms, ..self.wish() }), None);
        script.comes("the waiter stands in line", || in_line() > before)?;
        Ok(under_way)
    }

    /// Takes so many other keys, some at a time: one step in the picture.
    pub(crate) fn takes_others(&self, count: usize) -> Result<Vec<HeldLease>, ScriptEnd> {
        let script = self.script;
        let key = |nth| Key::new(format!("{}/{nth}", script.key)).expect("a short text");
        let take = |nth: usize| {
            let wish = AcquireTerms { key: key(nth), ..self.wish() };
            match self.unseen(LeaseCall::Acquire(wish)) {
                LeaseReply::Granted(lease) => Ok(lease),
                told => script.broken(&format!("a free key is granted, but got {told:?}")),
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
        let renew = |lease: &HeldLease| self.unseen(LeaseCall::Renew(lease.clone()));
        let told: Vec<LeaseReply> = leases.iter().map(renew).collect();
        let renewed = told.iter().filter(|told| told.is_renewed()).count();
        self.script
            .trace
            .note(self.name, format!("renews all {}: {renewed} are granted", told.len()));
        told
    }

    /// A call that the trace leaves out.
    fn unseen(&self, act: LeaseCall) -> LeaseReply {
        self.script.drive(act.perform(&self.script.protocols, self.name))
    }
}

/// A call on its way. If it is dropped, its sender goes, and what has not arrived never does.
pub(crate) struct PendingCall<'a, T> {
    held: Option<HeldMessage>,
    answer: Receiver<T>,
    caller: TestCaller,
    script: &'a Script,
    who: &'static str,
    thread: Option<JoinHandle<()>>,
}

impl<T> PendingCall<'_, T> {
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
        answer.or_else(|_| self.script.broken("every call is answered in time"))
    }

    /// Its sender looks away: what is answered from now on lies there, and is not picked up.
    pub(crate) fn is_not_looked_at(&self) {
        self.caller.looks_away();
        self.script.trace.note(self.who, "looks away");
    }

    /// Its sender goes, without an answer.
    pub(crate) fn loses_its_sender(self) -> Result<(), ScriptEnd> {
        self.script.trace.note(self.who, "goes");
        self.caller.goes();
        match self.answer.recv_timeout(ANSWER_WITHIN) {
            Err(RecvTimeoutError::Disconnected) => Ok(()),
            Err(RecvTimeoutError::Timeout) => self.script.broken("a call can be left"),
            Ok(_) => self
                .script
                .broken(&format!("{} looked away and was answered all the same", self.who)),
        }
    }
}

impl<T> Drop for PendingCall<'_, T> {
    fn drop(&mut self) {
        self.held = None;
        self.caller.goes();
        // From here on nothing of it reaches the store.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
