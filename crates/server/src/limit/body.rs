//! Bodies: how large one may be, how long it may take, and how much all of them may take up at once.
//!
//! A body is read whole before anything is done with it, so its share of memory is taken before its first byte is read.
//! Small ones have a part of the memory to themselves: a client that sends large ones slowly keeps no renewals waiting.
//! So have those of requests that wait, which live for long: thousands in line take nothing from those who pass by.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::HeaderMap;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::locked;

/// Memory is counted in pieces of this size.
const PIECE: usize = 1 << 10;
/// Up to this size a body is small.
const SMALL_MAX: usize = 64 << 10;
/// One part of so many is for small ones alone.
const SMALL_PART: usize = 4;

/// And one part of so many for requests that wait.
const WAITING_PART: usize = 4;

/// The memory that bodies share.
#[derive(Clone, Debug)]
pub(crate) struct BodyMemory {
    one_max: usize,
    time_limit: Duration,
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    waiting_max: usize,
    pieces_max: usize,
}

/// Why a body was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadBody {
    /// It is larger than allowed.
    TooLarge {
        /// What is allowed.
        limit: usize,
    },
    /// It did not come in time, or there was no room for it in that time.
    TooSlow,
    /// It broke off.
    Broken,
}

/// A body, and its share of the memory until both are dropped.
#[derive(Debug)]
pub(crate) struct BodyBytes {
    /// The bytes.
    pub(crate) bytes: Bytes,
    /// To be kept as long as the bytes are, or what was made of them.
    pub(crate) share: MemoryShare,
}

/// A body's share of the memory, until it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    now: Mutex<OwnedSemaphorePermit>,
    pieces: u32,
    waiting: Arc<Semaphore>,
    waiting_max: usize,
}

/// There is no memory left for another request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMemory {
    /// How many bytes all of them may have.
    pub(crate) limit: usize,
}

impl MemoryShare {
    /// Moves to the memory of requests that wait, and makes room for those that do not.
    pub(crate) fn wait(&self) -> Result<(), NoMemory> {
        let permit = Arc::clone(&self.waiting).try_acquire_many_owned(self.pieces);
        *locked(&self.now) = permit.map_err(|_| NoMemory { limit: self.waiting_max * PIECE })?;
        Ok(())
    }
}

impl BodyMemory {
    /// So large each, so long each, so large all together.
    pub(crate) fn new(one_max: usize, time_limit: Duration, all_max: usize) -> Self {
        let large_max = (all_max.max(one_max) / PIECE + 1).min(Semaphore::MAX_PERMITS / 2);
        let small_max = large_max / SMALL_PART + SMALL_MAX / PIECE;
        let waiting_max = large_max / WAITING_PART + SMALL_MAX / PIECE;
        BodyMemory {
            one_max,
            time_limit,
            small: Arc::new(Semaphore::new(small_max)),
            large: Arc::new(Semaphore::new(large_max)),
            waiting: Arc::new(Semaphore::new(waiting_max)),
            waiting_max,
            pieces_max: small_max + large_max + waiting_max,
        }
    }

    /// Takes a body whole.
    pub(crate) async fn take(&self, headers: &HeaderMap, body: Body) -> Result<BodyBytes, BadBody> {
        let too_large = BadBody::TooLarge { limit: self.one_max };
        let length = headers
            .get(http::header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        // Without a length it may become as large as any.
        let length: usize = length.unwrap_or(if has_body(headers) { self.one_max } else { 0 });
        if length > self.one_max {
            return Err(too_large);
        }
        let pool = if length <= SMALL_MAX { &self.small } else { &self.large };
        let read = async {
            let taken = Arc::clone(pool)
                .acquire_many_owned(pieces(length))
                .await
                .map_err(|_| BadBody::Broken)?;
            let whole = Limited::new(body, self.one_max).collect().await;
            let whole = whole
                .map_err(|error| if error.is::<LengthLimitError>() { too_large } else { BadBody::Broken })?;
            let bytes = whole.to_bytes();
            let (now, waiting) = (Mutex::new(taken), Arc::clone(&self.waiting));
            let share =
                MemoryShare { now, pieces: pieces(bytes.len()), waiting, waiting_max: self.waiting_max };
            Ok(BodyBytes { bytes, share })
        };
        tokio::time::timeout(self.time_limit, read)
            .await
            .map_err(|_| BadBody::TooSlow)?
    }

    /// How many bytes are taken up, and how many there are.
    pub(crate) fn used(&self) -> (usize, usize) {
        let free = [&self.small, &self.large, &self.waiting].map(|pool| pool.available_permits());
        ((self.pieces_max - free.iter().sum::<usize>()) * PIECE, self.pieces_max * PIECE)
    }
}

fn pieces(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX)
}

fn has_body(headers: &HeaderMap) -> bool {
    headers.contains_key(http::header::TRANSFER_ENCODING)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(bytes: usize) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_LENGTH, bytes.into());
        headers
    }

    fn chunked() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::TRANSFER_ENCODING, "chunked".parse().unwrap());
        headers
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_by_its_length_or_by_its_bytes() {
        let bodies = BodyMemory::new(10, LONG, 100);
        let too_large = BadBody::TooLarge { limit: 10 };
        assert_eq!(bodies.take(&length(11), Body::from("short")).await.unwrap_err(), too_large);
        assert_eq!(bodies.take(&chunked(), Body::from("eleven byte")).await.unwrap_err(), too_large);
        assert_eq!(bodies.take(&length(10), Body::from("ten bytes!")).await.unwrap().bytes, "ten bytes!");
        assert_eq!(bodies.used().0, 0, "nothing is left behind");
    }

    #[tokio::test]
    async fn large_bodies_wait_for_memory_and_not_for_ever_and_small_ones_do_not_wait_for_them() {
        let large = 2 * SMALL_MAX;
        let bodies = BodyMemory::new(large, Duration::from_millis(50), large);
        let first = bodies.take(&length(large), Body::from(vec![0; large])).await.unwrap();
        assert_eq!(bodies.take(&chunked(), Body::from("x")).await.unwrap_err(), BadBody::TooSlow);
        assert!(bodies.take(&length(1), Body::from("x")).await.is_ok());
        assert!(bodies.take(&HeaderMap::new(), Body::empty()).await.is_ok(), "nothing takes up nothing");
        drop(first);
        assert!(bodies.take(&chunked(), Body::from("x")).await.is_ok());
        assert_eq!(bodies.used().0, 0);
    }

    #[tokio::test]
    async fn those_who_wait_make_room_for_others_and_have_no_more_than_their_part() {
        let bodies = BodyMemory::new(SMALL_MAX, Duration::from_millis(50), SMALL_MAX);
        let mut waiting = Vec::new();
        // Each leaves the part of small ones when it begins to wait: else the second would find no room there.
        let refused = loop {
            let taken = bodies.take(&length(SMALL_MAX), Body::from(vec![0; SMALL_MAX])).await.unwrap();
            match taken.share.wait() {
                Ok(()) => waiting.push(taken),
                Err(refused) => break refused,
            }
            assert!(waiting.len() < 100, "there is no end to those who wait");
        };
        assert_eq!((refused, waiting.len()), (NoMemory { limit: 80 * PIECE }, 1));
        assert!(bodies.take(&length(SMALL_MAX), Body::from(vec![0; SMALL_MAX])).await.is_ok());
        drop(waiting);
        assert_eq!(bodies.used().0, 0);
    }

    #[tokio::test]
    async fn who_waits_takes_up_what_it_sent_and_not_what_it_might_have_sent() {
        let bodies = BodyMemory::new(2 * SMALL_MAX, LONG, 2 * SMALL_MAX);
        let taken = bodies.take(&chunked(), Body::from("x")).await.unwrap();
        assert_eq!(bodies.used().0, 2 * SMALL_MAX);
        taken.share.wait().unwrap();
        assert_eq!(bodies.used().0, PIECE);
    }
}
