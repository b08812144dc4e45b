//! Those of this handle who stand in line: once in a while they say together that they are still there, and learn who should look.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use fencehold_net::sleep;
use tokio::sync::Notify;

use crate::PostgresInner;
use crate::pool::PoolLane;
use crate::value::Uuid128;

/// How often. A process whose places have not been kept up for ten times as long is passed over.
const BEAT: Duration = Duration::from_millis(500);
const TIMEOUT_MS: u64 = 2_000;

/// The places in line of this handle's claims, by sending. A place is kept up until it is dropped.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    places: RefCell<HashMap<Uuid128, Weak<Notify>>>,
}

impl WaitQueue {
    /// Takes a place: it is notified when there may be something for it, or when its time may be up.
    pub(super) fn stand(&self, sending: Uuid128) -> Rc<Notify> {
        let notify = Rc::new(Notify::new());
        self.places.borrow_mut().insert(sending, Rc::downgrade(&notify));
        notify
    }

    fn sendings(&self) -> Vec<Uuid128> {
        let mut places = self.places.borrow_mut();
        places.retain(|_, notify| notify.strong_count() > 0);
        places.keys().copied().collect()
    }

    fn wake(&self, sending: Uuid128) {
        if let Some(notify) = self.places.borrow().get(&sending).and_then(Weak::upgrade) {
            notify.notify_one();
        }
    }
}

/// Keeps up the places of a handle, for as long as it lives.
pub(super) async fn keep_up(core: Weak<PostgresInner>) {
    loop {
        sleep(BEAT).await;
        let Some(core) = core.upgrade() else { return };
        let sendings = core.jobs.line.sendings();
        if sendings.is_empty() {
            continue;
        }
        let mut call = core.own_call(TIMEOUT_MS);
        call.lane = PoolLane::Renewals;
        let sql = "SELECT * FROM fencehold.job_line_beat($1)";
        match call.rows::<(Uuid128,)>(sql, &[&sendings]).await {
            Ok(sendings) => sendings.into_iter().for_each(|(sending,)| core.jobs.line.wake(sending)),
            Err(why) => tracing::debug!(%why, "places in line could not be kept up; trying again"),
        }
    }
}
