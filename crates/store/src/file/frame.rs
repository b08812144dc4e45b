//! What crosses the socket between processes: length, then plain data.

use std::io;

use fencehold_core::Namespace;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::engine::{Answer, Ask, Unclaimed};
use crate::error::StoreError;

/// Raised with every change of what crosses the socket. The first frame of either side never changes its form.
pub(super) const PROTOCOL: u32 = 5;

/// The longest frame. A full batch of the longest names fits, and a full page of the longest answers.
const FRAME_BYTES_MAX: usize = 32 << 20;

/// From a process that uses the store to the one that owns it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToOwner {
    /// The first frame. Whoever could not read the directory itself is told so now, not when the owner has gone.
    Hello { protocol: u32, schema: u32, pid: u32 },
    /// A request, under a number that the asker chose.
    Ask { id: u64, namespace: Namespace, ask: Box<Ask>, patience_ms: u64 },
    /// The asker no longer waits for this one.
    Cancel { id: u64 },
    /// Are you still there?
    Ping,
    /// What was granted to an asker that had gone. It has no answer.
    GiveBack { namespace: Namespace, unclaimed: Box<Unclaimed> },
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
    Answer { id: u64, result: Box<Result<Answer, StoreError>> },
    /// Yes.
    Pong,
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
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn new(reader: R) -> Self {
        Frames { reader, buffer: Vec::with_capacity(64 << 10), at: 0 }
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
        let rest = &self.buffer[self.at..];
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(invalid(format!("a frame of {length} bytes")));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let frame = postcard::from_bytes(body).map_err(|error| invalid(error.to_string()))?;
        self.at += 4 + length;
        Ok(Some(frame))
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
}
