//! Writing without waiting: what commands say on stderr, and a line for each job on stdout.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::output::note;
use crate::process::from_the_background;

/// How many pieces may wait to be written. More are dropped: a reader who does not read must not cost a claim.
const WAITING_MAX: usize = 4_096;

enum OutputPiece {
    Out(String),
    Err(Vec<u8>),
    Note(String),
    End,
}

/// The thread that writes.
#[derive(Debug)]
pub(super) struct OutputThread {
    pieces: SyncSender<OutputPiece>,
    thread: JoinHandle<()>,
}

impl OutputThread {
    pub(super) fn start() -> io::Result<Self> {
        let (pieces, waiting) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("fh-output".to_owned())
            .spawn(move || write(&waiting))?;
        Ok(OutputThread { pieces, thread })
    }

    pub(super) fn writer(&self) -> OutputWriter {
        OutputWriter { pieces: self.pieces.clone() }
    }

    /// Waits until all is written that was given until now.
    pub(super) fn finish(self) {
        if self.pieces.send(OutputPiece::End).is_ok() {
            let _ = self.thread.join();
        }
    }
}

/// Has the thread write something.
#[derive(Clone, Debug)]
pub(super) struct OutputWriter {
    pieces: SyncSender<OutputPiece>,
}

impl OutputWriter {
    /// A line for programs or people, on stdout.
    pub(super) fn line(&self, line: &str) {
        let _ = self.pieces.try_send(OutputPiece::Out(format!("{line}\n")));
    }

    /// What a command said on its stderr.
    pub(super) fn pass_on(&self, bytes: &[u8]) {
        let _ = self.pieces.try_send(OutputPiece::Err(bytes.to_vec()));
    }

    /// Something beside the data, on stderr.
    pub(super) fn note(&self, text: &str) {
        let _ = self.pieces.try_send(OutputPiece::Note(text.to_owned()));
    }
}

fn write(waiting: &Receiver<OutputPiece>) {
    // If nothing reads any more, the work goes on.
    while let Ok(piece) = waiting.recv() {
        let _ = match piece {
            OutputPiece::Out(line) => from_the_background(|| {
                let mut stdout = io::stdout().lock();
                stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush())
            }),
            OutputPiece::Err(bytes) => from_the_background(|| io::stderr().lock().write_all(&bytes)),
            OutputPiece::Note(text) => {
                note(&text);
                Ok(())
            }
            OutputPiece::End => return,
        };
    }
}
