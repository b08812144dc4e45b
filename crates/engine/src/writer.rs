//! The one thread that changes an engine: it drains all waiting requests, decides them, has the changes kept, and
//! only then lets the answers go.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_contract::clock::Clock;
use fencehold_contract::operation::StoreResponse;
use fencehold_core::{Timestamp, Token};
use hashbrown::{HashMap, HashSet};

use super::handle::{Handle, Message, MessageReceiver, PingReply, WaitingCaller};
use super::persistence::{Changes, PersistError, Persistence};
use super::recent::Recent;
use super::state::{self, Engine, Granted, OutgoingResponse};
use super::waiters::Ticket;

/// The most requests of one batch: a bound on how long the first of them waits for the last to be decided.
pub(super) const BATCH_REQUESTS_MAX: usize = 4_096;
/// The most slots of one sweep, so that a mass expiry never holds up a renewal for long.
const SWEEP_MAX: usize = 512;
/// How long to wait for a batch to fill, at most, and only while it is smaller than the recent ones.
const GATHER_MAX: Duration = Duration::from_micros(300);
/// How many of those that a batch still waits for are decided at a time.
const DECIDED_AT_A_TIME: usize = 16;
/// The longest wait for something to do while anything is due.
const NAP_MAX: Duration = Duration::from_secs(1);

/// How a writer came to its end.
pub type WriterEnd = Result<(), PersistError>;

/// A running engine.
#[derive(Debug)]
pub struct Writer {
    pub handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread. `ended` is called on it, once, when it stops; answers that have not gone by then never do,
    /// and the caller finds its reply dropped.
    pub fn start<K: Persistence + 'static>(
        name: &str,
        clock: Arc<dyn Clock>,
        engine: Engine,
        persistence: K,
        gathers: bool,
        ended: impl FnOnce(WriterEnd, K, Engine) + Send + 'static,
    ) -> std::io::Result<Writer> {
        let (handle, taker) = Handle::new();
        clock.on_move(Box::new(handle.nudge()));
        let mut work = WriterThread {
            clock,
            engine,
            persistence,
            taker,
            gathers,
            backlog: VecDeque::new(),
            callers: HashMap::new(),
            recent: 0,
            expected: 0,
            recent_grants: Recent::default(),
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let end = work.run();
            let WriterThread { engine, persistence, callers, taker, backlog, .. } = work;
            // Close the inbox before callers learn that no response comes.
            drop(taker);
            ended(end, persistence, engine);
            drop((callers, backlog));
        })?;
        Ok(Writer { handle, thread: Some(thread) })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

struct WriterThread<K> {
    clock: Arc<dyn Clock>,
    engine: Engine,
    persistence: K,
    taker: MessageReceiver,
    /// Whether a batch waits a little for more.
    gathers: bool,
    /// What came while a batch could not be kept.
    backlog: VecDeque<Message>,
    callers: HashMap<Ticket, WaitingCaller>,
    /// How large the last batches were, as a moving average.
    recent: usize,
    /// How many the next batch can have, if everybody who was just answered comes back at once.
    expected: usize,
    /// Holds that were granted once more, and the call that got each last. A call is cut off, the same hold id is sent again,
    /// and that sending is answered: its caller works under the hold. When the first call is found to be gone only after that,
    /// it has nothing to give back. The newest so many are remembered; a call is found to be gone within moments.
    recent_grants: Recent<[u8; 16], Ticket, 4_096>,
}

/// What one batch has come to, beside what the engine decided.
#[derive(Default)]
struct BatchResult {
    size: usize,
    /// A caller in it may have to wait for the disk.
    may_sync: bool,
    pongs: Vec<PingReply>,
    stop: bool,
}

impl<K: Persistence> WriterThread<K> {
    fn run(&mut self) -> WriterEnd {
        let mut more_to_sweep = false;
        loop {
            // What came while the last batch was kept comes first, in its order; a batch has its bound all the same.
            let first = self.backlog.len().min(BATCH_REQUESTS_MAX);
            let waiting: Vec<Message> = self.backlog.drain(..first).collect();
            if waiting.is_empty() && !more_to_sweep {
                self.wait();
            }
            let BatchResult { stop, pongs, .. } = self.gather(waiting);
            let now = self.clock.now();
            // Callers come first, also after a gap in which this process did not run.
            more_to_sweep = self.engine.sweep(now, SWEEP_MAX, self.persistence.archive());
            self.settle(now, !pongs.is_empty())?;
            for pong in pongs {
                pong();
            }
            if stop {
                return Ok(());
            }
            self.persistence.tidy(!more_to_sweep && self.waiting() == 0)?;
        }
    }

    /// Waits for something to do.
    fn wait(&self) {
        let limit = self.engine.next_due_ms().and_then(|due_ms| self.clock.real_time_until(due_ms));
        // Never for long: a suspended machine's store time goes on while this thread's timer does not.
        self.taker.inbox().wait(1, limit.map(|limit| limit.min(NAP_MAX)));
    }

    /// How many wait to be decided.
    fn waiting(&self) -> usize {
        self.backlog.len() + self.taker.inbox().len()
    }

    /// Decides everything that waits, and waits a little for more while this batch is smaller than it could be: those who
    /// were answered together tend to come back together, and one sync can serve them all. Each is decided as it comes,
    /// while the others are still on their way.
    #[expect(clippy::disallowed_methods, reason = "a batch gathers in the machine's time, not the store's")]
    fn gather(&mut self, mut waiting: Vec<Message>) -> BatchResult {
        let mut gathered = BatchResult::default();
        let target = self.expected.min(self.recent + self.recent / 4 + 1).min(BATCH_REQUESTS_MAX);
        let started = std::time::Instant::now();
        loop {
            let room = BATCH_REQUESTS_MAX.saturating_sub(gathered.size + waiting.len());
            self.taker.inbox().take(room, &mut waiting);
            gathered.size += waiting.len();
            let now = self.clock.now();
            for message in waiting.drain(..) {
                self.take(now, message, &mut gathered);
            }
            // Without a sync to share, waiting would only keep those up who are here.
            let waits = K::KEEPS && self.gathers && !gathered.stop && gathered.may_sync;
            if !waits || gathered.size >= target {
                break;
            }
            let Some(left) = GATHER_MAX.checked_sub(started.elapsed()) else { break };
            // Deciding goes on while others are on their way, but this thread is not woken for each of them.
            self.taker
                .inbox()
                .wait((target - gathered.size).min(DECIDED_AT_A_TIME), Some(left));
        }
        if gathered.size > 0 {
            if let Some(measures) = &self.engine.measures.engine {
                measures.batch.record(gathered.size as u64);
            }
            self.recent = (self.recent * 3 + gathered.size) / 4;
        }
        gathered
    }

    fn take(&mut self, now: Timestamp, message: Message, gathered: &mut BatchResult) {
        match message {
            Message::Ask { caller: WaitingCaller { gives_back: Some((ticket, hash)), .. }, .. }
                if self.recent_grants.get(hash.as_bytes()).is_some_and(|last| *last != ticket) => {}
            Message::Ask { ticket, namespace, request, caller } => {
                gathered.may_sync |= request.may_sync();
                self.callers.insert(ticket, caller);
                self.engine.ask(now, ticket, &namespace, *request, self.persistence.archive());
            }
            Message::Cancel(ticket) => {
                if self.engine.cancel(now, ticket) {
                    self.callers.remove(&ticket);
                } else if let Some(caller) = self.callers.get_mut(&ticket) {
                    // Its response goes out with this batch, and finds no caller.
                    caller.reply = Box::new(|_| false);
                }
            }
            Message::Ping(pong) => gathered.pongs.push(pong),
            Message::Nudge => {}
            Message::Stop => gathered.stop = true,
        }
    }

    /// Keeps what the engine changed, then sends the responses. Grants whose callers have gone are given back at once.
    fn settle(&mut self, mut now: Timestamp, mut confirm: bool) -> WriterEnd {
        loop {
            self.engine.serve_claims(now, self.persistence.archive());
            if let Some(why) = self.engine.broken() {
                return Err(PersistError::Failed(why));
            }
            let (mut changes, answers) = self.engine.take_batch(K::KEEPS);
            if !changes.is_empty() {
                self.keep(&mut changes)?;
                self.engine.kept();
                self.engine
                    .measures
                    .facts
                    .count_events(changes.events.iter().map(AsRef::as_ref));
            } else if !answers.is_empty() || confirm {
                self.insist(Persistence::confirm)?;
            }
            confirm = false;
            self.engine.tell_holders();
            // Those who came too late for this batch and those who are answered now may meet in the next.
            self.expected = answers.len() + self.waiting();
            let abandoned = self.deliver(now, answers)?;
            if abandoned.is_empty() {
                return Ok(());
            }
            now = self.clock.now();
            for granted in abandoned {
                self.engine.abandon(now, granted, self.persistence.archive());
            }
        }
    }

    /// Has a batch kept, and notes how long that took.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long the disk took is for people, and decides nothing"
    )]
    fn keep(&mut self, changes: &mut Changes) -> WriterEnd {
        let durable = changes.durable;
        let started = std::time::Instant::now();
        let kept = self.insist(|persistence| persistence.keep(changes));
        if K::KEEPS
            && kept.is_ok()
            && let Some(measures) = &self.engine.measures.engine
        {
            let took_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            if durable { &measures.synced_us } else { &measures.unsynced_us }.record(took_us);
            if let Some(disk_us) = self.persistence.disk_us().filter(|_| durable) {
                measures.disk_us.record(disk_us);
            }
        }
        kept
    }

    /// Tries until it is kept, or never will be. A caller that cannot wait that long gets an error.
    fn insist(&mut self, mut attempt: impl FnMut(&mut K) -> WriterEnd) -> WriterEnd {
        loop {
            match attempt(&mut self.persistence) {
                Err(PersistError::Busy(why)) if !self.turn_away(&why) => {}
                end => return end,
            }
        }
    }

    /// Answers every caller whose timeout is over while the store is blocked. True: this thread is to stop, so no caller waits
    /// any longer.
    fn turn_away(&mut self, why: &str) -> bool {
        let now_ms = fencehold_contract::clock::SystemClock.now().store_ms;
        // Those that were asked already may be carried out yet.
        for (ticket, caller) in self.callers.extract_if(|_, caller| caller.give_up_ms <= now_ms) {
            (caller.reply)(Err(StoreError::OutcomeUnknown { message: why.to_owned() }));
            self.backlog.push_back(Message::Cancel(ticket));
        }
        self.taker.inbox().take(usize::MAX, &mut self.backlog);
        for message in std::mem::take(&mut self.backlog) {
            match message {
                Message::Ask { caller, .. } if caller.give_up_ms <= now_ms => {
                    (caller.reply)(Err(StoreError::Unavailable { message: why.to_owned() }));
                }
                message => self.backlog.push_back(message),
            }
        }
        self.backlog.iter().any(|message| matches!(message, Message::Stop))
    }

    /// Lets the answers go. What was granted to a caller that is not there any more comes back.
    fn deliver(
        &mut self,
        now: Timestamp,
        answers: Vec<OutgoingResponse>,
    ) -> Result<Vec<Granted>, PersistError> {
        let mut abandoned = Vec::new();
        let mut delivered = HashSet::new();
        // All are read before the first one goes: what it wakes has company, and one call of the scheduler wakes many.
        let mut said = Vec::with_capacity(answers.len());
        let mut left_out = Vec::new();
        for OutgoingResponse { ticket, result, mut granted } in answers {
            let (result, no_room) = self.said(now, result)?;
            if let Some(Granted::Jobs(given)) = granted.as_mut().filter(|_| !no_room.is_empty()) {
                let no_room: HashSet<_> = no_room.into_iter().collect();
                left_out.extend(given.extract_if(.., |(_, by)| no_room.contains(&by.token)));
            }
            said.push((ticket, self.callers.remove(&ticket), result, granted));
        }
        for (ticket, caller, result, granted) in said {
            let own = caller.as_ref().is_some_and(|caller| caller.own);
            let arrived = caller.is_some_and(|caller| (caller.reply)(result));
            match granted {
                Some(Granted::Lease { hash, fresh: false, .. } | Granted::Again(hash)) if arrived => {
                    delivered.insert(*hash.as_bytes());
                    self.recent_grants.insert(*hash.as_bytes(), ticket);
                }
                Some(Granted::Lease { hash, .. }) if arrived => drop(delivered.insert(*hash.as_bytes())),
                Some(Granted::Lease { fresh, .. }) if !fresh && !own => {}
                Some(Granted::Jobs(_)) if arrived => {}
                Some(Granted::Again(_)) | None => {}
                Some(granted) => abandoned.push(granted),
            }
        }
        // The same hold id may have been answered twice in this batch: one arrival is enough.
        abandoned.retain(|granted| match granted {
            Granted::Lease { hash, .. } | Granted::Again(hash) => !delivered.contains(hash.as_bytes()),
            Granted::Jobs(given) => given.iter().all(|(_, by)| !delivered.contains(by.hash.as_bytes())),
        });
        // The same claim may have got them by another answer.
        left_out.retain(|(_, by)| !delivered.contains(by.hash.as_bytes()));
        if !left_out.is_empty() {
            abandoned.push(Granted::Jobs(left_out));
        }
        Ok(abandoned)
    }

    /// What an answer says, read from the archive where it stands there; and the tokens of jobs that it has no room for.
    fn said(
        &mut self,
        now: Timestamp,
        reply: state::ResponseBody,
    ) -> Result<(Result<StoreResponse, StoreError>, Vec<Token>), PersistError> {
        match reply {
            state::ResponseBody::Said(result) => Ok((result, Vec::new())),
            state::ResponseBody::ToRead(read) => {
                let read = self.engine.read(now, read, self.persistence.archive());
                let (response, left_out) = read.map_err(PersistError::Failed)?;
                Ok((Ok(StoreResponse::Job(response)), left_out))
            }
        }
    }
}
