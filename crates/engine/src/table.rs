//! Every key of the store, in a slab, found by namespace and name.

use std::hash::BuildHasher;

use fencehold_contract::QuotaUsage;
use fencehold_core::lease::{HoldState, LeaseRecord};
use fencehold_core::{Key, Namespace, Token};
use hashbrown::{DefaultHashBuilder, HashTable};

use super::persistence::{Change, StoredNamespace};

/// One key. Kept small: a million of them are in memory.
#[derive(Debug)]
pub(super) struct LeaseSlot {
    pub(super) key: Key,
    pub(super) space: u32,
    /// How long the grant or renewal under way lasts: it came that long before the deadline. 0: unknown.
    pub(super) lasts_ms: u32,
    pub(super) record: LeaseRecord,
    /// While a hold is recorded: when it runs out. Otherwise: when the key may be collected.
    pub(super) deadline_ms: u64,
}

impl LeaseSlot {
    /// Whether the recorded hold is live at this moment.
    pub(super) fn term(&self, now_ms: u64) -> HoldState {
        HoldState::at(now_ms, self.record.hold.as_ref().map(|_| self.deadline_ms))
    }

    /// How long ago the holder was granted its lease, or last renewed it, where that is known.
    pub(super) fn renewed_ms_ago(&self, now_ms: u64) -> Option<u64> {
        let lasts_ms = u64::from(self.lasts_ms);
        (lasts_ms > 0).then(|| now_ms.saturating_sub(self.deadline_ms.saturating_sub(lasts_ms)))
    }

    pub(super) fn is_live(&self, now_ms: u64) -> bool {
        self.term(now_ms).is_live()
    }
}

/// A namespace, by its number.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) name: Namespace,
    pub(super) floor: Token,
    /// The longest ttl that was ever granted in it; 0: none.
    pub(super) longest_ttl_ms: u64,
    /// Nothing is granted in it before this moment, after an advance. `None`: that of the whole store counts.
    pub(super) closed_until_ms: Option<u64>,
    /// What is in it, of what is limited. Its schedules are counted where they are.
    pub(super) used: QuotaUsage,
    /// Whether something is in it, or was. One that was only asked about goes with the last who asks.
    is_kept: bool,
    /// How many are asking about it, or stand in line in it.
    visitors: u32,
}

impl Space {
    /// As it is kept.
    pub(super) fn change(&self) -> Change {
        Change::Namespace(StoredNamespace {
            namespace: self.name.clone(),
            longest_ttl_ms: self.longest_ttl_ms,
            closed_until_ms: self.closed_until_ms,
        })
    }
}

/// The number of a namespace that does not exist.
pub(super) const NOWHERE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(super) struct LeaseTable {
    slots: Vec<Option<LeaseSlot>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    spaces: Vec<Space>,
    space_index: HashTable<u32>,
    vacant_spaces: Vec<u32>,
}

impl LeaseTable {
    /// The number of a namespace in which something was once taken or enqueued.
    pub(super) fn find_space(&self, name: &Namespace) -> Option<u32> {
        let same = |at: &u32| self.spaces[*at as usize].name == *name;
        self.space_index.find(self.hasher.hash_one(name), same).copied()
    }

    /// The number of a namespace in which something is to be. For those who only look, [`LeaseTable::find_space`] makes none.
    pub(super) fn space(&mut self, name: &Namespace) -> u32 {
        let at = self.find_space(name).unwrap_or_else(|| self.make_space(name));
        self.keep_space(at);
        at
    }

    /// The number of a namespace for a caller that may leave nothing in it, until [`LeaseTable::leave_space`].
    pub(super) fn visit_space(&mut self, name: &Namespace) -> u32 {
        let at = self.find_space(name).unwrap_or_else(|| self.make_space(name));
        self.enter_space(at);
        at
    }

    /// One more stands in line in a namespace.
    pub(super) fn enter_space(&mut self, at: u32) {
        self.spaces[at as usize].visitors += 1;
    }

    /// One of those who visited a namespace goes. If nothing was ever in it, the last of them leaves nothing behind.
    pub(super) fn leave_space(&mut self, at: u32) {
        let space = &mut self.spaces[at as usize];
        space.visitors = space.visitors.saturating_sub(1);
        if space.is_kept || space.visitors > 0 {
            return;
        }
        let hash = self.hasher.hash_one(&space.name);
        if let Ok(entry) = self.space_index.find_entry(hash, |other| *other == at) {
            entry.remove();
            self.vacant_spaces.push(at);
        }
    }

    /// Something is in a namespace from now on.
    pub(super) fn keep_space(&mut self, at: u32) {
        self.spaces[at as usize].is_kept = true;
    }

    pub(super) fn name_of(&self, space: u32) -> &Namespace {
        &self.spaces[space as usize].name
    }

    /// A namespace by its number, if it exists.
    pub(super) fn space_at(&self, space: u32) -> Option<&Space> {
        self.spaces.get(space as usize)
    }

    /// What is in a namespace. What damage has put nowhere is counted nowhere.
    pub(super) fn used_mut(&mut self, space: u32) -> Option<&mut QuotaUsage> {
        self.spaces.get_mut(space as usize).map(|space| &mut space.used)
    }

    /// One job less, with so many bytes.
    pub(super) fn uncount_job(&mut self, space: u32, bytes: u32) {
        if let Some(used) = self.used_mut(space) {
            used.job_count = used.job_count.saturating_sub(1);
            used.payload_bytes = used.payload_bytes.saturating_sub(u64::from(bytes));
        }
    }

    pub(super) fn space_mut(&mut self, space: u32) -> &mut Space {
        &mut self.spaces[space as usize]
    }

    /// The namespaces in which something is, or was.
    pub(super) fn kept_spaces(&mut self) -> impl Iterator<Item = &mut Space> {
        self.spaces.iter_mut().filter(|space| space.is_kept)
    }

    /// How many namespaces take up memory.
    #[cfg(test)]
    pub(super) fn namespaces(&self) -> usize {
        self.space_index.len()
    }

    fn make_space(&mut self, name: &Namespace) -> u32 {
        let floor = self.floor_of_a_new_one();
        let space = Space {
            name: name.clone(),
            floor,
            longest_ttl_ms: 0,
            closed_until_ms: None,
            used: QuotaUsage::default(),
            is_kept: false,
            visitors: 0,
        };
        let at = if let Some(at) = self.vacant_spaces.pop() {
            self.spaces[at as usize] = space;
            at
        } else {
            self.spaces.push(space);
            u32::try_from(self.spaces.len() - 1).expect("fewer than 2^32 namespaces")
        };
        let (spaces, hasher) = (&self.spaces, &self.hasher);
        let hash_of = |at: &u32| hasher.hash_one(&spaces[*at as usize].name);
        self.space_index.insert_unique(hasher.hash_one(name), at, hash_of);
        at
    }

    /// A namespace that is new here may not have been new before this store was rewound. `advance` lifts every floor
    /// there is, so the lowest of them is above all that was given before.
    pub(super) fn floor_of_a_new_one(&self) -> Token {
        let kept = self.spaces.iter().filter(|space| space.is_kept);
        kept.map(|space| space.floor).min().unwrap_or(Token::NONE)
    }

    pub(super) fn floor(&self, space: u32) -> Token {
        self.spaces[space as usize].floor
    }

    pub(super) fn find(&self, space: u32, key: &Key) -> Option<u32> {
        let hash = self.hasher.hash_one((space, key));
        let same = |at: &u32| self.at(*at).is_some_and(|slot| slot.space == space && slot.key == *key);
        self.index.find(hash, same).copied()
    }

    pub(super) fn get(&self, space: u32, key: &Key) -> Option<&LeaseSlot> {
        self.at(self.find(space, key)?)
    }

    /// The slot of a key, made if it is new.
    pub(super) fn find_or_insert(&mut self, space: u32, key: &Key) -> u32 {
        if let Some(at) = self.find(space, key) {
            return at;
        }
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 keys")
        });
        self.fill(at, space, key.clone(), LeaseRecord::default(), 0);
        at
    }

    /// Fills an empty slot.
    fn fill(&mut self, at: u32, space: u32, key: Key, record: LeaseRecord, deadline_ms: u64) {
        let hash = self.hasher.hash_one((space, &key));
        // What was kept says when a term ends, not when it began: that follows from the ttl, unless the term was cut short.
        let whole = record
            .hold
            .as_ref()
            .filter(|hold| hold.max_age_ms.is_none() && hold.yield_request.is_none());
        let lasts_ms = whole.and_then(|hold| u32::try_from(hold.ttl_ms).ok()).unwrap_or(0);
        self.slots[at as usize] = Some(LeaseSlot { key, space, lasts_ms, record, deadline_ms });
        self.spaces[space as usize].used.key_count += 1;
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.index.insert_unique(hash, at, |at| {
            slots[*at as usize]
                .as_ref()
                .map_or(0, |slot| hasher.hash_one((slot.space, &slot.key)))
        });
    }

    /// Puts a kept key back where it was. Slots in between are free.
    pub(super) fn restore(&mut self, at: u32, space: u32, key: Key, record: LeaseRecord, deadline_ms: u64) {
        while self.slots.len() <= at as usize {
            self.slots.push(None);
        }
        self.fill(at, space, key, record, deadline_ms);
    }

    /// Finds the free slots after keys were put back.
    pub(super) fn restored(&mut self) {
        let holes = self.slots.iter().enumerate().rev().filter(|(_, slot)| slot.is_none());
        self.free = holes.filter_map(|(at, _)| u32::try_from(at).ok()).collect();
    }

    /// Removes a key and gives its slot back.
    pub(super) fn remove(&mut self, at: u32) -> Option<LeaseSlot> {
        let slot = self.slots[at as usize].take()?;
        let keys = &mut self.spaces[slot.space as usize].used.key_count;
        *keys = keys.saturating_sub(1);
        let hash = self.hasher.hash_one((slot.space, &slot.key));
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == at) {
            entry.remove();
        }
        self.free.push(at);
        Some(slot)
    }

    pub(super) fn at(&self, at: u32) -> Option<&LeaseSlot> {
        self.slots.get(at as usize)?.as_ref()
    }

    pub(super) fn at_mut(&mut self, at: u32) -> Option<&mut LeaseSlot> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// How many slots there are, filled or not.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// How many keys there are.
    pub(super) fn keys(&self) -> u64 {
        self.index.len() as u64
    }
}
