//! Those of this handle who stand in line. Once in a while the handle says together that they are still there, and learns who should look:
//! see `maintenance`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use tokio::sync::Notify;

use crate::value::Uuid128;

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

    pub(super) fn sendings(&self) -> Vec<Uuid128> {
        let mut places = self.places.borrow_mut();
        places.retain(|_, notify| notify.strong_count() > 0);
        places.keys().copied().collect()
    }

    pub(super) fn wake(&self, sending: Uuid128) {
        if let Some(notify) = self.places.borrow().get(&sending).and_then(Weak::upgrade) {
            notify.notify_one();
        }
    }
}
