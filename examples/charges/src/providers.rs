//! Stand for a payment provider and a mail service of others, which recognise a repetition by its key.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// What they were asked to do, by key.
#[derive(Default)]
pub struct Providers {
    charges: Mutex<BTreeMap<String, u64>>,
    mails: Mutex<BTreeMap<String, String>>,
}

/// Why there is no receipt.
#[derive(Debug)]
pub enum PaymentError {
    Declined,
    Store(fencehold::Error),
}

impl Providers {
    pub fn charge(&self, key: &str, cents: u64) -> Result<String, PaymentError> {
        if cents == 0 {
            return Err(PaymentError::Declined);
        }
        let mut charges = self.charges.lock().unwrap_or_else(PoisonError::into_inner);
        charges.insert(key.to_owned(), cents);
        Ok(format!("receipt for {cents} cents"))
    }

    pub fn mail(&self, key: &str, to: &str, text: &str) {
        let mut mails = self.mails.lock().unwrap_or_else(PoisonError::into_inner);
        mails.insert(key.to_owned(), format!("{to}: {text}"));
    }

    #[cfg(test)]
    pub fn charges(&self) -> Vec<u64> {
        self.charges.lock().unwrap().values().copied().collect()
    }

    #[cfg(test)]
    pub fn mails(&self) -> Vec<String> {
        self.mails.lock().unwrap().values().cloned().collect()
    }
}

impl<E: Into<fencehold::Error>> From<E> for PaymentError {
    fn from(error: E) -> Self {
        PaymentError::Store(error.into())
    }
}

impl fmt::Display for PaymentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PaymentError::Declined => f.write_str("the payment was declined"),
            PaymentError::Store(error) => error.fmt(f),
        }
    }
}
