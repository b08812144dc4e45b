//! The processes that measure together. The first starts the others, which are this program with the same arguments; they
//! say when they are ready, begin at its word, and hand over what they measured. They share nothing but the store.
//!
//! Where the first is interrupted or dies, the others hear the end of their stdin, and finish what they have begun: a call
//! that was abandoned could still have its effect after all has been deleted.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;

use fencehold_load::{Failed, Measured, Stop};

use crate::output::Output;

const READY: &str = "ready";
const GO: &str = "go";

/// The other end.
pub(super) enum Processes {
    /// Of the first process: the others.
    Children(Vec<BenchProcess>),
    /// Of the others: the first, and its words.
    Parent(Output, mpsc::Receiver<String>),
}

/// One of the others, until it is dropped.
pub(super) struct BenchProcess {
    nth: u16,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Processes {
    /// Starts all but the first, which is this one.
    pub(super) fn start(processes: u16) -> io::Result<Self> {
        (1..processes)
            .map(BenchProcess::start)
            .collect::<io::Result<_>>()
            .map(Processes::Children)
    }

    /// What one of the others hears. It stops when the first has nothing more to say.
    pub(super) fn parent(output: Output, stop: &Stop) -> Self {
        let (sender, words) = mpsc::channel();
        let stop = stop.clone();
        std::thread::spawn(move || {
            let _ = io::stdin().lines().map_while(Result::ok).try_for_each(|word| sender.send(word));
            stop.set();
        });
        Processes::Parent(output, words)
    }

    /// Returns when all are ready.
    pub(super) fn begin(&mut self) -> Result<(), Failed> {
        match self {
            Processes::Children(all) => {
                for process in &mut *all {
                    if process.line()? != READY {
                        return Err(process.failed());
                    }
                }
                for process in all {
                    let stdin = process.stdin.as_mut().ok_or("it is over")?;
                    writeln!(stdin, "{GO}").map_err(|_| process.failed())?;
                }
                Ok(())
            }
            Processes::Parent(output, words) => {
                output.text(READY).map_err(|_| "the first process has gone")?;
                if words.recv().is_ok_and(|word| word == GO) {
                    Ok(())
                } else {
                    Err("the first process has gone".into())
                }
            }
        }
    }

    /// Adds what all others measured to what this one did, or hands it over. Where it was stopped, so are the others: then this
    /// fails once they have finished what they had begun, for what was measured is not all.
    pub(super) fn collect(&mut self, mut measured: Measured, stop: &Stop) -> Result<Measured, Failed> {
        if stop.is_set() {
            if let Processes::Children(all) = self {
                for process in &mut *all {
                    process.stdin = None;
                }
                for process in all {
                    process.child.wait()?;
                }
            }
            return Err("stopped".into());
        }
        match self {
            Processes::Children(all) => {
                for process in all {
                    let line = process.line()?;
                    measured.beside(serde_json::from_str(&line).map_err(|_| process.failed())?);
                }
            }
            Processes::Parent(output, _) => {
                output.line(&measured).map_err(|_| "the first process has gone")?;
            }
        }
        Ok(measured)
    }
}

impl BenchProcess {
    fn start(nth: u16) -> io::Result<BenchProcess> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .args(["--process", &nth.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.ok_or_else(|| io::Error::other("it has no pipes"))?;
        Ok(BenchProcess { nth, child, stdin: Some(stdin), stdout: BufReader::new(stdout) })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    /// It has said why on stderr.
    fn failed(&self) -> Failed {
        format!("process {} of this run ended early", self.nth + 1).into()
    }
}

impl Drop for BenchProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_until_a_stop_is_no_figure() {
        let stop = Stop::default();
        let mut alone = Processes::Children(Vec::new());
        assert!(alone.collect(Measured::default(), &stop).is_ok());
        stop.set();
        assert!(alone.collect(Measured::default(), &stop).is_err());
    }
}
