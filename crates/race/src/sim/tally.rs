//! How often each thing happened: a fault that never occurred proves nothing.

use std::collections::BTreeMap;
use std::fmt;

use fencehold_store::StoreError;
use fencehold_store::sim::{Question, Reply};

/// How often each thing happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) operations: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn answer(&mut self, question: &Question, answer: &Result<Reply, StoreError>) {
        let what = match (question, answer) {
            (Question::Acquire(_), Ok(Reply::Acquired(acquired))) if acquired.grant.resumed => {
                "acquire: resumed"
            }
            (Question::Acquire(request), Ok(_)) if request.wait_ms > 0 => "acquire: granted in line",
            (Question::Acquire(_), Ok(_)) => "acquire: granted",
            (Question::Acquire(_), Err(_)) => "acquire: refused",
            (Question::Renew(_), Ok(Reply::Renewed(renewed)))
                if renewed.answers.iter().all(Result::is_ok) =>
            {
                "renew: done"
            }
            (Question::Renew(_), _) => "renew: refused",
            (Question::Release(_), Ok(Reply::Released(answers))) if answers.iter().all(Result::is_ok) => {
                "release: done"
            }
            (Question::Release(_), _) => "release: refused",
            (Question::Revoke(_), Ok(_)) => "revoke: done",
            (Question::Revoke(_), Err(_)) => "revoke: nobody there",
            (Question::Get(_), _) => "look",
            _ => "other",
        };
        self.count(what);
    }

    pub(super) fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    pub(super) fn has(&self, what: &str) -> bool {
        self.counts.get(what).is_some_and(|count| *count > 0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.counts {
            writeln!(f, "  {count:>10}  {what}")?;
        }
        Ok(())
    }
}

/// An answer in a few words.
pub(super) fn says(answer: &Result<Reply, StoreError>) -> String {
    match answer {
        Ok(Reply::Acquired(acquired)) => {
            let again = if acquired.grant.resumed { ", as before" } else { "" };
            format!("{} is yours under token {}{again}", acquired.key, acquired.grant.token)
        }
        Ok(Reply::Renewed(renewed)) => match renewed.answers.first() {
            Some(Ok(renewal)) => format!("token {} is renewed", renewal.token),
            Some(Err(refusal)) => refusal.to_string(),
            None => "nothing".to_owned(),
        },
        Ok(Reply::Released(answers)) => match answers.first() {
            Some(Ok(token)) => format!("token {token} is given back"),
            Some(Err(refusal)) => refusal.to_string(),
            None => "nothing".to_owned(),
        },
        Ok(Reply::Revoked(revoked)) => format!("{} was revoked", revoked.len()),
        Ok(Reply::Lease(view)) => match view.as_ref().and_then(|view| view.holder.as_ref()) {
            Some(holder) => format!("held by {}", holder.owner),
            None => "free".to_owned(),
        },
        Ok(_) => "done".to_owned(),
        Err(error) => error.to_string(),
    }
}
