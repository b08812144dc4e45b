//! The way to ask a running engine, and the answer to come.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fencehold_contract::StoreError;
use fencehold_contract::operation::{CallHold, StoreRequest, StoreResponse, UndeliveredGrant};
use fencehold_core::{HoldHash, Namespace};

use super::inbox::Inbox;
use super::response::{PendingResponse, response_channel};
use super::waiters::Ticket;

/// Takes an answer to the caller. False: it is gone.
pub type ReplyFn = Box<dyn FnOnce(Result<StoreResponse, StoreError>) -> bool + Send>;

/// No call has this ticket.
const NO_TICKET: Ticket = 0;

/// Called when the engine has come to a ping, and still is the one that serves.
pub(crate) type PingReply = Box<dyn FnOnce() + Send>;

pub(super) enum Message {
    /// A request, and where its answer goes.
    Ask { ticket: Ticket, namespace: Namespace, request: Box<StoreRequest>, caller: WaitingCaller },
    /// The caller of this request has gone.
    Cancel(Ticket),
    /// Whether the engine still runs.
    Ping(PingReply),
    /// The clock was moved by hand.
    Nudge,
    /// The thread is to end.
    Stop,
}

/// A caller that waits for an answer.
pub(super) struct WaitingCaller {
    pub(super) reply: ReplyFn,
    /// Whether a lease that it is granted is its own also where it was granted before.
    pub(super) own: bool,
    /// How long it retries while the store is blocked, on the machine's own boot-time clock.
    pub(super) give_up_ms: u64,
    /// It only gives back what this call was granted under this hold, unless another call got that since.
    pub(super) gives_back: Option<(Ticket, HoldHash)>,
}

/// The way to ask a running engine.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

struct Shared {
    inbox: Inbox<Message>,
    next_ticket: AtomicU64,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").finish_non_exhaustive()
    }
}

/// The other end, which takes the messages. Once it is dropped, nothing can be asked.
pub(super) struct MessageReceiver(Arc<Shared>);

impl Drop for MessageReceiver {
    fn drop(&mut self) {
        self.0.inbox.close();
    }
}

impl MessageReceiver {
    pub(super) fn inbox(&self) -> &Inbox<Message> {
        &self.0.inbox
    }
}

impl Handle {
    /// Both ends of a way to ask.
    pub(super) fn new() -> (Handle, MessageReceiver) {
        let shared = Arc::new(Shared { inbox: Inbox::new(), next_ticket: AtomicU64::new(1) });
        (Handle(Arc::clone(&shared)), MessageReceiver(shared))
    }

    /// What reminds the engine that its clock was moved, as long as anybody can ask it.
    pub(super) fn nudge(&self) -> impl Fn() + Send + Sync + use<> {
        let shared = Arc::downgrade(&self.0);
        move || {
            if let Some(shared) = shared.upgrade() {
                shared.inbox.leave(Message::Nudge);
            }
        }
    }

    /// Ends the engine's thread.
    pub(super) fn stop(&self) {
        self.0.inbox.leave(Message::Stop);
    }

    /// Sends a request; its answer goes to `reply`. `None`: the engine has stopped.
    pub fn send(
        &self,
        namespace: Namespace,
        request: StoreRequest,
        give_up_ms: u64,
        reply: ReplyFn,
    ) -> Option<Ticket> {
        self.post(namespace, request, WaitingCaller { reply, own: false, give_up_ms, gives_back: None })
    }

    fn post(&self, namespace: Namespace, request: StoreRequest, caller: WaitingCaller) -> Option<Ticket> {
        let ticket = self.0.next_ticket.fetch_add(1, Ordering::Relaxed);
        let message = Message::Ask { ticket, namespace, request: Box::new(request), caller };
        self.0.inbox.leave(message).then_some(ticket)
    }

    /// The caller of this request has gone.
    pub fn cancel(&self, ticket: Ticket) {
        self.0.inbox.leave(Message::Cancel(ticket));
    }

    /// Has the engine's thread call back when it comes to it.
    pub fn ping(&self, pong: PingReply) {
        self.0.inbox.leave(Message::Ping(pong));
    }

    /// Gives back a grant whose caller has gone.
    pub fn give_back(&self, namespace: Namespace, unclaimed: UndeliveredGrant) {
        if unclaimed.fresh {
            return self.give_back_of(NO_TICKET, namespace, unclaimed);
        }
        self.send(namespace, unclaimed.ask, u64::MAX, Box::new(|_| true));
    }

    /// Gives back what the call with this ticket was granted and is not there to take.
    fn give_back_of(&self, ticket: Ticket, namespace: Namespace, unclaimed: UndeliveredGrant) {
        let gives_back = Some((ticket, unclaimed.hold.hash()));
        let caller =
            WaitingCaller { reply: Box::new(|_| true), own: false, give_up_ms: u64::MAX, gives_back };
        self.post(namespace, unclaimed.ask, caller);
    }

    /// Asks, and gives a future of the answer. `None`: the engine stopped before it answered. Dropping it leaves the line, and gives
    /// back a lease that was granted but never taken.
    pub fn ask(
        &self,
        namespace: Namespace,
        request: StoreRequest,
        claim: Option<CallHold>,
        give_up_ms: u64,
    ) -> impl Future<Output = Option<Result<StoreResponse, StoreError>>> + Send + Unpin + use<> {
        let (sender, receiver) = response_channel();
        let reply: ReplyFn = Box::new(move |result| sender.send(result).is_ok());
        let own = claim.is_some_and(|claim| claim.own);
        let caller = WaitingCaller { reply, own, give_up_ms, gives_back: None };
        let ticket = self.post(namespace.clone(), request, caller);
        let handle = self.clone();
        PendingResponse::new(receiver, move |response| {
            let Some(ticket) = ticket else { return };
            let Some(response) = response else { return handle.cancel(ticket) };
            if let Some(unclaimed) = claim.and_then(|claim| claim.unclaimed(response)) {
                handle.give_back_of(ticket, namespace, unclaimed);
            }
        })
    }
}
