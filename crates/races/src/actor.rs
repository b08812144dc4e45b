//! Those who act in a script, and their calls while they are on their way.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use fencehold_core::{Key, Owner};
use fencehold_test_store::Caller;

use crate::gate::{Fate, Held};
use crate::protocol::{Act, Lease, Told, Wish};
use crate::record::record;
use crate::stage::{Stage, Stop, seconds};
use crate::trace::{Trace, fields};

/// How long an answer that must come may take, in real time. Only a broken store ever waits this long.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How many take keys at once, where many are taken.
const HANDS: usize = 4;

/// One who acts.
#[derive(Clone, Copy)]
pub(crate) struct Actor<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) name: &'static str,
    pub(crate) owner: &'static str,
}

impl Actor<'_> {
    /// The same actor under another owner's name.
    pub(crate) fn named(self, owner: &'static str) -> Self {
        Actor { owner, ..self }
    }

    /// The terms of an ordinary try: a fresh hold id, the arena's ttl, no waiting.
    pub(crate) fn wish(&self) -> Wish {
        Wish {
            key: self.stage.key.clone(),
            hold: self.stage.fresh_hold(),
            owner: Owner::new(self.owner).expect("a short name"),
            hold_age_ms: 0,
            ttl_ms: self.stage.ttl_ms(),
            wait_ms: 0,
        }
    }

    pub(crate) fn asks(&self, wish: Wish) -> Told {
        self.does(Act::Acquire(wish))
    }

    /// Takes the key, which must be free.
    pub(crate) fn acquires(&self) -> Result<Lease, Stop> {
        match self.asks(self.wish()) {
            Told::Granted(lease) => Ok(lease),
            told => {
                Err(Stop::Broken(format!("broken: a free key is granted, but {} got {told:?}", self.name)))
            }
        }
    }

    pub(crate) fn renews(&self, lease: &Lease) -> Told {
        self.does(Act::Renew(lease.clone()))
    }

    pub(crate) fn releases(&self, lease: &Lease) -> Told {
        self.does(Act::Release(lease.clone()))
    }

    pub(crate) fn revokes(&self) -> Told {
        self.does(Act::Revoke(self.stage.key.clone()))
    }

    pub(crate) fn completes(&self, lease: &Lease, result: &str) -> Told {
        self.does(Act::Complete(lease.clone(), result.to_owned()))
    }

    /// Shows the new token to what the lease protects, before anything is written. The naive twin has no fence.
    pub(crate) fn raises_the_fence(&self, lease: &Lease) {
        if self.stage.ours().is_ok() {
            self.stage.shelf.raise(lease.token);
            self.stage.trace.note(self.name, format!("raises the fence to {}", lease.token));
        }
    }

    pub(crate) fn does(&self, act: Act) -> Told {
        let (stage, protocol) = (self.stage, self.stage.protocol());
        let told = stage.drive(async { act.perform(&*protocol, self.name).await });
        record(&stage.trace, self.name, &act, &told);
        told
    }

    /// The next message of this call meets a fate on its way.
    pub(crate) fn next_meets(&self, message: &'static str, fate: Fate) {
        self.stage.gate.decide(self.name, message, fate);
    }

    /// Begins a call, and returns when its message that changes something is on its way.
    pub(crate) fn begins(&self, act: Act) -> Result<UnderWay<Told>, Stop> {
        self.begins_call(act.message(), self.call(act))
    }

    /// The same of any call, which puts its answer into the trace by itself.
    pub(crate) fn begins_call<T: Send + 'static>(
        &self,
        message: &'static str,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<UnderWay<T>, Stop> {
        let held = self.stage.gate.hold(self.name, message);
        let under_way = self.starts(call, Some(held));
        if under_way.held.as_ref().is_some_and(Held::is_there) {
            return Ok(under_way);
        }
        Err(Stop::Broken(format!("broken: a call is answered, but {} never got to the gate", self.name)))
    }

    /// Stands in line, and returns when it can be seen there.
    pub(crate) fn waits(&self, wish: Wish) -> Result<UnderWay<Told>, Stop> {
        let stage = self.stage;
        if stage.ours().is_ok() && !stage.arena.store().capabilities().supports_waiting {
            return Err(Stop::NotApplicable("waiting there is polling".to_owned()));
        }
        let protocol = stage.protocol();
        let in_line = || stage.drive(async { protocol.in_line(&stage.key).await });
        let before = in_line();
        stage
            .trace
            .note(self.name, format!("waits for up to {}", seconds(wish.wait_ms)));
        let under_way = self.starts(self.call(Act::Acquire(wish)), None);
        stage.comes("the waiter stands in line", || in_line() > before)?;
        Ok(under_way)
    }

    /// Takes so many other keys, some at a time: one step in the picture.
    pub(crate) fn takes_others(&self, count: usize) -> Result<Vec<Lease>, Stop> {
        let (stage, protocol) = (self.stage, self.stage.protocol());
        let key = |nth| Key::new(format!("{}/{nth}", stage.key)).expect("a short text");
        let take = |nth: usize| {
            let wish = Wish { key: key(nth), ..self.wish() };
            match stage.drive(async { protocol.acquire(self.name, &wish).await }) {
                Told::Granted(lease) => Ok(lease),
                told => Err(Stop::Broken(format!("broken: a free key is granted, but got {told:?}"))),
            }
        };
        let share = |hand: usize| (hand..count).step_by(HANDS).map(&take).collect::<Result<Vec<_>, _>>();
        let shares: Result<Vec<_>, Stop> = std::thread::scope(|scope| {
            let share = &share;
            let hands: Vec<_> = (0..HANDS).map(|hand| scope.spawn(move || share(hand))).collect();
            hands
                .into_iter()
                .map(|hand| hand.join().expect("a thread that did not panic"))
                .collect()
        });
        stage.trace.note(self.name, format!("takes {count} other keys"));
        Ok(shares?.concat())
    }

    /// Renews many, one after the other, and gives the answer to each: one step in the picture.
    pub(crate) fn renews_all(&self, leases: &[Lease]) -> Vec<Told> {
        let (stage, protocol) = (self.stage, self.stage.protocol());
        let renew = |lease| stage.drive(async { protocol.renew(self.name, lease).await });
        let told: Vec<Told> = leases.iter().map(renew).collect();
        let renewed = told.iter().filter(|told| matches!(told, Told::Renewed { .. })).count();
        stage
            .trace
            .note(self.name, format!("renews all {}: {renewed} are granted", told.len()));
        told
    }

    /// A call that puts its answer into the trace.
    fn call(&self, act: Act) -> impl Future<Output = Told> + Send + 'static {
        let (protocol, who) = (self.stage.protocol(), self.name);
        let trace = Arc::clone(&self.stage.trace);
        async move {
            let told = act.perform(&*protocol, who).await;
            record(&trace, who, &act, &told);
            told
        }
    }

    pub(crate) fn starts<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
        held: Option<Held>,
    ) -> UnderWay<T> {
        let (sender, answer) = mpsc::channel();
        let arena = Arc::clone(&self.stage.arena);
        let caller = Caller::default();
        let call = caller.calls(call);
        let (trace, who) = (Arc::clone(&self.stage.trace), self.name);
        std::thread::spawn(move || {
            arena.drive(Box::pin(async move {
                if let Some(told) = call.await {
                    let _ = sender.send(told);
                }
            }));
        });
        UnderWay { held, answer, caller, trace, who }
    }

    /// Has come to the end of its work.
    pub(crate) fn exits(&self, reason: &str) {
        let fields = fields!(owner: self.owner, reason: reason);
        self.stage
            .trace
            .event(self.name, format!("exits: {reason}"), "worker_exit", fields);
    }
}

/// A call on its way.
pub(crate) struct UnderWay<T> {
    held: Option<Held>,
    answer: Receiver<T>,
    caller: Caller,
    trace: Arc<Trace>,
    who: &'static str,
}

impl<T> UnderWay<T> {
    /// Lets the message through, and gives the answer to its sender.
    pub(crate) fn goes_on(mut self) -> Result<T, Stop> {
        if let Some(held) = self.held.take() {
            held.open();
        }
        self.told()
    }

    /// The answer to its sender, which must come.
    pub(crate) fn told(self) -> Result<T, Stop> {
        let answer = self.answer.recv_timeout(ANSWER_WITHIN);
        answer.map_err(|_| Stop::Broken("broken: every call is answered in time".to_owned()))
    }

    /// Its sender looks away: what is answered from now on lies there, and is not picked up.
    pub(crate) fn is_not_looked_at(&self) {
        self.caller.looks_away();
        self.trace.note(self.who, "looks away");
    }

    /// Its sender goes, without an answer.
    pub(crate) fn loses_its_sender(self) -> Result<(), Stop> {
        self.trace.note(self.who, "goes");
        self.caller.goes();
        match self.answer.recv_timeout(ANSWER_WITHIN) {
            Err(RecvTimeoutError::Disconnected) => Ok(()),
            Err(RecvTimeoutError::Timeout) => Err(Stop::Broken("broken: a call can be left".to_owned())),
            Ok(_) => {
                Err(Stop::Broken(format!("broken: {} looked away and was answered all the same", self.who)))
            }
        }
    }
}
