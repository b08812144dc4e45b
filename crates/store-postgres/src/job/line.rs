//! Those of this handle who stand in line: once in a while they say together that they are still there, and learn who should look.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use fencehold_net::sleep;
use tokio::sync::Notify;
use tokio_postgres::types::Type;

use super::value::Bits;
use crate::pool::Lane;
use crate::{Core, Repeat};

/// How often. A process whose places have not been kept up for ten times as long is passed over.
const BEAT: Duration = Duration::from_millis(500);
const PATIENCE_MS: u64 = 2_000;

/// Everybody of this handle who stands in line, by sending.
#[derive(Debug, Default)]
pub(super) struct Line {
    places: Rc<RefCell<HashMap<Bits, Rc<Notify>>>>,
}

impl Line {
    pub(super) fn stand(&self, sending: Bits) -> Place {
        let notify = Rc::new(Notify::new());
        self.places.borrow_mut().insert(sending, Rc::clone(&notify));
        Place { notify, sending, places: Rc::downgrade(&self.places) }
    }

    fn sendings(&self) -> Vec<Bits> {
        self.places.borrow().keys().copied().collect()
    }

    fn wake(&self, sending: Bits) {
        if let Some(notify) = self.places.borrow().get(&sending) {
            notify.notify_one();
        }
    }
}

/// A place in line. It is kept up until it is dropped.
pub(super) struct Place {
    notify: Rc<Notify>,
    sending: Bits,
    places: Weak<RefCell<HashMap<Bits, Rc<Notify>>>>,
}

impl Place {
    /// Returns when there may be something, or when its time may be up.
    pub(super) async fn beaten(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(places) = self.places.upgrade() {
            places.borrow_mut().remove(&self.sending);
        }
    }
}

/// Keeps up the places of a handle, for as long as it lives.
pub(super) async fn keep_up(core: Weak<Core>) {
    loop {
        sleep(BEAT).await;
        let Some(core) = core.upgrade() else { return };
        let sendings = core.jobs.line.sendings();
        if sendings.is_empty() {
            continue;
        }
        let mut budget = core.budget(PATIENCE_MS, 0);
        budget.lane = Lane::Renewals;
        let beaten = core
            .run(&mut budget, Repeat::Safe, async |client| {
                let sql = core.sql("SELECT * FROM fencehold.job_line_beat($1)");
                let rows = client.query_typed(&sql, &[(&sendings, Type::UUID_ARRAY)]).await?;
                Ok(rows.iter().map(|row| row.get(0)).collect::<Vec<Bits>>())
            })
            .await;
        match beaten {
            Ok(sendings) => sendings.into_iter().for_each(|sending| core.jobs.line.wake(sending)),
            Err(why) => tracing::debug!(%why, "places in line could not be kept up; trying again"),
        }
    }
}
