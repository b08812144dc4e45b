//! A disk that keeps exactly what it promises and not a byte more.
//!
//! What was written is seen by every process at once, as in the page cache. A power cut keeps what was synced; of the rest
//! each write is kept, lost or torn, each for itself, and of the changes to a folder only the first few. A sync that
//! fails takes the pages for clean: they are read as written, and are gone after the power cut.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use super::super::disk::{Disk, FileStat, Folder, Name};

#[derive(Clone, Default)]
pub(super) struct SimDisk(Rc<RefCell<Sim>>);

#[derive(Default)]
struct Sim {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<Name, u64>,
    durable_names: BTreeMap<Name, u64>,
    /// Changes to folders that were not synced, oldest first.
    pending_names: Vec<(Folder, NameChange)>,
    made: u64,
    /// How many more operations there are before the process is killed.
    fuel: Option<u32>,
    /// How many more syncs there are before one fails.
    good_syncs: Option<u32>,
    syncs: u32,
}

#[derive(Clone, Default)]
struct Inode {
    durable: Vec<u8>,
    cached: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Cut(usize),
}

#[derive(Clone, Copy)]
enum NameChange {
    Set(Name, u64),
    Gone(Name),
    Moved(Name, Name, u64),
}

/// A stream of choices, from a number.
pub(super) struct Choices(pub(super) u64);

impl Choices {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        let product = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = product.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit.max(1)
    }
}

impl SimDisk {
    /// The process is killed in the middle of its `after`th operation from now.
    pub(super) fn kill_after(&self, after: Option<u32>) {
        self.0.borrow_mut().fuel = after;
    }

    pub(super) fn fail_sync_after(&self, after: Option<u32>) {
        self.0.borrow_mut().good_syncs = after;
    }

    pub(super) fn was_killed(&self) -> bool {
        self.0.borrow().fuel == Some(0)
    }

    pub(super) fn syncs(&self) -> u32 {
        self.0.borrow().syncs
    }

    pub(super) fn content(&self, name: Name) -> Vec<u8> {
        let sim = self.0.borrow();
        sim.names
            .get(&name)
            .map(|inode| sim.inodes[inode].cached.clone())
            .unwrap_or_default()
    }

    pub(super) fn cut_power(&self, seed: u64) {
        let mut chance = Choices(seed);
        let mut sim = self.0.borrow_mut();
        for folder in [Folder::Data, Folder::Fence] {
            let changes = sim.pending_names.iter().filter(|(of, _)| *of == folder);
            let changes: Vec<_> = changes.map(|(_, change)| *change).collect();
            let kept = chance.below(changes.len() + 1);
            for change in &changes[..kept] {
                change.apply(&mut sim.durable_names);
            }
        }
        sim.pending_names.clear();
        sim.names = sim.durable_names.clone();
        for inode in sim.inodes.values_mut() {
            for change in std::mem::take(&mut inode.pending) {
                match (chance.below(4), change) {
                    (0, _) | (2.., Change::Cut(_)) => {}
                    (1, whole) => whole.apply(&mut inode.durable),
                    (2, Change::Write(offset, mut bytes)) => {
                        bytes.truncate(chance.below(bytes.len() + 1));
                        Change::Write(offset, bytes).apply(&mut inode.durable);
                    }
                    (_, Change::Write(offset, bytes)) => {
                        let start = chance.below(bytes.len() + 1);
                        Change::Write(offset + start, bytes[start..].to_vec()).apply(&mut inode.durable);
                    }
                }
            }
            inode.cached = inode.durable.clone();
        }
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Cut(length) => content.resize(*length, 0),
            Change::Write(_, bytes) if bytes.is_empty() => {}
            Change::Write(offset, bytes) => {
                let end = offset + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset..end].copy_from_slice(bytes);
            }
        }
    }
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<Name, u64>) {
        match self {
            NameChange::Set(name, inode) => drop(names.insert(name, inode)),
            NameChange::Gone(name) => drop(names.remove(&name)),
            NameChange::Moved(from, to, inode) => {
                names.remove(&from);
                names.insert(to, inode);
            }
        }
    }
}

fn folder(name: Name) -> Folder {
    if name == Name::Data { Folder::Data } else { Folder::Fence }
}

impl Sim {
    /// One operation less to live for. The error is never seen by anybody: its process is dead.
    fn spend(&mut self) -> io::Result<()> {
        match &mut self.fuel {
            None => Ok(()),
            Some(0) => Err(io::Error::other("killed")),
            Some(fuel) => {
                *fuel -= 1;
                if *fuel == 0 { Err(io::Error::other("killed")) } else { Ok(()) }
            }
        }
    }

    fn rename_change(&mut self, of: Folder, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push((of, change));
    }

    fn inode(&mut self, name: Name) -> io::Result<&mut Inode> {
        let inode = self.names.get(&name).ok_or(io::ErrorKind::NotFound)?;
        self.inodes.get_mut(inode).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change(&mut self, name: Name, change: Change) -> io::Result<()> {
        let inode = self.inode(name)?;
        change.apply(&mut inode.cached);
        inode.pending.push(change);
        Ok(())
    }
}

impl Disk for SimDisk {
    fn stat(&mut self, name: Name) -> io::Result<Option<FileStat>> {
        let mut sim = self.0.borrow_mut();
        sim.spend()?;
        let Some(inode) = sim.names.get(&name).copied() else { return Ok(None) };
        Ok(Some(FileStat { inode, length: sim.inodes[&inode].cached.len() as u64 }))
    }

    fn read(&mut self, name: Name, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let mut sim = self.0.borrow_mut();
        sim.spend()?;
        let content = &sim.inode(name)?.cached;
        let start = content.len().min(usize::try_from(offset).unwrap());
        let end = content.len().min(usize::try_from(offset + length).unwrap());
        Ok(content[start..end].to_vec())
    }

    fn write(&mut self, name: Name, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut sim = self.0.borrow_mut();
        let dead = sim.fuel == Some(0);
        let spent = sim.spend();
        if dead {
            return spent;
        }
        if !sim.names.contains_key(&name) {
            sim.made += 1;
            let made = sim.made;
            sim.inodes.insert(made, Inode::default());
            sim.rename_change(folder(name), NameChange::Set(name, made));
        }
        // The kill comes in the middle of the write.
        let reached = if spent.is_ok() { bytes.len() } else { bytes.len() / 2 };
        sim.change(name, Change::Write(usize::try_from(offset).unwrap(), bytes[..reached].to_vec()))?;
        spent
    }

    fn truncate(&mut self, name: Name, length: u64) -> io::Result<()> {
        let mut sim = self.0.borrow_mut();
        sim.spend()?;
        sim.change(name, Change::Cut(usize::try_from(length).unwrap()))
    }

    fn sync(&mut self, name: Name) -> io::Result<()> {
        let mut sim = self.0.borrow_mut();
        sim.spend()?;
        sim.syncs += 1;
        let fails = sim.good_syncs == Some(0);
        sim.good_syncs = sim.good_syncs.and_then(|left| left.checked_sub(1));
        let inode = sim.inode(name)?;
        let pending = std::mem::take(&mut inode.pending);
        if fails {
            return Err(io::Error::other("the disk fails"));
        }
        for change in &pending {
            change.apply(&mut inode.durable);
        }
        Ok(())
    }

    fn remove(&mut self, name: Name) -> io::Result<()> {
        let mut sim = self.0.borrow_mut();
        sim.spend()?;
        if sim.names.contains_key(&name) {
            sim.rename_change(folder(name), NameChange::Gone(name));
        }
        Ok(())
    }

    fn rename(&mut self, from: Name, to: Name) -> io::Result<()> {
        let mut sim = self.0.borrow_mut();
        sim.spend()?;
        let inode = *sim.names.get(&from).ok_or(io::ErrorKind::NotFound)?;
        if folder(from) == folder(to) {
            sim.rename_change(folder(to), NameChange::Moved(from, to, inode));
        } else {
            // Two folders, two syncs: after a power cut the file may have both names.
            sim.rename_change(folder(to), NameChange::Set(to, inode));
            sim.rename_change(folder(from), NameChange::Gone(from));
        }
        Ok(())
    }

    fn sync_folder(&mut self, folder: Folder) -> io::Result<()> {
        let mut sim = self.0.borrow_mut();
        sim.spend()?;
        sim.syncs += 1;
        let pending = std::mem::take(&mut sim.pending_names).into_iter();
        let (synced, left): (Vec<_>, Vec<_>) = pending.partition(|(of, _)| *of == folder);
        sim.pending_names = left;
        for (_, change) in &synced {
            change.apply(&mut sim.durable_names);
        }
        Ok(())
    }
}
