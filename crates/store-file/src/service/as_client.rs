//! Asking the owner: sending what is pending, handing over its answers, and noticing when it goes.

use fencehold_contract::clock::{Clock, SystemClock};
use fencehold_contract::operation::{StoreRequest, StoreResponse};
use fencehold_contract::{KeepFinished, StoreError};
use fencehold_core::{BadInput, Namespace};

use super::pending_requests::{Delivery, PendingRequest, or_unknown};
use super::{NextRole, Service, TakenOver, beat};
use crate::frame::{FromOwner, ToOwner};
use crate::owner_connection::{OwnerConnection, SILENCE};

/// The number of the one question that is the thread's own. Those of its handle start at 1.
const KEEP_FINISHED: u64 = 0;

impl Service {
    /// Asks the owner until it ends, falls silent, or the handle is closed.
    pub(super) async fn use_owner(&mut self, mut connection: OwnerConnection) -> NextRole {
        let pid = connection.pid;
        let path = self.place.path().display().to_string();
        self.shared.set_obstacle(format!("pid {pid} owns {path} and does not answer"));
        connection.expect_an_answer();
        self.answer_those_that_may_not_be_repeated();
        let ids: Vec<u64> = self.pending.keys().copied().collect();
        let mut sent = self.tell_how_long_to_keep(&mut connection);
        if sent.is_ok() {
            sent = ids.into_iter().try_for_each(|id| self.put(&mut connection, id));
        }
        let mut beat = beat();
        loop {
            if sent.is_ok() {
                sent = self.give_back(&mut connection);
            }
            if sent.is_ok() {
                sent = connection.flush().await;
            }
            if let Err(error) = sent {
                let silent = error.kind() == std::io::ErrorKind::TimedOut;
                return NextRole::Seek { silent: silent.then_some(connection.epoch) };
            }
            sent = tokio::select! {
                order = self.orders.recv() => {
                    let mut order = order;
                    loop {
                        let was_idle = self.pending.is_empty();
                        let put = match self.take(order) {
                            Some(TakenOver::Asked(id)) => {
                                if was_idle {
                                    connection.expect_an_answer();
                                }
                                self.put(&mut connection, id)
                            }
                            Some(TakenOver::Left(id, question)) => {
                                self.left.insert(id, question);
                                connection.queue(&ToOwner::Cancel { id })
                            }
                            Some(TakenOver::Nothing) => Ok(()),
                            None => {
                                // What was taken on before the end is still passed on.
                                let _ = self.give_back(&mut connection);
                                let _ = connection.flush().await;
                                return NextRole::Close;
                            }
                        };
                        match (put, self.orders.try_recv()) {
                            (Ok(()), Ok(next)) => order = Some(next),
                            (put, _) => break put,
                        }
                    }
                }
                frame = connection.next() => match frame {
                    Ok(Some(FromOwner::Answer { id: KEEP_FINISHED, result })) => {
                        if result.is_ok() {
                            self.untold = KeepFinished::default();
                        }
                        Ok(())
                    }
                    Ok(Some(FromOwner::Answer { id, result })) => {
                        self.hand_over(id, result);
                        Ok(())
                    }
                    Ok(Some(FromOwner::HoldChanged { namespace, key })) => {
                        self.shared.hold_changes.tell(std::iter::once((&namespace, &key)));
                        Ok(())
                    }
                    Ok(Some(_)) => Ok(()),
                    Ok(None) | Err(_) => return NextRole::Seek { silent: None },
                },
                _ = beat.tick() => {
                    self.give_up_overdue();
                    if self.pending.is_empty() {
                        Ok(())
                    } else if connection.silent_for() > SILENCE {
                        tracing::warn!(pid, place = path, "the owner of this directory has fallen silent");
                        return NextRole::Seek { silent: Some(connection.epoch) };
                    } else {
                        connection.queue(&ToOwner::Ping)
                    }
                }
            };
        }
    }

    /// Has the owner note how long finished jobs are to be kept, if this process has something to say about it. An owner
    /// that goes before it has is followed by another, which gets it then.
    fn tell_how_long_to_keep(&self, connection: &mut OwnerConnection) -> std::io::Result<()> {
        let Some(ms) = self.untold.named_ms() else { return Ok(()) };
        let (namespace, ask) = (Namespace::default(), Box::new(StoreRequest::KeepFinished { ms }));
        connection.queue(&ToOwner::Ask { id: KEEP_FINISHED, namespace, ask, timeout_ms: u64::MAX })
    }

    /// Hands an answer to the caller. A lease that finds its asker gone is to be given back.
    fn hand_over(&mut self, id: u64, result: Box<Result<StoreResponse, StoreError>>) {
        let (namespace, claim, result, sent_before) = match self.pending.remove(&id) {
            Some(question) => {
                let sent_before = question.uncertain_before;
                let PendingRequest { namespace, ask, claim, reply, sent_at_ms, .. } = *question;
                let result = Box::new((*result).map_err(|error| or_unknown(error, &ask, sent_before)));
                match reply.send(Delivery::Answer { result, sent_at_ms, sent_before }) {
                    Err(Delivery::Answer { result, .. }) => (namespace, claim, result, sent_before),
                    _ => return,
                }
            }
            None => match self.left.remove(&id) {
                Some(question) => (question.namespace, question.claim, result, question.uncertain_before),
                None => return,
            },
        };
        let claim = claim.map(|claim| claim.after_sending(sent_before));
        if let Some(unclaimed) = claim.and_then(|claim| claim.unclaimed(*result)) {
            self.unclaimed.push((namespace, unclaimed));
        }
    }

    /// Gives back grants whose callers have gone, but for those that are being asked for again: they have a new caller. If it does
    /// not arrive, the lease runs out by itself.
    fn give_back(&mut self, connection: &mut OwnerConnection) -> std::io::Result<()> {
        for (namespace, unclaimed) in std::mem::take(&mut self.unclaimed) {
            if self.is_asked_for(&namespace, &unclaimed) {
                continue;
            }
            connection.queue(&ToOwner::GiveBack { namespace, unclaimed: Box::new(unclaimed) })?;
        }
        Ok(())
    }

    /// Puts a pending question into the next sending, aged by the time it has been pending.
    fn put(&mut self, connection: &mut OwnerConnection, id: u64) -> std::io::Result<()> {
        let Some(question) = self.pending.get_mut(&id) else { return Ok(()) };
        let now_ms = SystemClock.now().store_ms;
        let again = std::mem::replace(&mut question.uncertain, true);
        (question.uncertain_before, question.sent_at_ms) = (again, now_ms);
        let ask = question.ask.aged(now_ms.saturating_sub(question.asked_at_ms), again);
        let timeout_ms = question.give_up_ms.saturating_sub(now_ms);
        let namespace = question.namespace.clone();
        match connection.queue(&ToOwner::Ask { id, namespace, ask: Box::new(ask), timeout_ms }) {
            // This one can never be asked; the link, and everybody else on it, lives on.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                let bad = BadInput::new("request", format!("cannot be sent: {error}"));
                if let Some(question) = self.pending.remove(&id) {
                    question.refuse(bad.into());
                }
                Ok(())
            }
            queued => queued,
        }
    }
}
