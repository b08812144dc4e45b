//! What crosses the socket between processes: length, then plain data.

use std::io;

use fencehold_contract::StoreError;
use fencehold_contract::operation::{StoreRequest, StoreResponse, UndeliveredGrant};
use fencehold_core::{Key, Namespace};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Raised with every change of what crosses the socket. The first frame of either side never changes its form.
pub(super) const PROTOCOL: u32 = 11;

/// The longest frame. Every request fits that passed its check; an answer that does not is sent in several.
const FRAME_BYTES_MAX: usize = 32 << 20;
/// In a frame's length: the next frame goes on with the same message.
const GOES_ON: u32 = 1 << 31;
/// The longest message that is put together from frames: only a peer that is not ours sends a longer one.
const MESSAGE_BYTES_MAX: usize = if cfg!(test) { 96 << 20 } else { 1 << 30 };

/// From a process that uses the store to the one that owns it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToOwner {
    /// The first frame. A client that could not read the directory itself learns so now, not when the owner has gone.
    Hello { protocol: u32, schema: u32, pid: u32 },
    /// A request, under a number that the asker chose.
    Ask { id: u64, namespace: Namespace, ask: Box<StoreRequest>, timeout_ms: u64 },
    /// The asker no longer waits for this one.
    Cancel { id: u64 },
    /// Are you still there?
    Ping,
    /// What was granted to an asker that had gone. It has no answer.
    GiveBack { namespace: Namespace, unclaimed: Box<UndeliveredGrant> },
}

/// From the owner.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromOwner {
    /// The first frame, when it serves.
    Welcome { protocol: u32, pid: u32, epoch: u64 },
    /// Instead of a welcome: this owner cannot serve this asker.
    Refuse { why: String },
    /// It has taken over and is not ready yet.
    Starting,
    /// The answer to a request.
    Answer { id: u64, result: Box<Result<StoreResponse, StoreError>> },
    /// Yes.
    Pong,
    /// Another handle acted on the hold of this key.
    HoldChanged { namespace: Namespace, key: Key },
}

/// Appends a frame to a buffer. One that is too long leaves the buffer as it was: `InvalidData`.
pub(super) fn put<T: Serialize>(frame: &T, buffer: &mut Vec<u8>) -> io::Result<()> {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; 4]);
    *buffer = postcard::to_extend(frame, std::mem::take(buffer)).map_err(io::Error::other)?;
    let length = buffer.len() - start - 4;
    if length > FRAME_BYTES_MAX {
        buffer.truncate(start);
        let why = format!("it has {length} bytes; the limit of one frame is {FRAME_BYTES_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    buffer[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Appends an answer to a buffer: in several frames where one is too short.
pub(super) fn put_answer(answer: &FromOwner, buffer: &mut Vec<u8>) -> io::Result<()> {
    match put(answer, buffer) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
        put => return put,
    }
    let message = postcard::to_extend(answer, Vec::new()).map_err(io::Error::other)?;
    if message.len() > MESSAGE_BYTES_MAX {
        let why = format!("it has {} bytes; the limit is {MESSAGE_BYTES_MAX}", message.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut parts = message.chunks(FRAME_BYTES_MAX).peekable();
    while let Some(part) = parts.next() {
        let goes_on = if parts.peek().is_some() { GOES_ON } else { 0 };
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX) | goes_on;
        buffer.extend_from_slice(&length.to_le_bytes());
        buffer.extend_from_slice(part);
    }
    Ok(())
}

/// A frame in its bytes.
pub(super) fn bytes_of<T: Serialize>(frame: &T) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::new();
    put(frame, &mut buffer).map(|()| buffer)
}

/// Frames, as they come in.
#[derive(Debug)]
pub(super) struct Frames<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Where the next frame starts.
    at: usize,
    /// The frames so far of a message that goes on.
    parts: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn new(reader: R) -> Self {
        Frames { reader, buffer: Vec::with_capacity(64 << 10), at: 0, parts: Vec::new() }
    }

    /// The next frame; `None` at the end of the stream. Cancelling it loses nothing.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(frame) = self.parse()? {
                return Ok(Some(frame));
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn parse<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        loop {
            let rest = &self.buffer[self.at..];
            let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
            let length = u32::from_le_bytes(*length);
            let (length, goes_on) = ((length & !GOES_ON) as usize, length & GOES_ON != 0);
            if length > FRAME_BYTES_MAX || self.parts.len() + length > MESSAGE_BYTES_MAX {
                return Err(invalid(format!("a frame of {length} bytes")));
            }
            let Some(body) = rest.get(..length) else { return Ok(None) };
            self.at += 4 + length;
            if goes_on || !self.parts.is_empty() {
                self.parts.extend_from_slice(body);
            }
            if goes_on {
                continue;
            }
            let parts = std::mem::take(&mut self.parts);
            let message = if parts.is_empty() { body } else { &parts };
            return postcard::from_bytes(message)
                .map(Some)
                .map_err(|error| invalid(error.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_is_too_long_leaves_those_before_it_as_they_are() {
        let mut buffer = bytes_of(&ToOwner::Ping).unwrap();
        let before = buffer.clone();
        let too_long = FromOwner::Refuse { why: "x".repeat(FRAME_BYTES_MAX) };
        let error = put(&too_long, &mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("the limit of one frame is 33554432"), "{error}");
        assert_eq!(buffer, before);
    }

    #[tokio::test]
    async fn an_answer_that_is_longer_than_a_frame_arrives_whole_and_in_its_place() {
        let long = "0123456789abcdef".repeat(FRAME_BYTES_MAX / 10);
        let answer = |id, why: &str| {
            let result = Box::new(Err(StoreError::Unavailable { message: why.to_owned() }));
            FromOwner::Answer { id, result }
        };
        let mut buffer = Vec::new();
        for frame in [answer(1, "short"), answer(2, &long), FromOwner::Pong, answer(3, &long)] {
            put_answer(&frame, &mut buffer).unwrap();
        }
        let mut frames = Frames::new(buffer.as_slice());
        for expected in [Some((1, "short")), Some((2, long.as_str())), None, Some((3, long.as_str()))] {
            match (frames.next().await.unwrap(), expected) {
                (Some(FromOwner::Answer { id, result }), Some((nth, said))) => {
                    let Err(StoreError::Unavailable { message: why }) = *result else {
                        panic!("another answer")
                    };
                    assert!(id == nth && why == said, "the answer {id} has {} bytes", why.len());
                }
                (Some(FromOwner::Pong), None) => {}
                (other, _) => panic!("{:.100}", format!("{other:?}")),
            }
        }
        assert!(frames.next::<FromOwner>().await.unwrap().is_none());
    }
}
