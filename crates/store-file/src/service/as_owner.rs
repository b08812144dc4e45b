//! Serving the directory, until another process does or the disk fails.

use std::sync::Arc;

use fencehold_contract::clock::{Clock, ClockAhead};
use fencehold_contract::{KeepFinished, StoreError};
use fencehold_engine::{Engine, Writer, WriterEnd};
use tokio::sync::oneshot;

use super::pending_requests::Delivery;
use super::{NextRole, Service, beat};
use crate::owner::{OwnerState, SocketServer};
use crate::owner_connection::{BEAT, wait};
use crate::sqlite::{DiskFailed, NoMark};
use crate::takeover::Ownership;

/// How the engine's thread came to its end.
struct EngineEnd {
    end: WriterEnd,
    engine: Engine,
    /// The disk failed, by then or as it was closed.
    failure: Option<DiskFailed>,
}

impl Service {
    /// Serves the directory until another process does, the disk fails, or the handle is closed.
    pub(super) async fn own(&mut self, ownership: Ownership, mut socket_server: SocketServer) -> NextRole {
        let Ownership { epoch, mut engine, ahead_ms, keep, lock } = ownership;
        let clock: Arc<dyn Clock> = Arc::new(ClockAhead { clock: Arc::clone(&self.clock), ahead_ms });
        engine.count_into(Arc::clone(&self.shared.measures));
        engine.hold_changes = Arc::clone(&self.shared.hold_changes);
        // It was noted in the transaction that made this process the owner.
        self.untold = KeepFinished::default();
        let (ended, mut end) = oneshot::channel::<EngineEnd>();
        let shared = Arc::clone(&self.shared);
        let started = Writer::start(
            "fencehold-engine",
            Arc::clone(&clock),
            engine,
            keep,
            self.options.gather,
            move |end, keep, engine| {
                // No caller may ask an engine that has ended, while its database is being closed.
                shared.set_here(None);
                let _ = ended.send(EngineEnd { end, engine, failure: keep.close() });
            },
        );
        let writer = match started {
            Ok(writer) => writer,
            Err(error) => {
                self.shared.set_obstacle(format!("no thread could be started: {error}"));
                wait(BEAT).await;
                return NextRole::Seek { silent: None };
            }
        };
        tracing::debug!(epoch, place = %self.place.path().display(), "this process owns the directory");
        self.shared.set_here(Some(writer.handle.clone()));
        let hold_changes = Arc::clone(&self.shared.hold_changes);
        socket_server.serve(OwnerState::Serving { handle: writer.handle.clone(), epoch, hold_changes });
        self.send_all_here();
        let mut beat = beat();
        let stopped = loop {
            tokio::select! {
                () = socket_server.admit() => {}
                order = self.orders.recv() => {
                    if self.take(order).is_none() {
                        break None;
                    }
                    self.send_all_here();
                }
                end = &mut end => break end.ok(),
                // An owner that was superseded while it had nothing to do must find out, for those who stand in its line.
                _ = beat.tick() => writer.handle.ping(Box::new(|| {})),
            }
        };
        self.shared.set_here(None);
        // Waits for the batch under way, which may fail yet.
        drop(writer);
        match stopped.or_else(|| end.try_recv().ok()) {
            Some(EngineEnd { failure: Some(failure), engine, .. }) => {
                self.after_failure(failure, &engine, &*clock, &mut socket_server, epoch).await;
            }
            Some(EngineEnd { end: Err(_), .. }) if !self.closed => {
                tracing::warn!(
                    epoch,
                    "this process no longer serves the directory: another took it over, or its files were removed or replaced"
                );
                return NextRole::Seek { silent: None };
            }
            Some(_) => {}
            None => tracing::error!(epoch, "the engine's thread panicked; going on from what the disk holds"),
        }
        drop(socket_server);
        self.place.forget(epoch);
        drop(lock);
        if self.closed { NextRole::Close } else { NextRole::Seek { silent: None } }
    }

    /// Requests that were sent elsewhere come here, if there is an engine here; and grants whose callers have gone are given back here.
    fn send_all_here(&mut self) {
        let Some(engine) = self.shared.here() else { return };
        for (namespace, unclaimed) in std::mem::take(&mut self.unclaimed) {
            if !self.is_asked_for(&namespace, &unclaimed) {
                engine.give_back(namespace, unclaimed);
            }
        }
        for question in std::mem::take(&mut self.pending).into_values() {
            let _ = question.reply.send(Delivery::AskHere { uncertain: question.uncertain });
        }
    }

    /// The disk failed: renewals that were acknowledged may be lost. The next owner learns by a mark to give every
    /// live lease a full ttl. Where no mark could be made, this process keeps its turn at the disk, so that no process serves
    /// until the last acknowledged deadline is past; also one that is being closed stays until then.
    async fn after_failure(
        &mut self,
        failure: DiskFailed,
        engine: &Engine,
        clock: &dyn Clock,
        socket_server: &mut SocketServer,
        epoch: u64,
    ) {
        let DiskFailed { why, unnoted } = failure;
        let path = self.place.path().display().to_string();
        tracing::error!(why, place = path, "the disk failed; recovering from what it holds");
        self.shared.set_obstacle(format!("{path}: {why}"));
        let Some(NoMark { error, disk_lock }) = unnoted else { return };
        let until_ms = engine.latest_deadline_ms();
        let why = format!("{path}: {why}; nor could that be noted ({error})");
        tracing::error!(why, "no process may serve until every lease that was acknowledged is over");
        socket_server.turn_out();
        socket_server.serve(OwnerState::Refusing { epoch, why: why.as_str().into() });
        let refusal = StoreError::Unavailable { message: why };
        let mut beat = beat();
        while clock.now().store_ms < until_ms && self.place.mark().is_err() {
            tokio::select! {
                () = socket_server.admit() => {}
                order = self.orders.recv(), if !self.closed => drop(self.take(order)),
                _ = beat.tick() => {}
            }
            self.answer_all(&refusal);
        }
        drop(disk_lock);
    }
}
