//! The one thread that changes an engine: it drains all waiting requests, decides them, has the changes kept, and
//! only then lets the answers go.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use fencehold_core::{Namespace, Stamp};
use futures_channel::oneshot;
use hashbrown::{HashMap, HashSet};

use super::ask::{Answer, Ask};
use super::claim::{Claim, Unclaimed};
use super::keep::{Changes, Keep, KeepError};
use super::state::{self, Answered, Engine, Granted};
use super::waiters::Ticket;
use crate::clock::Clock;
use crate::error::StoreError;

/// The most requests of one batch: a bound on how long the first of them waits for the last to be decided.
pub(super) const BATCH_REQUESTS_MAX: usize = 4_096;
/// The most slots of one sweep, so that a mass expiry never holds up a renewal for long.
const SWEEP_MAX: usize = 512;
/// How long to wait for a batch to fill, at most, and only while it is smaller than the recent ones.
const GATHER_MAX: Duration = Duration::from_micros(300);
/// The longest wait for something to do while anything is due.
const NAP_MAX: Duration = Duration::from_secs(1);

/// Takes an answer to whoever asked. False: nobody is there any more.
pub(crate) type Reply = Box<dyn FnOnce(Result<Answer, StoreError>) -> bool + Send>;

/// Called when the engine has come to a ping, and still is the one that serves.
pub(crate) type Pong = Box<dyn FnOnce() + Send>;

enum Message {
    Ask {
        ticket: Ticket,
        namespace: Namespace,
        ask: Box<Ask>,
        caller: Caller,
    },
    Cancel(Ticket),
    /// Whether the engine still runs.
    #[cfg_attr(not(feature = "file"), expect(dead_code, reason = "memory: is asked by nobody else"))]
    Ping(Pong),
    /// The clock was moved by hand.
    Nudge,
    Stop,
}

/// Whoever waits for an answer.
struct Caller {
    reply: Reply,
    /// Whether a lease that it is granted is its own also where it was granted before.
    first: bool,
    /// How long it bears with a store that is blocked, on the machine's own boot-time clock.
    give_up_ms: u64,
}

/// The way to ask a running engine.
#[derive(Clone, Debug)]
pub(crate) struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sender: Sender<Message>,
    next_ticket: AtomicU64,
}

/// How a writer came to its end.
pub(crate) type Ended = Result<(), KeepError>;

/// A running engine.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread. `ended` is called on it, once, when it stops; answers that have not gone by then never do,
    /// and whoever waits for one finds its reply dropped.
    pub(crate) fn start<K: Keep + 'static>(
        name: &str,
        clock: Arc<dyn Clock>,
        engine: Engine,
        keep: K,
        gathers: bool,
        ended: impl FnOnce(Ended, K, Engine) + Send + 'static,
    ) -> std::io::Result<Writer> {
        let (sender, receiver) = mpsc::channel();
        let shared = Arc::new(Shared { sender, next_ticket: AtomicU64::new(1) });
        let weak: Weak<Shared> = Arc::downgrade(&shared);
        clock.on_move(Box::new(move || {
            if let Some(shared) = weak.upgrade() {
                let _ = shared.sender.send(Message::Nudge);
            }
        }));
        let mut work = Work {
            clock,
            engine,
            keep,
            receiver,
            gathers,
            backlog: VecDeque::new(),
            callers: HashMap::new(),
            recent: 0,
            expected: 0,
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let end = work.run();
            let Work { engine, keep, callers, receiver, backlog, .. } = work;
            // Nobody can ask any more before anybody learns that nobody answers.
            drop(receiver);
            ended(end, keep, engine);
            drop((callers, backlog));
        })?;
        Ok(Writer { handle: Handle(shared), thread: Some(thread) })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.handle.0.sender.send(Message::Stop);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Handle {
    /// Sends a request; its answer goes to `reply`. `None`: the engine has stopped.
    pub(crate) fn send(
        &self,
        namespace: Namespace,
        ask: Ask,
        give_up_ms: u64,
        reply: Reply,
    ) -> Option<Ticket> {
        self.post(namespace, ask, Caller { reply, first: false, give_up_ms })
    }

    fn post(&self, namespace: Namespace, ask: Ask, caller: Caller) -> Option<Ticket> {
        let ticket = self.0.next_ticket.fetch_add(1, Ordering::Relaxed);
        self.0
            .sender
            .send(Message::Ask { ticket, namespace, ask: Box::new(ask), caller })
            .ok()
            .map(|()| ticket)
    }

    /// The caller of this request has gone.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        let _ = self.0.sender.send(Message::Cancel(ticket));
    }

    /// Has the engine's thread call back when it comes to it.
    #[cfg(feature = "file")]
    pub(crate) fn ping(&self, pong: Pong) {
        let _ = self.0.sender.send(Message::Ping(pong));
    }

    /// Gives back what nobody is there to take.
    pub(crate) fn give_back(&self, namespace: Namespace, unclaimed: Unclaimed) {
        self.send(namespace, unclaimed.ask, u64::MAX, Box::new(|_| true));
    }

    /// Asks, and gives a future of the answer. `None`: the engine stopped before it answered.
    pub(crate) fn ask(&self, namespace: Namespace, ask: Ask, claim: Option<Claim>, give_up_ms: u64) -> Asked {
        let (sender, receiver) = oneshot::channel();
        let reply: Reply = Box::new(move |result| sender.send(result).is_ok());
        let first = claim.is_some_and(|claim| claim.first);
        let ticket = self.post(namespace.clone(), ask, Caller { reply, first, give_up_ms });
        Asked { handle: self.clone(), namespace, claim, ticket, receiver }
    }
}

/// An answer to come. Dropping it leaves the line, and gives back a lease that was granted but never picked up.
pub(crate) struct Asked {
    handle: Handle,
    namespace: Namespace,
    claim: Option<Claim>,
    /// `None` once there is nothing left to cancel.
    ticket: Option<Ticket>,
    receiver: oneshot::Receiver<Result<Answer, StoreError>>,
}

impl Future for Asked {
    type Output = Option<Result<Answer, StoreError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.receiver).poll(context).map(Result::ok);
        if polled.is_ready() {
            self.ticket = None;
        }
        polled
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        self.receiver.close();
        match self.receiver.try_recv() {
            Ok(Some(answer)) => {
                if let Some(unclaimed) = self.claim.and_then(|claim| claim.unclaimed(answer)) {
                    self.handle.give_back(self.namespace.clone(), unclaimed);
                }
            }
            Ok(None) | Err(_) => self.handle.cancel(ticket),
        }
    }
}

struct Work<K> {
    clock: Arc<dyn Clock>,
    engine: Engine,
    keep: K,
    receiver: Receiver<Message>,
    /// Whether a batch waits a little for more.
    gathers: bool,
    /// What came while a batch could not be kept.
    backlog: VecDeque<Message>,
    callers: HashMap<Ticket, Caller>,
    /// How large the last batches were, as a moving average.
    recent: usize,
    /// How many the next batch can have, if everybody who was just answered comes back at once.
    expected: usize,
}

/// What one batch has come to, beside what the engine decided.
#[derive(Default)]
struct Gathered {
    size: usize,
    pongs: Vec<Pong>,
    stop: bool,
}

impl<K: Keep> Work<K> {
    fn run(&mut self) -> Ended {
        let mut more_to_sweep = false;
        loop {
            // What came while the last batch was kept comes first, in its order; a batch has its bound all the same.
            let first = self.backlog.len().min(BATCH_REQUESTS_MAX);
            let mut waiting: Vec<Message> = self.backlog.drain(..first).collect();
            if waiting.is_empty() {
                waiting.extend(if more_to_sweep { self.receiver.try_recv().ok() } else { self.wait() });
            }
            let Gathered { stop, pongs, .. } = self.gather(waiting);
            let now = self.clock.now();
            // Whoever asked comes first, also after a gap in which this process did not run.
            more_to_sweep = self.engine.sweep(now, SWEEP_MAX, self.keep.archive());
            self.settle(now, !pongs.is_empty())?;
            for pong in pongs {
                pong();
            }
            if stop {
                return Ok(());
            }
            if self.backlog.is_empty() {
                self.backlog.extend(self.receiver.try_recv().ok());
            }
            self.keep.tidy(!more_to_sweep && self.backlog.is_empty())?;
        }
    }

    /// Waits for something to do.
    fn wait(&mut self) -> Option<Message> {
        let limit = self.engine.next_due_ms().map(|due_ms| self.clock.real_time_until(due_ms));
        match limit {
            None | Some(None) => self.receiver.recv().ok().or(Some(Message::Stop)),
            // Never for long: a suspended machine's store time goes on while this thread's timer does not.
            Some(Some(limit)) => match self.receiver.recv_timeout(limit.min(NAP_MAX)) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Message::Stop),
            },
        }
    }

    /// Decides everything that waits, and waits a little for more while this batch is smaller than it could be: those who
    /// were answered together tend to come back together, and one sync can serve them all. Each is decided as it comes,
    /// while the others are still on their way.
    #[expect(clippy::disallowed_methods, reason = "a batch gathers in the machine's time, not the store's")]
    fn gather(&mut self, mut waiting: Vec<Message>) -> Gathered {
        let mut gathered = Gathered::default();
        let target = self.expected.min(self.recent + self.recent / 4 + 1).min(BATCH_REQUESTS_MAX);
        let started = std::time::Instant::now();
        loop {
            let room = BATCH_REQUESTS_MAX.saturating_sub(gathered.size + waiting.len());
            waiting.extend(self.receiver.try_iter().take(room));
            gathered.size += waiting.len();
            let now = self.clock.now();
            for message in waiting.drain(..) {
                self.take(now, message, &mut gathered);
            }
            let waits = K::KEEPS && self.gathers && !gathered.stop && gathered.size > 0;
            if !waits || gathered.size >= target {
                break;
            }
            let Some(left) = GATHER_MAX.checked_sub(started.elapsed()) else { break };
            match self.receiver.recv_timeout(left) {
                Ok(message) => waiting.push(message),
                Err(_) => break,
            }
        }
        if gathered.size > 0 {
            self.engine.measures.batch.record(gathered.size as u64);
            self.recent = (self.recent * 3 + gathered.size) / 4;
        }
        gathered
    }

    fn take(&mut self, now: Stamp, message: Message, gathered: &mut Gathered) {
        match message {
            Message::Ask { ticket, namespace, ask, caller } => {
                self.callers.insert(ticket, caller);
                self.engine.ask(now, ticket, &namespace, *ask, self.keep.archive());
            }
            Message::Cancel(ticket) => {
                if self.engine.cancel(now, ticket) {
                    self.callers.remove(&ticket);
                } else if let Some(caller) = self.callers.get_mut(&ticket) {
                    // Its answer goes out with this batch, and finds nobody.
                    caller.reply = Box::new(|_| false);
                }
            }
            Message::Ping(pong) => gathered.pongs.push(pong),
            Message::Nudge => {}
            Message::Stop => gathered.stop = true,
        }
    }

    /// Keeps what the engine changed, then lets the answers go. Grants that find nobody are given back at once.
    fn settle(&mut self, mut now: Stamp, mut confirm: bool) -> Ended {
        loop {
            self.engine.serve_claims(now, self.keep.archive());
            if let Some(why) = self.engine.broken() {
                return Err(KeepError::Failed(why));
            }
            let (mut changes, answers) = self.engine.take_batch(K::KEEPS);
            if !changes.is_empty() {
                let kept = self.keep(&mut changes);
                if !seeded!(AnsweredUnkept) {
                    kept?;
                }
                self.engine.kept();
            } else if !answers.is_empty() || confirm {
                self.insist(Keep::confirm)?;
            }
            confirm = false;
            // Whoever came too late for this batch and whoever is answered now may meet in the next.
            self.backlog.extend(self.receiver.try_iter());
            self.expected = answers.len() + self.backlog.len();
            let abandoned = self.deliver(now, answers)?;
            if abandoned.is_empty() {
                return Ok(());
            }
            now = self.clock.now();
            for granted in abandoned {
                self.engine.abandon(now, granted, self.keep.archive());
            }
        }
    }

    /// Has a batch kept, and notes how long that took.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long the disk took is for people, and decides nothing"
    )]
    fn keep(&mut self, changes: &mut Changes) -> Ended {
        let durable = changes.durable;
        let started = std::time::Instant::now();
        let kept = self.insist(|keep| keep.keep(changes));
        if K::KEEPS && kept.is_ok() {
            let took_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            let measures = &self.engine.measures;
            if durable { &measures.synced_us } else { &measures.unsynced_us }.record(took_us);
        }
        kept
    }

    /// Tries until it is kept, or never will be. Whoever cannot wait that long is told so.
    fn insist(&mut self, mut attempt: impl FnMut(&mut K) -> Ended) -> Ended {
        loop {
            match attempt(&mut self.keep) {
                Err(KeepError::Busy(why)) if !self.turn_away(&why) => {}
                end => return end,
            }
        }
    }

    /// Answers everybody whose patience is at an end while the store is blocked. True: this thread is to stop, so nobody
    /// waits any longer.
    fn turn_away(&mut self, why: &str) -> bool {
        let now_ms = crate::clock::SystemClock.now().store_ms;
        // Those that were asked already may be carried out yet.
        for (ticket, caller) in self.callers.extract_if(|_, caller| caller.give_up_ms <= now_ms) {
            (caller.reply)(Err(StoreError::Unknown { why: why.to_owned() }));
            self.backlog.push_back(Message::Cancel(ticket));
        }
        self.backlog.extend(self.receiver.try_iter());
        for message in std::mem::take(&mut self.backlog) {
            match message {
                Message::Ask { caller, .. } if caller.give_up_ms <= now_ms => {
                    (caller.reply)(Err(StoreError::Unavailable { why: why.to_owned() }));
                }
                message => self.backlog.push_back(message),
            }
        }
        self.backlog.iter().any(|message| matches!(message, Message::Stop))
    }

    /// Lets the answers go. What was granted to somebody who is not there any more comes back.
    fn deliver(&mut self, now: Stamp, answers: Vec<Answered>) -> Result<Vec<Granted>, KeepError> {
        let mut abandoned = Vec::new();
        let mut delivered = HashSet::new();
        for Answered { ticket, result, granted } in answers {
            let caller = self.callers.remove(&ticket);
            let first = caller.as_ref().is_some_and(|caller| caller.first);
            let arrived = match caller {
                Some(caller) => (caller.reply)(self.said(now, result)?),
                None => false,
            };
            match granted {
                Some(Granted::Lease { hash, .. }) if arrived => drop(delivered.insert(*hash.as_bytes())),
                Some(Granted::Lease { fresh, .. }) if !fresh && !first => {}
                Some(Granted::Jobs(_)) if arrived => {}
                Some(granted) => abandoned.push(granted),
                None => {}
            }
        }
        // The same hold id may have been answered twice in this batch: one arrival is enough.
        abandoned.retain(|granted| match granted {
            Granted::Lease { hash, .. } => !delivered.contains(hash.as_bytes()),
            Granted::Jobs(_) => true,
        });
        Ok(abandoned)
    }

    /// What an answer says, read from the archive where it stands there.
    fn said(&mut self, now: Stamp, reply: state::Reply) -> Result<Result<Answer, StoreError>, KeepError> {
        match reply {
            state::Reply::Said(result) => Ok(result),
            state::Reply::ToRead(look) => match self.engine.read(now, look, self.keep.archive()) {
                Ok(answer) => Ok(Ok(Answer::Job(answer))),
                Err(why) => Err(KeepError::Failed(why)),
            },
        }
    }
}
