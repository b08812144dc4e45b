//! Finding the owner of the directory, or taking it over where it has no owner.

use std::sync::Arc;

use fencehold_contract::clock::{Clock, SystemClock};
use fencehold_contract::{KeepFinished, StoreError};
use tokio::sync::oneshot;

use super::{Service, ServiceShared, beat};
use crate::directory::{StoreDirectory, unusable};
use crate::owner::SocketServer;
use crate::owner_connection::{BEAT, ConnectResult, OwnerConnection, wait};
use crate::takeover::{self, Ownership, TakeoverResult};

/// How long an owner that lives may be out of reach.
const SILENCE_MS: u64 = 2_000;

pub(super) enum FindResult {
    Owner(Box<OwnerConnection>),
    Own(Box<Ownership>, SocketServer),
    Unusable(StoreError),
    Closed,
}

impl Service {
    /// Looks for the owner, taking questions meanwhile.
    pub(super) async fn seek(&mut self, silent: Option<u64>) -> FindResult {
        // The owner that they were sent to has gone, and will answer nothing more.
        self.left.clear();
        let (place, clock, shared) =
            (Arc::clone(&self.place), Arc::clone(&self.clock), Arc::clone(&self.shared));
        let found = find(place, clock, shared, silent, self.untold);
        tokio::pin!(found);
        let mut beat = beat();
        loop {
            tokio::select! {
                found = &mut found => return found,
                order = self.orders.recv() => if self.take(order).is_none() { return FindResult::Closed },
                _ = beat.tick() => self.give_up_overdue(),
            }
        }
    }
}

fn now_ms() -> u64 {
    SystemClock.now().store_ms
}

/// Finds the owner of the directory, or takes it over where it has no owner.
async fn find(
    place: Arc<StoreDirectory>,
    clock: Arc<dyn Clock>,
    shared: Arc<ServiceShared>,
    mut silent: Option<u64>,
    untold: KeepFinished,
) -> FindResult {
    let path = place.path().display().to_string();
    let open = |socket| SocketServer::open(socket, place.group.as_ref());
    let mut unreachable: Option<(u64, u64)> = None;
    loop {
        for epoch in place.epochs() {
            if silent == Some(epoch) {
                continue;
            }
            match OwnerConnection::reach(&place, epoch).await {
                ConnectResult::Linked(connection) => return FindResult::Owner(connection),
                ConnectResult::NotListening => {}
                ConnectResult::Silent => silent = Some(epoch),
                ConnectResult::Refused(why) => return FindResult::Unusable(unusable(place.path(), why)),
            }
        }
        let (listening, mut listener) = oneshot::channel();
        let attempt = tokio::task::spawn_blocking({
            let (place, clock, shared) = (Arc::clone(&place), Arc::clone(&clock), Arc::clone(&shared));
            move || {
                let waits_for = |why: String| {
                    shared.set_obstacle(why);
                    !shared.is_closing()
                };
                let listens = |socket| drop(listening.send(socket));
                // SQLite would make a new one of it.
                match place.refuse_lost() {
                    Ok(()) => takeover::attempt(&place, &*clock, silent, untold, listens, &waits_for),
                    Err(error) => TakeoverResult::Unusable(error),
                }
            }
        });
        tokio::pin!(attempt);
        let mut socket_server: Option<SocketServer> = None;
        let attempt = loop {
            tokio::select! {
                attempt = &mut attempt => break attempt,
                socket = &mut listener, if socket_server.is_none() => match socket.map(&open) {
                    Ok(Ok(opened)) => socket_server = Some(opened),
                    // It ended without a socket, or no one can connect to it: what came of it says why.
                    _ => break attempt.await,
                },
                () = admit(&mut socket_server), if socket_server.is_some() => {}
            }
        };
        // Both may have come at once, and the end been seen first.
        let socket_server =
            socket_server.or_else(|| listener.try_recv().ok().and_then(|socket| open(socket).ok()));
        match attempt {
            Ok(TakeoverResult::Became(ownership)) => match socket_server {
                Some(socket_server) => return FindResult::Own(ownership, socket_server),
                None => shared.set_obstacle(format!("{path}: its socket cannot be listened on")),
            },
            Ok(TakeoverResult::OwnerLives(epoch)) => {
                // It lives, and its socket is gone or not listened on: that is silence too.
                let since = unreachable
                    .filter(|(which, _)| *which == epoch)
                    .map_or_else(now_ms, |(_, since)| since);
                unreachable = Some((epoch, since));
                if now_ms().saturating_sub(since) > SILENCE_MS {
                    silent = Some(epoch);
                }
            }
            Ok(TakeoverResult::Blocked(why)) => {
                shared.set_obstacle(why);
                // It may be on its way again by now.
                silent = None;
            }
            Ok(TakeoverResult::Unusable(
                error @ (StoreError::Unusable { .. } | StoreError::NoStore { .. }),
            )) => {
                return FindResult::Unusable(error);
            }
            Ok(TakeoverResult::Unusable(StoreError::Unavailable { message: why })) => {
                shared.set_obstacle(why);
            }
            Ok(TakeoverResult::Unusable(error)) => shared.set_obstacle(error.to_string()),
            Err(panic) => shared.set_obstacle(format!("{path}: taking over failed: {panic}")),
        }
        wait(BEAT / 20).await;
    }
}

async fn admit(socket_server: &mut Option<SocketServer>) {
    if let Some(socket_server) = socket_server {
        socket_server.admit().await;
    }
}
