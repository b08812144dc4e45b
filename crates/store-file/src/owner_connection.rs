//! The other side of the socket: asking the owner, and noticing when it falls silent.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;

use super::directory::StoreDirectory;
use super::frame::{self, Frames, FromOwner, PROTOCOL, ToOwner};
use super::permissions::distrusted;
use super::schema::SCHEMA_VERSION;

/// An owner that says nothing for this long is taken for stopped or hung.
pub(super) const SILENCE: Duration = Duration::from_secs(2);
/// How often to ask whether it is still there.
pub(super) const BEAT: Duration = Duration::from_millis(400);

/// A connection to the owner.
#[derive(Debug)]
pub(super) struct OwnerConnection {
    pub(super) epoch: u64,
    pub(super) pid: u32,
    frames: Frames<OwnedReadHalf>,
    write: OwnedWriteHalf,
    outgoing: Vec<u8>,
    /// When the owner was last heard.
    heard: Instant,
}

/// What came of trying to reach the owner of an epoch.
pub(super) enum ConnectResult {
    Linked(Box<OwnerConnection>),
    /// No process listens there.
    NotListening,
    /// The owner listens and says nothing.
    Silent,
    /// It cannot serve this process.
    Refused(String),
}

impl OwnerConnection {
    pub(super) async fn reach(place: &StoreDirectory, epoch: u64) -> ConnectResult {
        match Self::try_reach(place, epoch).await {
            Ok(reached) => reached,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => ConnectResult::Silent,
            Err(_) => ConnectResult::NotListening,
        }
    }

    async fn try_reach(place: &StoreDirectory, epoch: u64) -> io::Result<ConnectResult> {
        let socket = place.socket(epoch);
        let connect = async {
            loop {
                match UnixStream::connect(&socket).await {
                    // The socket's backlog is full: the process that accepts is busy, or stopped.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(BEAT / 20).await,
                    outcome => return outcome,
                }
            }
        };
        let stream = tokio::time::timeout(SILENCE, connect).await??;
        if let Some(user) = distrusted(&stream, place.group.as_ref())? {
            return Ok(ConnectResult::Refused(format!(
                "user {user} serves it, whom this process does not trust"
            )));
        }
        let (read, mut write) = stream.into_split();
        let hello = ToOwner::Hello { protocol: PROTOCOL, schema: SCHEMA_VERSION, pid: std::process::id() };
        write.write_all(&frame::bytes_of(&hello)?).await?;
        let mut frames = Frames::new(read);
        loop {
            match tokio::time::timeout(SILENCE, frames.next()).await?? {
                Some(FromOwner::Starting) => {}
                Some(FromOwner::Refuse { why }) => return Ok(ConnectResult::Refused(why)),
                Some(FromOwner::Welcome { pid, epoch, .. }) => {
                    let (outgoing, heard) = (Vec::new(), now());
                    let connection = OwnerConnection { epoch, pid, frames, write, outgoing, heard };
                    return Ok(ConnectResult::Linked(Box::new(connection)));
                }
                Some(_) | None => return Ok(ConnectResult::NotListening),
            }
        }
    }

    /// Puts a frame into the next sending.
    pub(super) fn queue(&mut self, frame: &ToOwner) -> io::Result<()> {
        frame::put(frame, &mut self.outgoing)
    }

    /// Sends what is queued. An owner that does not take it in time counts as silent.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let sending = self.write.write_all(&self.outgoing);
        tokio::time::timeout(SILENCE, sending)
            .await
            .map_err(|_| io::ErrorKind::TimedOut)??;
        self.outgoing.clear();
        Ok(())
    }

    /// The next frame; `None` when the owner has gone. Cancelling it loses nothing.
    pub(super) async fn next(&mut self) -> io::Result<Option<FromOwner>> {
        let frame = self.frames.next().await?;
        self.heard = now();
        Ok(frame)
    }

    pub(super) fn silent_for(&self) -> Duration {
        now() - self.heard
    }

    /// Starts counting the silence anew: nothing was asked until now.
    pub(super) fn expect_an_answer(&mut self) {
        self.heard = now();
    }
}

#[expect(clippy::disallowed_methods, reason = "the silence of a process is measured in real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "another process needs real time to get on")]
pub(super) async fn wait(time: Duration) {
    tokio::time::sleep(time).await;
}
