//! The protocol by which a fenced file survives `kill -9` at any instruction, and a power cut.
//!
//! Every step is one frame of the journal, and the frame carries what it will do to the file:
//!
//! 1. the frame is written and synced: from here on the step is decided;
//! 2. its bytes are written to the file, at the place that the frame names, and synced;
//! 3. the lock says that the journal is *in order* up to here; the caller is answered.
//!
//! The next process that takes the lock and does not find the journal in order goes through the last frame again: the same bytes
//! at the same place. A frame is only written when the one before it is in order, so only the last can be unfinished. A
//! frame that is torn was never decided, and is cut off.
//!
//! What is not known to be in order is written again before it is synced: after a failed sync the system may take
//! pages for clean that never reached the disk.
//!
//! A new journal, and a new content of the file, are made whole under another name, synced, and renamed.
//!
//! Deliberately absent: the lock (the caller holds it during every call), and trust in what was in memory after anything
//! failed.

use std::io;

use super::disk::{Disk, Folder, Name};
use super::frame::{self, FrameChain, FrameHead, FrameTarget, HEADER_BYTES, JournalEntry, JournalHeader};
use super::state::FenceState;

/// How long a journal may become beyond twice of what it has to remember, before it is written anew.
pub(super) const SLACK_BYTES: u64 = 1024 * 1024;

/// Why a step was not finished.
#[derive(Debug)]
pub(super) enum StepError {
    /// The disk failed: the step may be decided or not.
    Disk(io::Error),
    /// The journal is not one that can be gone on with. It was left untouched.
    Unusable(String),
}

impl From<io::Error> for StepError {
    fn from(error: io::Error) -> Self {
        StepError::Disk(error)
    }
}

pub(super) struct Journal<D> {
    disk: D,
    state: FenceState,
    remember: usize,
    slack_bytes: u64,
    /// `None`: nothing that is in memory counts, and the journal is to be read from its start.
    read: Option<JournalPosition>,
}

/// How far the journal was read.
#[derive(Clone, Copy, Debug)]
struct JournalPosition {
    inode: u64,
    generation: u64,
    /// Where the first frame ends, which has everything that was remembered when the journal was made.
    base_end: u64,
    last_start: u64,
    /// The check that the last frame follows.
    last_before: FrameChain,
    end: u64,
    check: FrameChain,
}

/// What stands in the lock: up to where which journal is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct VerifiedUpTo {
    generation: u64,
    end: u64,
}

impl<D: Disk> Journal<D> {
    pub(super) fn new(disk: D, remember: usize, slack_bytes: u64) -> Self {
        Journal { disk, state: FenceState::new(remember), remember, slack_bytes, read: None }
    }

    /// What is remembered, as of the last [`enter`](Journal::enter).
    pub(super) fn state(&mut self) -> &mut FenceState {
        &mut self.state
    }

    /// Learns what others did since, and finishes what the last of them may have left unfinished. To be called whenever
    /// the lock was taken, before anything else.
    pub(super) fn enter(&mut self) -> Result<(), StepError> {
        self.or_read_anew(|journal| {
            let in_order = journal.in_order()?;
            journal.catch_up(in_order)?;
            let read = journal.standing()?;
            if in_order != Some(VerifiedUpTo { generation: read.generation, end: read.end }) {
                journal.finish_last(read)?;
            }
            // Only here, where memory and disk say the same: later, memory is a step ahead.
            journal.compact()
        })
    }

    /// One step: remembers these entries, and adds these bytes to the file.
    pub(super) fn append(&mut self, entries: Vec<JournalEntry>, bytes: &[u8]) -> Result<(), StepError> {
        self.or_read_anew(|journal| {
            let target = if bytes.is_empty() { None } else { Some(journal.end_of_data()?) };
            journal.log(FrameHead { entries, target }, bytes)?;
            if let Some(target) = target {
                journal.put(target, bytes)?;
            }
            journal.say_in_order()
        })
    }

    /// One step: remembers these entries, and puts another content in the place of the file.
    pub(super) fn replace(&mut self, entries: Vec<JournalEntry>, content: &[u8]) -> Result<(), StepError> {
        self.or_read_anew(|journal| {
            // A fresh one: after a power cut a file may still have the name that it was renamed from.
            journal.disk.remove(Name::DataNext)?;
            journal.disk.write(Name::DataNext, 0, content)?;
            journal.disk.sync(Name::DataNext)?;
            // Written even if it remembers nothing: an append that is the last frame would be made again, in the new content.
            journal.log(FrameHead { entries, target: None }, &[])?;
            journal.disk.rename(Name::DataNext, Name::Data)?;
            journal.disk.sync_folder(Folder::Data)?;
            journal.say_in_order()
        })
    }

    fn or_read_anew(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<(), StepError>,
    ) -> Result<(), StepError> {
        step(self).inspect_err(|_| self.read = None)
    }

    fn standing(&self) -> Result<JournalPosition, StepError> {
        self.read.ok_or_else(|| io::Error::other("the journal was not read").into())
    }

    fn catch_up(&mut self, in_order: Option<VerifiedUpTo>) -> Result<(), StepError> {
        let Some(stat) = self.disk.stat(Name::Journal)? else {
            if in_order.is_some() {
                return unusable(
                    "its journal is gone, and with it the highest tokens seen; put it back, or remove the whole \
                     folder to begin anew, when no older holder is left that could get through",
                );
            }
            self.state = FenceState::new(self.remember);
            return self.begin(1);
        };
        let known = self.read.filter(|read| read.inode == stat.inode && read.end <= stat.length);
        let mut read = match known {
            Some(read) => read,
            None => self.read_header(stat.inode)?,
        };
        let tail = self.disk.read(Name::Journal, read.end, stat.length - read.end)?;
        let mut rest = &tail[..];
        while let Some(frame) = frame::read(read.check, rest) {
            frame.head.entries.into_iter().for_each(|entry| self.state.apply(entry));
            read.last_start = read.end;
            read.last_before = read.check;
            read.end += frame.length as u64;
            read.check = frame.check;
            if read.base_end == 0 {
                read.base_end = read.end;
            }
            rest = &rest[frame.length..];
        }
        if read.base_end == 0 {
            return unusable("its journal has no first frame; put back a copy of it");
        }
        if !rest.is_empty() {
            if in_order.is_some_and(|known| known.generation == read.generation && known.end > read.end) {
                return unusable(format!(
                    "its journal is damaged at byte {}; put back a copy of it",
                    read.end
                ));
            }
            // The checks tell it from a frame for ever; but everybody would read it again at each step.
            self.disk.truncate(Name::Journal, read.end)?;
        }
        self.read = Some(read);
        Ok(())
    }

    fn read_header(&mut self, inode: u64) -> Result<JournalPosition, StepError> {
        self.state = FenceState::new(self.remember);
        let header = self.disk.read(Name::Journal, 0, HEADER_BYTES as u64)?;
        match frame::read_header(&header) {
            JournalHeader::Ours { generation, check } => Ok(JournalPosition {
                inode,
                generation,
                base_end: 0,
                last_start: 0,
                last_before: check,
                end: HEADER_BYTES as u64,
                check,
            }),
            JournalHeader::OtherVersion => {
                unusable("its journal was written by another version of Fencehold")
            }
            JournalHeader::Foreign => unusable("the journal beside it is a foreign file"),
        }
    }

    /// Goes through the last frame as if it had just been decided.
    fn finish_last(&mut self, read: JournalPosition) -> Result<(), StepError> {
        let raw = self.disk.read(Name::Journal, read.last_start, read.end - read.last_start)?;
        let Some(frame) = frame::read(read.last_before, &raw) else {
            return Err(StepError::Disk(io::Error::other("the journal changed while it was locked")));
        };
        self.disk.write(Name::Journal, read.last_start, &raw)?;
        self.disk.sync(Name::Journal)?;
        self.disk.sync_folder(Folder::Fence)?;
        if let Some(target) = frame.head.target {
            self.make_again(target, frame.bytes)?;
        }
        // It may have replaced the file.
        self.disk.sync_folder(Folder::Data)?;
        self.say_in_order()
    }

    fn make_again(&mut self, target: FrameTarget, bytes: &[u8]) -> Result<(), StepError> {
        let end = target.offset + bytes.len() as u64;
        let stat = self.disk.stat(Name::Data)?;
        // What stands between the offset and the end of the file is then this frame's, whatever a power cut made of it.
        let unfinished = stat.is_some_and(|stat| {
            stat.inode == target.inode && stat.length >= target.offset && stat.length <= end
        });
        let whole = stat.is_some() && self.disk.read(Name::Data, target.offset, bytes.len() as u64)? == bytes;
        if unfinished || whole {
            return self.put(target, bytes);
        }
        // Someone moved, cut or wrote the file without the fence. Nothing of theirs is touched, and nothing of ours lost.
        tracing::warn!(
            offset = target.offset,
            "the fenced file was changed from outside; an unfinished append goes to its end"
        );
        let target = self.end_of_data()?;
        self.log(FrameHead { entries: Vec::new(), target: Some(target) }, bytes)?;
        self.put(target, bytes)
    }

    fn put(&mut self, target: FrameTarget, bytes: &[u8]) -> Result<(), StepError> {
        self.disk.write(Name::Data, target.offset, bytes)?;
        self.disk.sync(Name::Data)?;
        if target.offset == 0 {
            // The file was made for this, or for an append that was never decided.
            self.disk.sync_folder(Folder::Data)?;
        }
        Ok(())
    }

    /// Where the next byte goes. The file is made if it is missing.
    fn end_of_data(&mut self) -> Result<FrameTarget, StepError> {
        if self.disk.stat(Name::Data)?.is_none() {
            self.disk.write(Name::Data, 0, &[])?;
        }
        match self.disk.stat(Name::Data)? {
            Some(stat) => Ok(FrameTarget { inode: stat.inode, offset: stat.length }),
            None => Err(StepError::Disk(io::Error::other("the file vanished as soon as it was made"))),
        }
    }

    /// Decides a step: from here on it is carried out, by any process.
    fn log(&mut self, head: FrameHead, bytes: &[u8]) -> Result<(), StepError> {
        let read = self.standing()?;
        let Some((frame, check)) = frame::write(read.check, &head, bytes) else {
            return Err(StepError::Disk(io::Error::other("the step is too large for the journal")));
        };
        self.disk.write(Name::Journal, read.end, &frame)?;
        self.disk.sync(Name::Journal)?;
        self.read = Some(JournalPosition {
            last_start: read.end,
            last_before: read.check,
            end: read.end + frame.len() as u64,
            check,
            ..read
        });
        Ok(())
    }

    /// Writes the journal anew once most of it is history. Each byte is so written twice at most, on average.
    fn compact(&mut self) -> Result<(), StepError> {
        let read = self.standing()?;
        if read.end > self.slack_bytes.saturating_add(read.base_end.saturating_mul(2)) {
            self.begin(read.generation + 1)?;
            self.say_in_order()?;
        }
        Ok(())
    }

    /// A journal of which the first frame is everything that is remembered.
    fn begin(&mut self, generation: u64) -> Result<(), StepError> {
        let (mut bytes, last_before) = frame::write_header(generation);
        let head = FrameHead { entries: self.state.entries(), target: None };
        let Some((frame, check)) = frame::write(last_before, &head, &[]) else {
            return Err(StepError::Disk(io::Error::other("there is too much to remember for one journal")));
        };
        let last_start = bytes.len() as u64;
        bytes.extend(frame);
        self.disk.remove(Name::JournalNext)?;
        self.disk.write(Name::JournalNext, 0, &bytes)?;
        self.disk.sync(Name::JournalNext)?;
        self.disk.rename(Name::JournalNext, Name::Journal)?;
        self.disk.sync_folder(Folder::Fence)?;
        let Some(stat) = self.disk.stat(Name::Journal)? else {
            return Err(StepError::Disk(io::Error::other("the journal vanished as soon as it was made")));
        };
        let end = stat.length;
        self.read = Some(JournalPosition {
            inode: stat.inode,
            generation,
            base_end: end,
            last_start,
            last_before,
            end,
            check,
        });
        Ok(())
    }

    fn in_order(&mut self) -> Result<Option<VerifiedUpTo>, StepError> {
        let Some(stat) = self.disk.stat(Name::Lock)? else { return Ok(None) };
        let note = self.disk.read(Name::Lock, 0, stat.length)?;
        Ok(frame::read_note(&note).map(|(generation, end)| VerifiedUpTo { generation, end }))
    }

    /// Not synced: should it be lost, the last frame is gone through once more, which changes nothing.
    fn say_in_order(&mut self) -> Result<(), StepError> {
        let read = self.standing()?;
        self.disk.write(Name::Lock, 0, &frame::write_note(read.generation, read.end))?;
        Ok(())
    }
}

fn unusable<T>(why: impl Into<String>) -> Result<T, StepError> {
    Err(StepError::Unusable(why.into()))
}
