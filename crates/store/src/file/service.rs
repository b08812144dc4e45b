//! The thread behind a `file:` handle: it finds whoever owns the directory, or becomes the owner itself, and carries
//! every question to an answer across owners that end, are killed or fall silent.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use fencehold_core::{BadInput, Namespace};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::frame::{FromOwner, ToOwner};
use super::link::{BEAT, Link, Reached, SILENCE, wait};
use super::owner::{Door, Service as Offer};
use super::place::{Place, unusable};
use super::sqlite::{Failure, Unnoted};
use super::takeover::{self, Attempt, Ownership};
use crate::clock::{Clock, SystemClock};
use crate::engine::{Answer, Ask, Claim, Ended, Engine, Handle, Unclaimed, Writer};
use crate::error::StoreError;

/// What a handle asks of its thread.
pub(super) enum Order {
    Ask(u64, Box<Question>),
    Cancel(u64),
    /// A lease was granted to somebody who had gone.
    GiveBack(Namespace, Box<Unclaimed>),
    Close,
}

/// A question on its way to whoever owns the directory.
pub(super) struct Question {
    pub(super) namespace: Namespace,
    pub(super) ask: Ask,
    /// When it was first asked, and when its asker gives up, on the machine's own boot-time clock.
    pub(super) asked_at_ms: u64,
    pub(super) give_up_ms: u64,
    /// Whether it was sent before, so that it may have been carried out.
    pub(super) uncertain: bool,
    /// The same, before the last sending.
    pub(super) uncertain_before: bool,
    pub(super) reply: oneshot::Sender<Told>,
}

/// What becomes of a question.
pub(super) enum Told {
    /// Answered; the sending that was answered left at this moment.
    Answer { result: Box<Result<Answer, StoreError>>, sent_at_ms: u64 },
    /// This process owns the directory now: ask its own engine. An earlier sending elsewhere may have been carried out.
    AskHere { uncertain: bool },
}

/// What the handle and its thread share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The engine, while this process owns the directory.
    pub(super) here: RwLock<Option<Handle>>,
    /// What stands in the way, for people.
    obstacle: Mutex<String>,
    /// The handle is being closed: whoever waits for another process stops.
    closing: AtomicBool,
}

impl Shared {
    fn set_here(&self, handle: Option<Handle>) {
        *self.here.write().unwrap_or_else(PoisonError::into_inner) = handle;
    }

    pub(super) fn here(&self) -> Option<Handle> {
        self.here.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_obstacle(&self, why: String) {
        *self.obstacle.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    fn obstacle(&self) -> String {
        let why = self.obstacle.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if why.is_empty() { "nobody serves this directory yet".to_owned() } else { why }
    }

    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

/// Runs until the handle is closed.
pub(super) async fn run(
    place: Arc<Place>,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    orders: mpsc::UnboundedReceiver<Order>,
) {
    let mut service = Service {
        place,
        clock,
        shared,
        orders,
        pending: BTreeMap::new(),
        left: HashMap::new(),
        unclaimed: Vec::new(),
        closed: false,
    };
    let mut silent = None;
    loop {
        let next = match service.seek(silent.take()).await {
            Sought::Owner(link) => service.use_owner(*link).await,
            Sought::Own(ownership, door) => service.own(*ownership, door).await,
            Sought::Unusable(error) => service.refuse_all(&error).await,
            Sought::Closed => Next::Close,
        };
        match next {
            Next::Seek { silent: epoch } if !service.closed => silent = epoch,
            _ => {
                return service
                    .answer_all(&StoreError::Unavailable { why: "this store was closed".to_owned() });
            }
        }
    }
}

/// What to do when a role has ended.
enum Next {
    /// Look for the owner. An epoch whose owner fell silent may be taken over.
    Seek {
        silent: Option<u64>,
    },
    Close,
}

enum Sought {
    Owner(Box<Link>),
    Own(Box<Ownership>, Door),
    Unusable(StoreError),
    Closed,
}

struct Service {
    place: Arc<Place>,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    orders: mpsc::UnboundedReceiver<Order>,
    pending: BTreeMap<u64, Pending>,
    /// Those whose asker has gone while they were on their way to the owner: what they are granted is given back.
    left: HashMap<u64, Box<Question>>,
    /// Leases to give back, once there is somebody to give them to.
    unclaimed: Vec<(Namespace, Unclaimed)>,
    /// Whether the handle has been closed: whatever goes on then comes to an end.
    closed: bool,
}

/// How the engine's thread came to its end.
struct Stopped {
    end: Ended,
    engine: Engine,
    /// The disk failed, by then or as it was closed.
    failure: Option<Failure>,
}

struct Pending {
    question: Box<Question>,
    sent_at_ms: u64,
}

impl Service {
    /// Looks for the owner, taking questions meanwhile.
    async fn seek(&mut self, silent: Option<u64>) -> Sought {
        // The owner that they were sent to has gone, and will answer nothing more.
        self.left.clear();
        let found = find(Arc::clone(&self.place), Arc::clone(&self.clock), Arc::clone(&self.shared), silent);
        tokio::pin!(found);
        let mut beat = beat();
        loop {
            tokio::select! {
                found = &mut found => return found,
                order = self.orders.recv() => if self.take(order).is_none() { return Sought::Closed },
                _ = beat.tick() => self.give_up_overdue(),
            }
        }
    }

    /// Takes an order into the pending ones. `None`: the handle is closed.
    fn take(&mut self, order: Option<Order>) -> Option<Taken> {
        match order.unwrap_or(Order::Close) {
            Order::Ask(id, question) => {
                let sent_at_ms = question.asked_at_ms;
                self.pending.insert(id, Pending { question, sent_at_ms });
                Some(Taken::Asked(id))
            }
            Order::Cancel(id) => Some(match self.pending.remove(&id) {
                Some(pending) => Taken::Left(id, pending.question),
                None => Taken::Nothing,
            }),
            Order::GiveBack(namespace, unclaimed) => {
                self.unclaimed.push((namespace, *unclaimed));
                Some(Taken::Nothing)
            }
            Order::Close => {
                self.closed = true;
                None
            }
        }
    }

    /// Asks the owner until it ends, falls silent, or the handle is closed.
    async fn use_owner(&mut self, mut link: Link) -> Next {
        let pid = link.pid;
        let path = self.place.path().display().to_string();
        self.shared.set_obstacle(format!("pid {pid} owns {path} and does not answer"));
        link.expect_an_answer();
        self.answer_those_that_may_not_be_repeated();
        let ids: Vec<u64> = self.pending.keys().copied().collect();
        let mut sent = ids.into_iter().try_for_each(|id| self.put(&mut link, id));
        let mut beat = beat();
        loop {
            if sent.is_ok() {
                sent = self.give_back(&mut link);
            }
            if sent.is_ok() {
                sent = link.flush().await;
            }
            if let Err(error) = sent {
                let silent = error.kind() == std::io::ErrorKind::TimedOut;
                return Next::Seek { silent: silent.then_some(link.epoch) };
            }
            sent = tokio::select! {
                order = self.orders.recv() => {
                    let mut order = order;
                    loop {
                        let was_idle = self.pending.is_empty();
                        let put = match self.take(order) {
                            Some(Taken::Asked(id)) => {
                                if was_idle {
                                    link.expect_an_answer();
                                }
                                self.put(&mut link, id)
                            }
                            Some(Taken::Left(id, question)) => {
                                self.left.insert(id, question);
                                link.queue(&ToOwner::Cancel { id })
                            }
                            Some(Taken::Nothing) => Ok(()),
                            None => {
                                // What was taken on before the end is still passed on.
                                let _ = self.give_back(&mut link);
                                let _ = link.flush().await;
                                return Next::Close;
                            }
                        };
                        match (put, self.orders.try_recv()) {
                            (Ok(()), Ok(next)) => order = Some(next),
                            (put, _) => break put,
                        }
                    }
                }
                frame = link.next() => match frame {
                    Ok(Some(FromOwner::Answer { id, result })) => {
                        self.hand_over(id, result);
                        Ok(())
                    }
                    Ok(Some(_)) => Ok(()),
                    Ok(None) | Err(_) => return Next::Seek { silent: None },
                },
                _ = beat.tick() => {
                    self.give_up_overdue();
                    if self.pending.is_empty() {
                        Ok(())
                    } else if link.silent_for() > SILENCE {
                        tracing::warn!(pid, place = path, "the owner of this directory has fallen silent");
                        return Next::Seek { silent: Some(link.epoch) };
                    } else {
                        link.queue(&ToOwner::Ping)
                    }
                }
            };
        }
    }

    /// Hands an answer to whoever asked. A lease that finds its asker gone is to be given back.
    fn hand_over(&mut self, id: u64, result: Box<Result<Answer, StoreError>>) {
        let (namespace, ask, result) = match self.pending.remove(&id) {
            Some(Pending { question, sent_at_ms }) => {
                let Question { namespace, ask, reply, uncertain_before, .. } = *question;
                let result = Box::new((*result).map_err(|error| or_unknown(error, &ask, uncertain_before)));
                match reply.send(Told::Answer { result, sent_at_ms }) {
                    Err(Told::Answer { result, .. }) => (namespace, ask, result),
                    _ => return,
                }
            }
            None => match self.left.remove(&id) {
                Some(question) => (question.namespace, question.ask, result),
                None => return,
            },
        };
        if let Some(unclaimed) = Claim::of(&ask).and_then(|claim| claim.unclaimed(*result)) {
            self.unclaimed.push((namespace, unclaimed));
        }
    }

    /// Gives back what nobody is there to take, but for what is being asked for again: that has a new asker. If it does
    /// not arrive, the lease runs out by itself.
    fn give_back(&mut self, link: &mut Link) -> std::io::Result<()> {
        for (namespace, unclaimed) in std::mem::take(&mut self.unclaimed) {
            if self.is_asked_for(&namespace, &unclaimed) {
                continue;
            }
            let ask = Box::new(unclaimed.ask);
            // Nobody waits for its answer, so its number may be anybody's.
            link.queue(&ToOwner::Ask { id: u64::MAX, namespace, ask, patience_ms: 1_000 })?;
        }
        Ok(())
    }

    fn is_asked_for(&self, namespace: &Namespace, unclaimed: &Unclaimed) -> bool {
        self.pending.values().any(|Pending { question, .. }| {
            question.namespace == *namespace
                && Claim::of(&question.ask).is_some_and(|claim| claim.hold == unclaimed.hold)
        })
    }

    /// Puts a pending question into the next sending, aged by the time it has been pending.
    fn put(&mut self, link: &mut Link, id: u64) -> std::io::Result<()> {
        let Some(pending) = self.pending.get_mut(&id) else { return Ok(()) };
        let now_ms = SystemClock.now().store_ms;
        let question = &mut pending.question;
        let again = std::mem::replace(&mut question.uncertain, true);
        question.uncertain_before = again;
        pending.sent_at_ms = now_ms;
        let ask = super::aged(&question.ask, now_ms.saturating_sub(question.asked_at_ms), again);
        let patience_ms = question.give_up_ms.saturating_sub(now_ms);
        let namespace = question.namespace.clone();
        match link.queue(&ToOwner::Ask { id, namespace, ask: Box::new(ask), patience_ms }) {
            // This one can never be asked; the link, and everybody else on it, lives on.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                let bad = BadInput::new("request", format!("cannot be sent: {error}"));
                if let Some(Pending { question, sent_at_ms }) = self.pending.remove(&id) {
                    let result = Box::new(Err(bad.into()));
                    let _ = question.reply.send(Told::Answer { result, sent_at_ms });
                }
                Ok(())
            }
            queued => queued,
        }
    }

    /// Serves the directory until somebody else does, the disk fails, or the handle is closed.
    async fn own(&mut self, ownership: Ownership, mut door: Door) -> Next {
        let Ownership { epoch, engine, keep, lock } = ownership;
        let (ended, mut end) = oneshot::channel::<Stopped>();
        let shared = Arc::clone(&self.shared);
        let started = Writer::start(
            "fencehold-engine",
            Arc::clone(&self.clock),
            engine,
            keep,
            move |end, keep, engine| {
                // Nobody is to ask an engine that has ended, while its database is being closed.
                shared.set_here(None);
                let _ = ended.send(Stopped { end, engine, failure: keep.close() });
            },
        );
        let writer = match started {
            Ok(writer) => writer,
            Err(error) => {
                self.shared.set_obstacle(format!("no thread could be started: {error}"));
                wait(BEAT).await;
                return Next::Seek { silent: None };
            }
        };
        tracing::debug!(epoch, place = %self.place.path().display(), "this process owns the directory");
        self.shared.set_here(Some(writer.handle.clone()));
        door.serve(Offer::Serving { handle: writer.handle.clone(), epoch });
        self.send_all_here();
        let mut beat = beat();
        let stopped = loop {
            tokio::select! {
                () = door.admit() => {}
                order = self.orders.recv() => {
                    if self.take(order).is_none() {
                        break None;
                    }
                    self.send_all_here();
                }
                end = &mut end => break end.ok(),
                // An owner that was superseded while it had nothing to do must find out, for those who stand in its line.
                _ = beat.tick() => writer.handle.ping(Box::new(|| {})),
            }
        };
        self.shared.set_here(None);
        // Waits for the batch under way, which may fail yet.
        drop(writer);
        match stopped.or_else(|| end.try_recv().ok()) {
            Some(Stopped { failure: Some(failure), engine, .. }) => {
                self.after_failure(failure, &engine, &mut door, epoch).await;
            }
            Some(Stopped { end: Err(_), .. }) if !self.closed => {
                tracing::warn!(epoch, "another process took this directory over; asking it from now on");
                return Next::Seek { silent: None };
            }
            Some(_) => {}
            None => tracing::error!(epoch, "the engine's thread panicked; going on from what the disk holds"),
        }
        drop(door);
        self.place.forget(epoch);
        drop(lock);
        if self.closed { Next::Close } else { Next::Seek { silent: None } }
    }

    /// Those who asked elsewhere ask here, if there is an engine here; and what nobody took is given back here.
    fn send_all_here(&mut self) {
        let Some(engine) = self.shared.here() else { return };
        for (namespace, unclaimed) in std::mem::take(&mut self.unclaimed) {
            if !self.is_asked_for(&namespace, &unclaimed) {
                engine.give_back(namespace, unclaimed);
            }
        }
        for (_, pending) in std::mem::take(&mut self.pending) {
            let uncertain = pending.question.uncertain;
            let _ = pending.question.reply.send(Told::AskHere { uncertain });
        }
    }

    /// The disk failed: renewals that were acknowledged may be lost. The next owner has been told by a mark to give every
    /// live lease a full ttl. Where no mark could be made, this process keeps its turn at the disk, so that nobody serves
    /// until the last acknowledged deadline is past; also one that is being closed stays until then.
    async fn after_failure(&mut self, failure: Failure, engine: &Engine, door: &mut Door, epoch: u64) {
        let Failure { why, unnoted } = failure;
        let path = self.place.path().display().to_string();
        tracing::error!(why, place = path, "the disk failed; recovering from what it holds");
        self.shared.set_obstacle(format!("{path}: {why}"));
        let Some(Unnoted { error, turn }) = unnoted else { return };
        let until_ms = engine.latest_deadline_ms();
        let why = format!("{path}: {why}; nor could that be noted ({error})");
        tracing::error!(why, "nobody may serve until every lease that was acknowledged is over");
        door.turn_out();
        door.serve(Offer::Refusing { epoch, why: why.as_str().into() });
        let refusal = StoreError::Unavailable { why };
        let mut beat = beat();
        while self.clock.now().store_ms < until_ms && self.place.mark().is_err() {
            tokio::select! {
                () = door.admit() => {}
                order = self.orders.recv(), if !self.closed => drop(self.take(order)),
                _ = beat.tick() => {}
            }
            self.answer_all(&refusal);
        }
        drop(turn);
    }

    /// The store cannot be used: everybody is told, and the next question makes this process look again.
    async fn refuse_all(&mut self, error: &StoreError) -> Next {
        while self.pending.is_empty() {
            let order = self.orders.recv().await;
            if self.take(order).is_none() {
                return Next::Close;
            }
        }
        self.answer_all(error);
        Next::Seek { silent: None }
    }

    fn answer_all(&mut self, error: &StoreError) {
        for (_, Pending { question, sent_at_ms }) in std::mem::take(&mut self.pending) {
            let result = Box::new(Err(or_unknown(error.clone(), &question.ask, question.uncertain)));
            let _ = question.reply.send(Told::Answer { result, sent_at_ms });
        }
    }

    /// What was sent to an owner that has gone, and could strike somebody else if it were sent again.
    fn answer_those_that_may_not_be_repeated(&mut self) {
        let forceful =
            |pending: &Pending| pending.question.uncertain && !pending.question.ask.may_be_repeated();
        let ids: Vec<u64> = self.pending.iter().filter(|(_, p)| forceful(p)).map(|(id, _)| *id).collect();
        for Pending { question, sent_at_ms } in ids.iter().filter_map(|id| self.pending.remove(id)) {
            let why =
                "the owner of the directory went before it answered; look before you try again".to_owned();
            let result = Box::new(Err(StoreError::Unknown { why }));
            let _ = question.reply.send(Told::Answer { result, sent_at_ms });
        }
    }

    /// Tells those who can wait no longer what stands in the way.
    fn give_up_overdue(&mut self) {
        let now_ms = SystemClock.now().store_ms;
        self.left.retain(|_, question| question.give_up_ms > now_ms);
        let overdue: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.question.give_up_ms <= now_ms)
            .map(|(id, _)| *id)
            .collect();
        for id in overdue {
            let Some(Pending { question, sent_at_ms }) = self.pending.remove(&id) else { continue };
            let error = StoreError::Unavailable { why: self.shared.obstacle() };
            let result = Box::new(Err(or_unknown(error, &question.ask, question.uncertain)));
            let _ = question.reply.send(Told::Answer { result, sent_at_ms });
        }
    }
}

enum Taken {
    Asked(u64),
    /// Its asker has gone.
    Left(u64, Box<Question>),
    Nothing,
}

/// 'Nothing was done' is true of the last sending; of an earlier one nobody knows.
pub(super) fn or_unknown(error: StoreError, ask: &Ask, sent_before: bool) -> StoreError {
    match error {
        StoreError::Unavailable { why } if sent_before && !ask.only_reads() => StoreError::Unknown { why },
        error => error,
    }
}

#[expect(clippy::disallowed_methods, reason = "other processes live in real time")]
fn beat() -> tokio::time::Interval {
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat
}

/// How long an owner that lives may be out of reach.
const SILENCE_MS: u64 = 2_000;

fn now_ms() -> u64 {
    SystemClock.now().store_ms
}

/// Finds whoever serves the directory, or takes it over where nobody does.
async fn find(
    place: Arc<Place>,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    mut silent: Option<u64>,
) -> Sought {
    let path = place.path().display().to_string();
    let mut unreachable: Option<(u64, u64)> = None;
    loop {
        for epoch in place.epochs() {
            if silent == Some(epoch) {
                continue;
            }
            match Link::reach(&place, epoch).await {
                Reached::Linked(link) => return Sought::Owner(link),
                Reached::Nobody => {}
                Reached::Silent => silent = Some(epoch),
                Reached::Refused(why) => return Sought::Unusable(unusable(place.path(), &why)),
            }
        }
        let (listening, mut listener) = oneshot::channel();
        let attempt = tokio::task::spawn_blocking({
            let (place, clock, shared) = (Arc::clone(&place), Arc::clone(&clock), Arc::clone(&shared));
            move || {
                let waits_for = |why: String| {
                    shared.set_obstacle(why);
                    !shared.is_closing()
                };
                takeover::attempt(&place, &*clock, silent, |socket| drop(listening.send(socket)), &waits_for)
            }
        });
        tokio::pin!(attempt);
        let mut door: Option<Door> = None;
        let attempt = loop {
            tokio::select! {
                attempt = &mut attempt => break attempt,
                socket = &mut listener, if door.is_none() => match socket.map(Door::open) {
                    Ok(Ok(opened)) => door = Some(opened),
                    // It ended without a socket, or no one can connect to it: what came of it says why.
                    _ => break attempt.await,
                },
                () = admit(&mut door), if door.is_some() => {}
            }
        };
        // Both may have come at once, and the end been seen first.
        let door = door.or_else(|| listener.try_recv().ok().and_then(|socket| Door::open(socket).ok()));
        match attempt {
            Ok(Attempt::Became(ownership)) => match door {
                Some(door) => return Sought::Own(ownership, door),
                None => shared.set_obstacle(format!("{path}: its socket cannot be listened on")),
            },
            Ok(Attempt::OwnerLives(epoch)) => {
                // It lives, and its socket is gone or nobody listens: that is silence too.
                let since = unreachable
                    .filter(|(which, _)| *which == epoch)
                    .map_or_else(now_ms, |(_, since)| since);
                unreachable = Some((epoch, since));
                if now_ms().saturating_sub(since) > SILENCE_MS {
                    silent = Some(epoch);
                }
            }
            Ok(Attempt::Blocked(why)) => {
                shared.set_obstacle(why);
                // It may be on its way again by now.
                silent = None;
            }
            Ok(Attempt::Unusable(error @ StoreError::Unusable { .. })) => return Sought::Unusable(error),
            Ok(Attempt::Unusable(error)) => shared.set_obstacle(error.to_string()),
            Err(panic) => shared.set_obstacle(format!("{path}: taking over failed: {panic}")),
        }
        wait(BEAT / 20).await;
    }
}

async fn admit(door: &mut Option<Door>) {
    if let Some(door) = door {
        door.admit().await;
    }
}
