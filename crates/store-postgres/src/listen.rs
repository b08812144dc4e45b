//! The one connection that listens: a waiter is woken when what it waits for has happened, and a holder learns that another
//! caller acted on its hold.
//!
//! Nouns: a *topic* is the text of a notification; an *ear* hears of one topic. What is missed, because the connection
//! broke or a pooler stands in the way, costs time and nothing else: waiters also look now and then.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::hold_changes::HoldChanges;
use fencehold_core::{Key, Namespace};
use fencehold_net::sleep;
use tokio::sync::Notify;
use tokio_postgres::AsyncMessage;

use super::fault::StatementError;
use super::pool::Pool;

/// Before a broken connection is made anew.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// What wakes everybody, whatever they wait for.
const EVERYBODY: &str = "*";

/// What the topic of a change of a hold begins with (`note` in `schema/events.sql`). The namespace and the key follow, each after
/// a line break: no name has one.
const HOLD_CHANGED: &str = "hold";

/// Whether notifications arrive.
#[derive(Debug, Default, PartialEq, Eq)]
enum Arrival {
    /// There is no connection that listens.
    #[default]
    Deaf,
    Untried,
    /// This one was sent.
    Probed(String),
    Known,
}

/// Who listens for what.
pub(super) struct Listener {
    ears: RefCell<HashMap<String, Vec<Weak<Notify>>>>,
    started: Cell<bool>,
    /// Whether notifications are known to arrive.
    arrival: RefCell<Arrival>,
    hold_changes: Arc<HoldChanges>,
}

impl Listener {
    pub(super) fn new(hold_changes: Arc<HoldChanges>) -> Self {
        Listener {
            ears: RefCell::default(),
            started: Cell::new(false),
            arrival: RefCell::default(),
            hold_changes,
        }
    }

    /// Whether notifications arrive: behind a pooler that lends connections by the transaction, none does.
    pub(super) fn hears(&self) -> bool {
        *self.arrival.borrow() == Arrival::Known
    }

    /// The notification that the handle with this number is to send, once for each listening connection: it shows whether any arrives.
    pub(super) fn take_probe(&self, handle: i64) -> Option<String> {
        let mut arrival = self.arrival.borrow_mut();
        (*arrival == Arrival::Untried).then(|| {
            let probe = format!("probe/{handle}");
            *arrival = Arrival::Probed(probe.clone());
            probe
        })
    }

    /// Makes the connection, unless it is there.
    pub(super) fn start(self: &Rc<Self>, pool: &Rc<Pool>) {
        if !self.started.replace(true) {
            let (listener, pool) = (Rc::downgrade(self), Rc::clone(pool));
            tokio::task::spawn_local(async move {
                while let Some(listener) = listener.upgrade() {
                    let heard = listener.hear(&pool).await;
                    listener.arrival.replace(Arrival::Deaf);
                    if let Err(why) = heard {
                        tracing::debug!(?why, "the listening connection broke; it is made anew");
                    }
                    // What happened meanwhile was not heard.
                    listener.wake(EVERYBODY);
                    drop(listener);
                    sleep(AGAIN_AFTER).await;
                }
            });
        }
    }

    /// From now on, remembers that this topic was heard of. The connection is made with the first ear.
    pub(super) fn listen(self: &Rc<Self>, pool: &Rc<Pool>, topic: &str) -> TopicListener {
        self.start(pool);
        let notify = Rc::new(Notify::new());
        self.ears
            .borrow_mut()
            .entry(topic.to_owned())
            .or_default()
            .push(Rc::downgrade(&notify));
        TopicListener { notify, topic: topic.to_owned(), listener: Rc::downgrade(self) }
    }

    /// Hears until the connection breaks.
    async fn hear(self: &Rc<Self>, pool: &Pool) -> Result<(), StatementError> {
        let (client, mut connection) = pool.connect().await?;
        let schema = &pool.target.schema;
        let listen = format!("LISTEN {}", pool.target.channel());
        let mut listening = Box::pin(client.batch_execute(&listen));
        let mut ready = false;
        loop {
            tokio::select! {
                said = &mut listening, if !ready => {
                    said.map_err(|error| StatementError::of_connecting(&error, schema))?;
                    ready = true;
                    self.arrival.replace(Arrival::Untried);
                    // What happened before it was listened for.
                    self.wake(EVERYBODY);
                    self.hold_changes.tell_missed();
                }
                message = poll_fn(|context| connection.poll_message(context)) => match message {
                    Some(Ok(AsyncMessage::Notification(said))) => match changed_hold(said.payload()) {
                        Some((namespace, key)) => self.hold_changes.tell(std::iter::once((&namespace, &key))),
                        None => self.wake(said.payload()),
                    },
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(StatementError::of_connecting(&error, schema)),
                    None => return Err(StatementError::Unreached("the server closed the connection".to_owned())),
                }
            }
        }
    }

    fn wake(&self, topic: &str) {
        if matches!(&*self.arrival.borrow(), Arrival::Probed(probe) if probe == topic) {
            self.arrival.replace(Arrival::Known);
            return;
        }
        let ears = self.ears.borrow();
        let meant = |(name, _): &(&String, &Vec<Weak<Notify>>)| topic == EVERYBODY || *name == topic;
        for (_, ears) in ears.iter().filter(meant) {
            for listener in ears.iter().filter_map(Weak::upgrade) {
                listener.notify_one();
            }
        }
    }
}

fn changed_hold(topic: &str) -> Option<(Namespace, Key)> {
    let (namespace, key) = topic.strip_prefix(HOLD_CHANGED)?.strip_prefix('\n')?.split_once('\n')?;
    Some((Namespace::new(namespace).ok()?, Key::new(key).ok()?))
}

/// Hears of one topic.
pub(super) struct TopicListener {
    notify: Rc<Notify>,
    topic: String,
    listener: Weak<Listener>,
}

impl TopicListener {
    /// Returns when the topic was heard of since the last call, or when something may have been missed.
    pub(super) async fn heard(&self) {
        self.notify.notified().await;
    }
}

impl Drop for TopicListener {
    fn drop(&mut self) {
        let Some(listener) = self.listener.upgrade() else { return };
        let mut ears = listener.ears.borrow_mut();
        if let Some(others) = ears.get_mut(&self.topic) {
            others.retain(|other| !std::ptr::eq(other.as_ptr(), Rc::as_ptr(&self.notify)));
            if others.is_empty() {
                ears.remove(&self.topic);
            }
        }
    }
}
