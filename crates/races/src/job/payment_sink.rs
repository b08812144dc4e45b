//! What effects reach: a till that is paid. A payment under a key that it knows has paid already.

use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub(crate) struct PaymentSink {
    payments: Mutex<Vec<Option<String>>>,
}

impl PaymentSink {
    /// True: paid now. False: it was paid before under the same key.
    pub(crate) fn pay(&self, key: Option<String>) -> bool {
        let mut payments = self.payments.lock().unwrap_or_else(PoisonError::into_inner);
        if key.is_some() && payments.contains(&key) {
            return false;
        }
        payments.push(key);
        true
    }

    pub(crate) fn times_paid(&self) -> usize {
        self.payments.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
