//! Finding the owner of the directory, or taking it over where it has no owner.

use std::sync::Arc;

use fencehold_contract::clock::{Clock, SystemClock};
use fencehold_contract::{KeepFinished, StoreError};
use tokio::sync::oneshot;

use super::{Service, Shared, beat};
use crate::link::{BEAT, Link, Reached, wait};
use crate::owner::Door;
use crate::place::{Place, unusable};
use crate::takeover::{self, Attempt, Ownership};

/// How long an owner that lives may be out of reach.
const SILENCE_MS: u64 = 2_000;

pub(super) enum Sought {
    Owner(Box<Link>),
    Own(Box<Ownership>, Door),
    Unusable(StoreError),
    Closed,
}

impl Service {
    /// Looks for the owner, taking questions meanwhile.
    pub(super) async fn seek(&mut self, silent: Option<u64>) -> Sought {
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
                order = self.orders.recv() => if self.take(order).is_none() { return Sought::Closed },
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
    place: Arc<Place>,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    mut silent: Option<u64>,
    untold: KeepFinished,
) -> Sought {
    let path = place.path().display().to_string();
    let open = |socket| Door::open(socket, place.group.as_ref());
    let mut unreachable: Option<(u64, u64)> = None;
    loop {
        for epoch in place.epochs() {
            if silent == Some(epoch) {
                continue;
            }
            match Link::reach(&place, epoch).await {
                Reached::Linked(link) => return Sought::Owner(link),
                Reached::Nobody => {}
                Reached::Silent => silent = Some(epoch),
                Reached::Refused(why) => return Sought::Unusable(unusable(place.path(), &why)),
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
                    Err(error) => Attempt::Unusable(error),
                }
            }
        });
        tokio::pin!(attempt);
        let mut door: Option<Door> = None;
        let attempt = loop {
            tokio::select! {
                attempt = &mut attempt => break attempt,
                socket = &mut listener, if door.is_none() => match socket.map(&open) {
                    Ok(Ok(opened)) => door = Some(opened),
                    // It ended without a socket, or no one can connect to it: what came of it says why.
                    _ => break attempt.await,
                },
                () = admit(&mut door), if door.is_some() => {}
            }
        };
        // Both may have come at once, and the end been seen first.
        let door = door.or_else(|| listener.try_recv().ok().and_then(|socket| open(socket).ok()));
        match attempt {
            Ok(Attempt::Became(ownership)) => match door {
                Some(door) => return Sought::Own(ownership, door),
                None => shared.set_obstacle(format!("{path}: its socket cannot be listened on")),
            },
            Ok(Attempt::OwnerLives(epoch)) => {
                // It lives, and its socket is gone or not listened on: that is silence too.
                let since = unreachable
                    .filter(|(which, _)| *which == epoch)
                    .map_or_else(now_ms, |(_, since)| since);
                unreachable = Some((epoch, since));
                if now_ms().saturating_sub(since) > SILENCE_MS {
                    silent = Some(epoch);
                }
            }
            Ok(Attempt::Blocked(why)) => {
                shared.set_obstacle(why);
                // It may be on its way again by now.
                silent = None;
            }
            Ok(Attempt::Unusable(error @ (StoreError::Unusable { .. } | StoreError::NoStore { .. }))) => {
                return Sought::Unusable(error);
            }
            Ok(Attempt::Unusable(StoreError::Unavailable { message: why })) => shared.set_obstacle(why),
            Ok(Attempt::Unusable(error)) => shared.set_obstacle(error.to_string()),
            Err(panic) => shared.set_obstacle(format!("{path}: taking over failed: {panic}")),
        }
        wait(BEAT / 20).await;
    }
}

async fn admit(door: &mut Option<Door>) {
    if let Some(door) = door {
        door.admit().await;
    }
}
