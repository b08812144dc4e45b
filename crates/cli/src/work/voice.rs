//! Writing without waiting: what commands say on stderr, and a line for each job on stdout.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::process::from_the_background;

/// How many pieces may wait to be written. More are dropped: a reader who does not read must not cost a claim.
const WAITING_MAX: usize = 4_096;

enum Piece {
    Out(Vec<u8>),
    Err(Vec<u8>),
}

/// Where a shift writes.
#[derive(Clone, Debug)]
pub(crate) struct Voice {
    pieces: SyncSender<Piece>,
}

/// What is written is written before this ends.
#[derive(Debug)]
pub(crate) struct Writing(std::thread::JoinHandle<()>);

impl Voice {
    pub(crate) fn start() -> io::Result<(Voice, Writing)> {
        let (pieces, waiting) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("fh-voice".to_owned())
            .spawn(move || write(&waiting))?;
        Ok((Voice { pieces }, Writing(thread)))
    }

    /// A line for programs or people.
    pub(crate) fn line(&self, line: String) {
        let _ = self.pieces.try_send(Piece::Out(format!("{line}\n").into_bytes()));
    }

    /// What a command said.
    pub(super) fn pass_on(&self, bytes: &[u8]) {
        let _ = self.pieces.try_send(Piece::Err(bytes.to_vec()));
    }
}

impl Writing {
    /// Waits until all is written; every voice must be gone.
    pub(crate) fn finish(self) {
        let _ = self.0.join();
    }
}

fn write(waiting: &Receiver<Piece>) {
    // If nobody reads any more there is nobody to tell; the work goes on.
    while let Ok(piece) = waiting.recv() {
        let _ = from_the_background(|| match piece {
            Piece::Out(bytes) => io::stdout().lock().write_all(&bytes).and_then(|()| io::stdout().flush()),
            Piece::Err(bytes) => io::stderr().lock().write_all(&bytes),
        });
    }
}
