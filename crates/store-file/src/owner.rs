//! The owner's side of the socket: every process of the machine that uses this directory talks to it here.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencehold_contract::clock::{Clock, SystemClock};
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::operation::StoreRequest;
use fencehold_contract::{HoldChange, StoreError};
use fencehold_core::Namespace;
use fencehold_engine::{Handle, ReplyFn};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::frame::{self, Frames, FromOwner, PROTOCOL, ToOwner};
use super::owner_connection::{BEAT, SILENCE, wait};
use super::permissions::{SharedGroup, distrusted};
use super::schema::SCHEMA_VERSION;

/// What the owner does for those who connect.
#[derive(Clone)]
pub(super) enum OwnerState {
    /// It has taken over and is not ready.
    Starting,
    /// It serves.
    Serving { handle: Handle, epoch: u64, hold_changes: Arc<HoldChanges> },
    /// The disk failed, and no process may serve yet.
    Refusing { epoch: u64, why: Arc<str> },
}

impl OwnerState {
    /// The engine, while it serves.
    fn handle(&self) -> Option<&Handle> {
        if let OwnerState::Serving { handle, .. } = self { Some(handle) } else { None }
    }
}

/// Accepts connections until it is dropped, and with it every connection.
pub(super) struct SocketServer {
    connections: JoinSet<()>,
    listener: UnixListener,
    offer: watch::Sender<OwnerState>,
    /// The group that shares the directory.
    group: Option<SharedGroup>,
}

impl SocketServer {
    /// A door that tells everybody to wait.
    pub(super) fn open(
        listener: std::os::unix::net::UnixListener,
        group: Option<&SharedGroup>,
    ) -> io::Result<SocketServer> {
        let listener = UnixListener::from_std(listener)?;
        Ok(SocketServer {
            connections: JoinSet::new(),
            listener,
            offer: watch::Sender::new(OwnerState::Starting),
            group: group.cloned(),
        })
    }

    pub(super) fn serve(&self, offer: OwnerState) {
        self.offer.send_replace(offer);
    }

    /// Ends every connection; new ones may come.
    pub(super) fn turn_out(&mut self) {
        self.connections.abort_all();
    }

    /// Lets one more in. Cancelling it loses nothing.
    pub(super) async fn admit(&mut self) {
        match self.listener.accept().await {
            Ok((stream, _)) => {
                let (offer, group) = (self.offer.subscribe(), self.group.clone());
                self.connections.spawn(async move {
                    if let Err(error) = attend(stream, offer, group.as_ref()).await {
                        tracing::debug!(%error, "a connection ended");
                    }
                });
                while self.connections.try_join_next().is_some() {}
            }
            Err(error) => {
                tracing::warn!(%error, "no further process can connect at the moment");
                // Descriptors ran out, as a rule: only real time can bring some back.
                wait(BEAT).await;
            }
        }
    }
}

/// One connection, from hello to goodbye.
async fn attend(
    stream: UnixStream,
    mut offer: watch::Receiver<OwnerState>,
    group: Option<&SharedGroup>,
) -> io::Result<()> {
    let distrusted = distrusted(&stream, group)?;
    let (read, mut write) = stream.into_split();
    if let Some(user) = distrusted {
        tracing::warn!(user, "another user tried to use this store");
        let why = match group {
            None => format!("it is another user's, and this process runs as user {user}"),
            Some(group) => format!("it is shared with group {group}, and user {user} is not in that"),
        };
        return write.write_all(&frame::bytes_of(&FromOwner::Refuse { why })?).await;
    }
    let mut frames = Frames::new(read);
    // A caller that connects and says nothing is not waited for.
    let hello = tokio::time::timeout(SILENCE, frames.next())
        .await
        .map_err(|_| io::ErrorKind::TimedOut)??;
    let Some(ToOwner::Hello { protocol, schema, pid }) = hello else { return Ok(()) };
    if (protocol, schema) != (PROTOCOL, SCHEMA_VERSION) {
        let why = format!(
            "pid {} serves it with protocol {PROTOCOL} and schema {SCHEMA_VERSION}, and this process speaks protocol \
             {protocol} and schema {schema}: use the same version of fencehold in both",
            std::process::id()
        );
        return write.write_all(&frame::bytes_of(&FromOwner::Refuse { why })?).await;
    }
    let offer = ready(&mut offer, &mut write).await?;
    tracing::debug!(pid, "a process connected");
    let epoch = match &offer {
        OwnerState::Serving { epoch, .. } | OwnerState::Refusing { epoch, .. } => *epoch,
        OwnerState::Starting => return Ok(()),
    };
    let welcome = FromOwner::Welcome { protocol: PROTOCOL, pid: std::process::id(), epoch };
    write.write_all(&frame::bytes_of(&welcome)?).await?;
    let (answers, outbox) = mpsc::unbounded_channel();
    let tickets = Tickets::default();
    let _subscription = match &offer {
        OwnerState::Serving { hold_changes, .. } => {
            let answers = answers.clone();
            Some(hold_changes.subscribe(Arc::new(move |change| {
                // An engine in this process misses nothing.
                if let HoldChange::Of(namespace, key) = change {
                    let (namespace, key) = (namespace.clone(), key.clone());
                    drop(answers.send(FromOwner::HoldChanged { namespace, key }));
                }
            })))
        }
        _ => None,
    };
    let mut connection = Connection { offer, answers, tickets: Arc::clone(&tickets) };
    let ended = tokio::select! {
        ended = connection.take_in(&mut frames) => ended,
        ended = send_out(outbox, write, &tickets) => ended,
    };
    connection.leave();
    ended
}

/// Tells an early visitor to wait, again and again, until the owner is ready.
async fn ready(
    offer: &mut watch::Receiver<OwnerState>,
    write: &mut OwnedWriteHalf,
) -> io::Result<OwnerState> {
    loop {
        let current = offer.borrow_and_update().clone();
        if !matches!(current, OwnerState::Starting) {
            return Ok(current);
        }
        write.write_all(&frame::bytes_of(&FromOwner::Starting)?).await?;
        let changed = tokio::time::timeout(BEAT, offer.changed()).await;
        if matches!(changed, Ok(Err(_))) {
            return Ok(OwnerState::Starting);
        }
    }
}

/// Forgotten when the answer goes out, or the visitor.
type Tickets = Arc<Mutex<HashMap<u64, u64>>>;

fn locked(tickets: &Tickets) -> MutexGuard<'_, HashMap<u64, u64>> {
    tickets.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One visitor's open requests.
struct Connection {
    offer: OwnerState,
    answers: mpsc::UnboundedSender<FromOwner>,
    /// Its number for a request that waits, and ours.
    tickets: Tickets,
}

impl Connection {
    async fn take_in(&mut self, frames: &mut Frames<OwnedReadHalf>) -> io::Result<()> {
        while let Some(frame) = frames.next().await? {
            match frame {
                ToOwner::Ask { id, namespace, ask, timeout_ms } => {
                    let reply: ReplyFn = {
                        let answers = self.answers.clone();
                        Box::new(move |result| {
                            answers.send(FromOwner::Answer { id, result: Box::new(result) }).is_ok()
                        })
                    };
                    self.ask(id, namespace, *ask, timeout_ms, reply);
                }
                ToOwner::Cancel { id } => {
                    let ticket = locked(&self.tickets).remove(&id);
                    if let (Some(ticket), Some(handle)) = (ticket, self.offer.handle()) {
                        handle.cancel(ticket);
                    }
                }
                ToOwner::Ping => self.ping(),
                ToOwner::GiveBack { namespace, unclaimed } => {
                    if let Some(handle) = self.offer.handle() {
                        handle.give_back(namespace, *unclaimed);
                    }
                }
                ToOwner::Hello { .. } => return Ok(()),
            }
        }
        Ok(())
    }

    fn ask(&mut self, id: u64, namespace: Namespace, ask: StoreRequest, timeout_ms: u64, reply: ReplyFn) {
        match &self.offer {
            OwnerState::Serving { handle, .. } => {
                let waits = ask.wait_ms() > 0;
                let give_up_ms = SystemClock.now().store_ms.saturating_add(timeout_ms);
                let ticket = handle.send(namespace, ask, give_up_ms, reply);
                // Only what waits can be left.
                if let Some(ticket) = ticket.filter(|_| waits) {
                    locked(&self.tickets).insert(id, ticket);
                }
            }
            OwnerState::Refusing { why, .. } => {
                reply(Err(StoreError::Unavailable { message: why.to_string() }));
            }
            OwnerState::Starting => {}
        }
    }

    /// The answer to a ping comes from the engine: a thread that accepts frames while the engine hangs is not alive.
    fn ping(&self) {
        let answers = self.answers.clone();
        let pong = move || drop(answers.send(FromOwner::Pong));
        match self.offer.handle() {
            Some(handle) => handle.ping(Box::new(pong)),
            None => pong(),
        }
    }

    /// The visitor has gone: nothing of it stands in line any more.
    fn leave(&mut self) {
        if let Some(handle) = self.offer.handle() {
            locked(&self.tickets).drain().for_each(|(_, ticket)| handle.cancel(ticket));
        }
    }
}

/// Writes answers as they come, many at a time.
async fn send_out(
    mut outbox: mpsc::UnboundedReceiver<FromOwner>,
    mut write: OwnedWriteHalf,
    tickets: &Tickets,
) -> io::Result<()> {
    let mut ready = Vec::with_capacity(256);
    let mut buffer = Vec::with_capacity(64 << 10);
    while outbox.recv_many(&mut ready, 256).await > 0 {
        for frame in ready.drain(..) {
            if let FromOwner::Answer { id, .. } = &frame {
                locked(tickets).remove(id);
            }
            put_or_say_so(&frame, &mut buffer)?;
        }
        write.write_all(&buffer).await?;
        buffer.clear();
    }
    Ok(())
}

/// An answer that cannot be sent is replaced by an error that says so: the connection, with all other answers on it,
/// stays.
fn put_or_say_so(frame: &FromOwner, buffer: &mut Vec<u8>) -> io::Result<()> {
    match (frame::put_answer(frame, buffer), frame) {
        (Err(error), FromOwner::Answer { id, .. }) if error.kind() == io::ErrorKind::InvalidData => {
            let why = format!("the answer cannot be sent: {error}");
            let result = Box::new(Err(StoreError::OutcomeUnknown { message: why }));
            frame::put(&FromOwner::Answer { id: *id, result }, buffer)
        }
        (put, _) => put,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_too_long_is_answered_all_the_same() {
        let too_long = Err(StoreError::Unavailable { message: "x".repeat(100 << 20) });
        let mut buffer = Vec::new();
        put_or_say_so(&FromOwner::Answer { id: 7, result: Box::new(too_long) }, &mut buffer).unwrap();
        let Ok(FromOwner::Answer { id: 7, result }) = postcard::from_bytes(&buffer[4..]) else {
            panic!("not an answer to the same question: {buffer:?}");
        };
        let Err(StoreError::OutcomeUnknown { message: why }) = *result else { panic!("{result:?}") };
        assert!(why.contains("cannot be sent: it has 104857"), "{why}");
    }
}
