//! What the lease protects: something that is completed under a token. With a fence it remembers the largest token that
//! it was shown and refuses smaller ones, and the same completion again gets the same answer. Without one it does as it
//! learns.

use std::sync::{Mutex, PoisonError};

/// What was put where the lease leads.
#[derive(Default)]
pub(crate) struct FencedResource {
    standing: Mutex<ResourceState>,
}

#[derive(Clone, Default)]
pub(crate) struct ResourceState {
    /// The largest token that was shown. Only a fence looks at it.
    pub(crate) newest: u64,
    /// The result that stands, under its token.
    pub(crate) result: Option<(u64, String)>,
    /// How often something was carried out.
    pub(crate) effects: usize,
}

impl FencedResource {
    /// Check and write are one step: the fence's whole point. An error is the larger token that was shown already.
    pub(crate) fn put_fenced(&self, token: u64, result: &str) -> Result<(), u64> {
        let mut standing = self.lock();
        if token < standing.newest {
            return Err(standing.newest);
        }
        standing.newest = token;
        if standing.result.as_ref().is_none_or(|(by, _)| *by != token) {
            standing.result = Some((token, result.to_owned()));
            standing.effects += 1;
        }
        Ok(())
    }

    /// Raises the fence without writing anything.
    pub(crate) fn raise(&self, token: u64) {
        let mut standing = self.lock();
        standing.newest = standing.newest.max(token);
    }

    pub(crate) fn put_unfenced(&self, token: u64, result: &str) {
        let mut standing = self.lock();
        standing.result = Some((token, result.to_owned()));
        standing.effects += 1;
    }

    pub(crate) fn look(&self) -> ResourceState {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ResourceState> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What effects reach: a till that is paid. A payment under a key that it knows has paid already.
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
