//! Those who act in a script, and their calls while they are on their way.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use fencehold_core::Owner;

use crate::gate::{Fate, Held};
use crate::protocol::{Act, Lease, Told, Wish};
use crate::record::record;
use crate::stage::{Stage, Stop, seconds};
use crate::trace::fields;

/// How long an answer that must come may take, in real time. Only a broken store ever waits this long.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

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
        record(&stage.trace, &stage.key, self.name, &act, &told);
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

    /// The same of any call, which puts what it is told into the trace by itself.
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
        let protocol = self.stage.protocol();
        let in_line = || self.stage.drive(async { protocol.in_line(&self.stage.key).await });
        let before = in_line();
        self.stage
            .trace
            .note(self.name, format!("waits for up to {}", seconds(wish.wait_ms)));
        let under_way = self.starts(self.call(Act::Acquire(wish)), None);
        for _ in 0..self.stage.looks_max() {
            if in_line() > before {
                return Ok(under_way);
            }
            self.stage.lets_others();
        }
        Err(Stop::Broken("broken: whoever waits stands in line".to_owned()))
    }

    /// A call that puts what it is told into the trace.
    fn call(&self, act: Act) -> impl Future<Output = Told> + Send + 'static {
        let (protocol, who) = (self.stage.protocol(), self.name);
        let (trace, key) = (Arc::clone(&self.stage.trace), self.stage.key.clone());
        async move {
            let told = act.perform(&*protocol, who).await;
            record(&trace, &key, who, &act, &told);
            told
        }
    }

    fn starts<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
        held: Option<Held>,
    ) -> UnderWay<T> {
        let (sender, answer) = mpsc::channel();
        let arena = Arc::clone(&self.stage.arena);
        std::thread::spawn(move || {
            arena.drive(Box::pin(async move {
                let _ = sender.send(call.await);
            }));
        });
        UnderWay { held, answer }
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
}

impl<T> UnderWay<T> {
    /// Lets the message through, and gives what its sender is told.
    pub(crate) fn goes_on(mut self) -> Result<T, Stop> {
        if let Some(held) = self.held.take() {
            held.open();
        }
        self.told()
    }

    /// What its sender is told, which must come.
    pub(crate) fn told(self) -> Result<T, Stop> {
        let answer = self.answer.recv_timeout(ANSWER_WITHIN);
        answer.map_err(|_| Stop::Broken("broken: every call is answered in time".to_owned()))
    }
}
