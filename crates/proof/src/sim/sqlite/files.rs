//! What is on a simulated disk: what everybody reads, what is certainly there after a power cut, and what is in between.

use std::collections::BTreeMap;

use super::super::disk::DiskEvent;
use super::super::random::SimRandom;

/// What a disk writes or does not write, as a whole.
const SECTOR: usize = 512;

/// One simulated disk.
#[derive(Debug, Default)]
pub(super) struct SimFiles {
    by_name: BTreeMap<String, File>,
    /// Counts the processes that have used it: what an earlier one still does has no effect.
    life: u64,
    /// The next trouble, and after how many operations it comes.
    next: Option<(DiskEvent, u64)>,
    random: Option<SimRandom>,
    power_is_gone: bool,
    /// What was met, until it is asked for.
    met: Vec<DiskEvent>,
}

#[derive(Debug, Default)]
struct File {
    /// As it is read.
    bytes: Vec<u8>,
    /// What is certainly there after a power cut.
    synced: Vec<u8>,
    /// What was written since.
    unsynced: Vec<Write>,
}

#[derive(Debug)]
enum Write {
    Bytes { at: usize, bytes: Vec<u8> },
    Length(usize),
}

/// Why something could not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Full,
    Failed,
}

impl SimFiles {
    pub(super) fn life(&self) -> u64 {
        self.life
    }

    /// The process that used it is gone.
    pub(super) fn is_left(&mut self) {
        self.life += 1;
    }

    /// There is power.
    pub(super) fn open_again(&mut self) {
        self.power_is_gone = false;
    }

    /// Trouble comes after so many operations.
    pub(super) fn meets(&mut self, trouble: DiskEvent, after: u64, seed: u64) {
        self.next = (trouble != DiskEvent::Nothing).then_some((trouble, after));
        self.random = Some(SimRandom::new(seed));
    }

    pub(super) fn met(&mut self) -> Vec<DiskEvent> {
        std::mem::take(&mut self.met)
    }

    pub(super) fn power_is_gone(&self) -> bool {
        self.power_is_gone
    }

    pub(super) fn make(&mut self, name: &str) {
        self.by_name.entry(name.to_owned()).or_default();
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|file| !file.bytes.is_empty())
    }

    pub(super) fn len(&self, name: &str) -> usize {
        self.by_name.get(name).map_or(0, |file| file.bytes.len())
    }

    /// Removing is durable at once: nothing here depends on its order.
    pub(super) fn remove(&mut self, name: &str) -> Result<(), Trouble> {
        if self.power_is_gone {
            return Err(Trouble::Failed);
        }
        self.by_name.remove(name);
        Ok(())
    }

    /// Reads what is there. Returns how many bytes that were; the rest is zeroes.
    pub(super) fn read(&self, name: &str, at: usize, into: &mut [u8]) -> Result<usize, Trouble> {
        if self.power_is_gone {
            return Err(Trouble::Failed);
        }
        let there = self.by_name.get(name).and_then(|file| file.bytes.get(at..)).unwrap_or_default();
        let read = there.len().min(into.len());
        into[..read].copy_from_slice(&there[..read]);
        into[read..].fill(0);
        Ok(read)
    }

    pub(super) fn write(&mut self, name: &str, at: usize, bytes: &[u8]) -> Result<(), Trouble> {
        let met = self.next_operation(false);
        if self.power_is_gone && met.is_none() {
            return Err(Trouble::Failed);
        }
        // What is cut short has begun: any part of it may be there.
        let cut = |random: &mut Option<SimRandom>| {
            let draw = random.as_mut().map_or(0, SimRandom::draw);
            usize::try_from(draw % (bytes.len() as u64 + 1)).unwrap_or(0)
        };
        let (bytes, outcome) = match met {
            Some(DiskEvent::Full) => (&bytes[..cut(&mut self.random)], Err(Trouble::Full)),
            Some(DiskEvent::WriteFails) => (&bytes[..cut(&mut self.random)], Err(Trouble::Failed)),
            Some(_) => (bytes, Err(Trouble::Failed)),
            None => (bytes, Ok(())),
        };
        let file = self.by_name.entry(name.to_owned()).or_default();
        place(&mut file.bytes, at, bytes);
        file.unsynced.push(Write::Bytes { at, bytes: bytes.to_vec() });
        outcome
    }

    pub(super) fn truncate(&mut self, name: &str, len: usize) -> Result<(), Trouble> {
        let met = self.next_operation(false);
        if met.is_some() || self.power_is_gone {
            return Err(Trouble::Failed);
        }
        let file = self.by_name.entry(name.to_owned()).or_default();
        file.bytes.resize(len, 0);
        file.unsynced.push(Write::Length(len));
        Ok(())
    }

    pub(super) fn sync(&mut self, name: &str) -> Result<(), Trouble> {
        let met = self.next_operation(true);
        if self.power_is_gone {
            return Err(Trouble::Failed);
        }
        let Some(file) = self.by_name.get_mut(name) else { return Ok(()) };
        let failed = met.is_some();
        for write in file.unsynced.drain(..) {
            // After a failed sync the system takes for written what may be nowhere: no later sync brings it back.
            let lost = failed && self.random.as_mut().is_some_and(|random| random.per_mille(500));
            if !lost {
                write.reaches(&mut file.synced);
            }
        }
        if failed { Err(Trouble::Failed) } else { Ok(()) }
    }

    /// Counts an operation. The trouble that it meets, if its time has come.
    fn next_operation(&mut self, syncs: bool) -> Option<DiskEvent> {
        let (trouble, after) = self.next.as_mut()?;
        *after = after.saturating_sub(1);
        let comes =
            *after == 0 && (*trouble == DiskEvent::PowerGoes || syncs == (*trouble == DiskEvent::SyncFails));
        let trouble = *trouble;
        if !comes {
            return None;
        }
        self.next = None;
        self.met.push(trouble);
        self.power_is_gone |= trouble == DiskEvent::PowerGoes;
        Some(trouble)
    }

    /// The power goes: every sector that was not synced is there or is not. Returns how many are not.
    pub(super) fn power_cut(&mut self, random: &mut SimRandom) -> usize {
        self.is_left();
        self.next = None;
        let often = random.one_of(&[0, 300, 800, 1_000]);
        let mut lost = 0;
        for file in self.by_name.values_mut() {
            for write in file.unsynced.drain(..) {
                for sector in write.sectors() {
                    if random.per_mille(often) { sector.reaches(&mut file.synced) } else { lost += 1 }
                }
            }
            file.bytes.clone_from(&file.synced);
        }
        lost
    }
}

impl Write {
    fn reaches(&self, synced: &mut Vec<u8>) {
        match self {
            Write::Bytes { at, bytes } => place(synced, *at, bytes),
            Write::Length(len) => synced.resize(*len, 0),
        }
    }

    /// The same in pieces that a disk writes as a whole.
    fn sectors(self) -> Vec<Write> {
        let Write::Bytes { at, bytes } = self else { return vec![self] };
        let mut sectors = Vec::with_capacity(bytes.len() / SECTOR + 2);
        let (mut at, mut rest) = (at, &bytes[..]);
        while !rest.is_empty() {
            let (sector, after) = rest.split_at((SECTOR - at % SECTOR).min(rest.len()));
            sectors.push(Write::Bytes { at, bytes: sector.to_vec() });
            at += sector.len();
            rest = after;
        }
        sectors
    }
}

fn place(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at..end].copy_from_slice(bytes);
}
