//! Which keys callers contend for: how often each was refused to them, to whom last, and how long its line was.
//!
//! Nouns: a [`KeyContention`] is what is known of one key; a [`ContentionLog`] gathers that in memory, of a bounded number of keys. The
//! part of a store that decides about acquisitions, or learns what became of them, has one. Nothing here decides anything, and nothing waits for it.
//!
//! An acquisition counts once, however often it is sent and wherever it polls. It counts on each of the keys that it named.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencehold_core::limits::{
    CONTENDED_KEYS_MAX, CONTENTION_KEPT_MS, CONTENTION_TOTAL_MAX, WAITERS_PER_KEY_MAX,
};
use fencehold_core::wire::AsMoment;
use fencehold_core::{Key, Namespace, Owner, Refusal, Task, Timestamp};
use hashbrown::HashMap;

use crate::clock::Clock;
use crate::{AcquireLeaseRequest, StoreError};

wire! {
    /// Which contended keys to list. Without a field: all of the namespace.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct ListContentionRequest {
        /// Only this key.
        pub key: Option<Key> = None,
        /// Only keys that start with this text.
        pub prefix: Option<String> = None,
    }

    /// The keys of a namespace that callers contended for lately, those that were refused most often first: at most 1 000, so there is no second
    /// page. A key leaves the list an hour after the last refusal and the last waiter.
    #[derive(Default)]
    pub struct ContentionList {
        /// The keys.
        pub keys: Vec<KeyContention>,
    }

    /// How callers contended for a key.
    pub struct KeyContention {
        /// The key.
        pub key: Key,
        /// From when on this is counted: the first refusal or waiter that is remembered.
        #[serde(rename = "begins_at", with = "AsMoment")]
        pub begins_at_ms: u64,
        /// How many acquisitions were refused: another held the key, also at the end of their time to wait, or the line was full.
        pub refused_count: u64,
        /// The last of them.
        pub last_refused: Option<RefusedAcquire> = None,
        /// The most that stood in line at once.
        pub max_waiter_count: u64,
    }

    /// An acquisition that was refused.
    pub struct RefusedAcquire {
        /// Who asked.
        pub owner: Owner,
        /// What for.
        pub task: Option<Task> = None,
        /// When.
        #[serde(rename = "refused_at", with = "AsMoment")]
        pub refused_at_ms: u64,
    }
}

impl ListContentionRequest {
    /// Whether a key is asked for.
    pub fn is_asked_for(&self, key: &Key) -> bool {
        self.key.as_ref().is_none_or(|only| only == key)
            && self
                .prefix
                .as_ref()
                .is_none_or(|prefix| key.as_str().starts_with(prefix.as_str()))
    }
}

impl KeyContention {
    /// Adds what is known elsewhere of the same key.
    pub fn add(&mut self, other: &KeyContention) {
        self.begins_at_ms = self.begins_at_ms.min(other.begins_at_ms);
        self.refused_count = self.refused_count.saturating_add(other.refused_count);
        self.max_waiter_count = self.max_waiter_count.max(other.max_waiter_count);
        let at_ms = |refused: &Option<RefusedAcquire>| refused.as_ref().map(|refused| refused.refused_at_ms);
        if at_ms(&other.last_refused) > at_ms(&self.last_refused) {
            self.last_refused.clone_from(&other.last_refused);
        }
    }
}

impl ContentionList {
    /// In order, and no more than a list may have.
    pub fn of(mut keys: Vec<KeyContention>) -> Self {
        keys.sort_by(|one, other| {
            let by_count = |key: &KeyContention| (key.refused_count, key.max_waiter_count);
            by_count(other).cmp(&by_count(one)).then_with(|| one.key.cmp(&other.key))
        });
        keys.truncate(CONTENDED_KEYS_MAX);
        ContentionList { keys }
    }
}

/// What is gathered of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatheredContention {
    /// What is known.
    pub seen: KeyContention,
    /// When a caller was last refused, or came to stand in line.
    pub last_at: Timestamp,
    /// Its place among all keys, by when each was last contended for.
    touched: u64,
}

impl GatheredContention {
    fn new(key: &Key, now: Timestamp) -> Self {
        let seen = KeyContention {
            key: key.clone(),
            begins_at_ms: now.wall_ms,
            refused_count: 0,
            last_refused: None,
            max_waiter_count: 0,
        };
        GatheredContention { seen, last_at: now, touched: 0 }
    }

    fn is_kept(&self, now: Timestamp) -> bool {
        now.store_ms.saturating_sub(self.last_at.store_ms) <= CONTENTION_KEPT_MS
    }
}

type ContendedKeys = HashMap<Key, GatheredContention>;

/// The contention of the keys that were contended for last. In a namespace it keeps [`CONTENDED_KEYS_MAX`] keys, in all
/// [`CONTENTION_TOTAL_MAX`]: those that were contended for longest ago are forgotten.
#[derive(Debug, Default)]
pub struct ContentionLog {
    namespaces: HashMap<Namespace, ContendedKeys>,
    touches: u64,
    key_count: usize,
}

impl ContentionLog {
    /// An acquisition ended with an error: counts it, if it is one of contention. `waited`: it stood in line until its time was up. Otherwise it
    /// may be one of many tries of a caller that polls: of these the first counts.
    pub fn acquire_failed(
        &mut self,
        now: Timestamp,
        namespace: &Namespace,
        request: &AcquireLeaseRequest,
        error: &StoreError,
        waited: bool,
    ) {
        let is_contention = match error {
            StoreError::Refused { refusal, .. } => matches!(refusal, Refusal::Held { .. }),
            // The line is full. A quota is nothing that callers contend for.
            StoreError::LimitReached { limit, .. } => *limit == WAITERS_PER_KEY_MAX as u64,
            _ => false,
        };
        if is_contention && (waited || request.is_first_sending()) {
            self.refused(now, namespace, request);
        }
    }

    /// An acquisition was refused: counts it on each of its keys.
    pub fn refused(&mut self, now: Timestamp, namespace: &Namespace, request: &AcquireLeaseRequest) {
        for key in &request.any_of {
            let seen = self.touch(now, namespace, key);
            seen.refused_count = seen.refused_count.saturating_add(1);
            seen.last_refused = Some(RefusedAcquire {
                owner: request.owner.clone(),
                task: request.task.clone(),
                refused_at_ms: now.wall_ms,
            });
        }
    }

    /// A caller came to stand in line for a key, in which there are so many now.
    pub fn waits(&mut self, now: Timestamp, namespace: &Namespace, key: &Key, waiter_count: u64) {
        let seen = self.touch(now, namespace, key);
        seen.max_waiter_count = seen.max_waiter_count.max(waiter_count);
    }

    /// What is known of the keys that are asked for.
    pub fn list(
        &self,
        now: Timestamp,
        namespace: &Namespace,
        request: &ListContentionRequest,
    ) -> ContentionList {
        let all = self.namespaces.get(namespace).into_iter().flatten();
        let kept = all.filter(|(key, gathered)| gathered.is_kept(now) && request.is_asked_for(key));
        ContentionList::of(kept.map(|(_, gathered)| gathered.seen.clone()).collect())
    }

    /// Whether nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.key_count == 0
    }

    /// Takes away all that was gathered, to be added up elsewhere.
    pub fn take(&mut self) -> Vec<(Namespace, GatheredContention)> {
        self.key_count = 0;
        let all = std::mem::take(&mut self.namespaces).into_iter();
        all.flat_map(|(namespace, keys)| {
            keys.into_values().map(move |gathered| (namespace.clone(), gathered))
        })
        .collect()
    }

    /// Puts back what could not be added up.
    pub fn put_back(&mut self, now: Timestamp, gathered: Vec<(Namespace, GatheredContention)>) {
        for (namespace, earlier) in gathered.into_iter().filter(|(_, earlier)| earlier.is_kept(now)) {
            let key = earlier.seen.key.clone();
            self.touch(now, &namespace, &key).add(&earlier.seen);
        }
    }

    fn touch(&mut self, now: Timestamp, namespace: &Namespace, key: &Key) -> &mut KeyContention {
        self.make_room();
        self.touches += 1;
        let keys = self.namespaces.entry(namespace.clone()).or_default();
        // Many are forgotten at once, so that one more costs next to nothing.
        if keys.len() >= CONTENDED_KEYS_MAX + CONTENDED_KEYS_MAX / 4 {
            let before = keys.len();
            keep_newest(keys, CONTENDED_KEYS_MAX);
            self.key_count -= before - keys.len();
        }
        let gathered = keys.entry(key.clone()).or_insert_with(|| {
            self.key_count += 1;
            GatheredContention::new(key, now)
        });
        if !gathered.is_kept(now) {
            *gathered = GatheredContention::new(key, now);
        }
        (gathered.last_at, gathered.touched) = (now, self.touches);
        &mut gathered.seen
    }

    /// Where there are too many keys in all, the older half goes.
    fn make_room(&mut self) {
        if self.key_count < CONTENTION_TOTAL_MAX {
            return;
        }
        let mut all: Vec<u64> = self
            .namespaces
            .values()
            .flat_map(HashMap::values)
            .map(|key| key.touched)
            .collect();
        let half = all.len() / 2;
        let (_, oldest, _) = all.select_nth_unstable(half);
        let oldest = *oldest;
        self.namespaces.retain(|_, keys| {
            keys.retain(|_, key| key.touched >= oldest);
            !keys.is_empty()
        });
        self.key_count = self.namespaces.values().map(HashMap::len).sum();
    }
}

/// What the callers of one handle contended for: where no other process decides about acquisitions, and none remembers them.
#[derive(Debug)]
pub struct HandleContention {
    clock: Arc<dyn Clock>,
    log: Mutex<ContentionLog>,
}

impl HandleContention {
    /// Nothing yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        HandleContention { clock, log: Mutex::default() }
    }

    fn log(&self) -> MutexGuard<'_, ContentionLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`ContentionLog::acquire_failed`].
    pub fn acquire_failed(
        &self,
        namespace: &Namespace,
        request: &AcquireLeaseRequest,
        error: &StoreError,
        waited: bool,
    ) {
        self.log().acquire_failed(self.clock.now(), namespace, request, error, waited);
    }

    /// See [`ContentionLog::waits`].
    pub fn waits(&self, namespace: &Namespace, key: &Key, waiter_count: u64) {
        self.log().waits(self.clock.now(), namespace, key, waiter_count);
    }

    /// See [`ContentionLog::list`].
    pub fn list(&self, namespace: &Namespace, request: &ListContentionRequest) -> ContentionList {
        self.log().list(self.clock.now(), namespace, request)
    }

    /// See [`ContentionLog::take`].
    pub fn take(&self) -> Vec<(Namespace, GatheredContention)> {
        self.log().take()
    }

    /// See [`ContentionLog::put_back`].
    pub fn put_back(&self, gathered: Vec<(Namespace, GatheredContention)>) {
        self.log().put_back(self.clock.now(), gathered);
    }

    /// See [`ContentionLog::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.log().is_empty()
    }
}

fn keep_newest(keys: &mut ContendedKeys, count: usize) {
    let mut all: Vec<u64> = keys.values().map(|key| key.touched).collect();
    if let Some(nth) = all.len().checked_sub(count) {
        let (_, oldest, _) = all.select_nth_unstable(nth);
        let oldest = *oldest;
        keys.retain(|_, key| key.touched >= oldest);
    }
}

#[cfg(test)]
mod tests {
    use fencehold_core::HoldId;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp { store_ms: ms, wall_ms: 1_000_000 + ms }
    }

    fn space(name: &str) -> Namespace {
        Namespace::new(name).unwrap()
    }

    fn key(nth: usize) -> Key {
        Key::new(format!("k/{nth}")).unwrap()
    }

    fn request(nth: usize) -> AcquireLeaseRequest {
        let owner = Owner::new(format!("o{nth}")).unwrap();
        AcquireLeaseRequest::new(key(nth), HoldId::from_random([7; 16]), owner, 1_000)
    }

    fn names(log: &ContentionLog, now: Timestamp, namespace: &str) -> Vec<Key> {
        let list = log.list(now, &space(namespace), &ListContentionRequest::default());
        list.keys.into_iter().map(|seen| seen.key).collect()
    }

    #[test]
    fn those_that_were_refused_most_often_come_first() {
        let mut log = ContentionLog::default();
        let n = space("n");
        for nth in [1, 2, 2, 3, 3] {
            log.refused(at(nth), &n, &request(usize::try_from(nth).unwrap()));
        }
        log.waits(at(9), &n, &key(4), 7);
        log.waits(at(9), &n, &key(3), 2);
        log.waits(at(9), &n, &key(3), 1);
        assert_eq!(names(&log, at(9), "n"), [key(3), key(2), key(1), key(4)]);
        let only = ListContentionRequest { key: Some(key(3)), prefix: None };
        let seen = log.list(at(9), &n, &only).keys.remove(0);
        let last = seen.last_refused.as_ref().unwrap();
        assert_eq!((seen.begins_at_ms, seen.refused_count, seen.max_waiter_count), (1_000_003, 2, 2));
        assert_eq!((last.owner.as_str(), last.refused_at_ms), ("o3", 1_000_003));
        let none = ListContentionRequest { key: None, prefix: Some("x".to_owned()) };
        assert_eq!(log.list(at(9), &n, &none).keys, []);
        assert_eq!(names(&log, at(9), "m"), [], "another namespace's");
    }

    #[test]
    fn a_key_leaves_after_an_hour_and_begins_anew() {
        let mut log = ContentionLog::default();
        let n = space("n");
        log.refused(at(5), &n, &request(1));
        assert_eq!(names(&log, at(5 + CONTENTION_KEPT_MS), "n"), [key(1)]);
        assert_eq!(names(&log, at(6 + CONTENTION_KEPT_MS), "n"), []);
        let later = at(6 + CONTENTION_KEPT_MS);
        log.refused(later, &n, &request(1));
        let seen = log.list(later, &n, &ListContentionRequest::default()).keys.remove(0);
        assert_eq!((seen.refused_count, seen.begins_at_ms), (1, later.wall_ms));
    }

    #[test]
    fn the_keys_that_were_contended_for_last_are_kept_and_no_more() {
        let mut log = ContentionLog::default();
        let n = space("n");
        log.refused(at(0), &space("other"), &request(0));
        for nth in 0..3 * CONTENDED_KEYS_MAX {
            log.refused(at(1), &n, &request(nth));
            log.refused(at(1), &n, &request(0));
        }
        let kept = names(&log, at(1), "n");
        assert_eq!((kept.len(), &kept[0]), (CONTENDED_KEYS_MAX, &key(0)));
        assert!(kept.contains(&key(3 * CONTENDED_KEYS_MAX - 1)) && !kept.contains(&key(1)));
        assert_eq!(names(&log, at(1), "other"), [key(0)], "one namespace pushes out nothing of another");
        let count = log.namespaces.values().map(HashMap::len).sum::<usize>();
        assert_eq!(log.key_count, count);
    }

    #[test]
    fn many_namespaces_have_a_bound_together() {
        let mut log = ContentionLog::default();
        for nth in 0..3 * CONTENTION_TOTAL_MAX {
            log.refused(at(1), &space(&format!("n{nth}")), &request(1));
            assert!(log.namespaces.len() <= CONTENTION_TOTAL_MAX);
        }
        assert_eq!(names(&log, at(1), &format!("n{}", 3 * CONTENTION_TOTAL_MAX - 1)), [key(1)]);
        assert_eq!(names(&log, at(1), "n0"), []);
    }

    #[test]
    fn a_caller_that_polls_counts_once_and_a_quota_never() {
        let mut log = ContentionLog::default();
        let n = space("n");
        let refusal = Refusal::Held {
            owner: Owner::new("a").unwrap(),
            task: None,
            remaining_ms: 1,
            token: fencehold_core::Token::new(1),
        };
        let held = StoreError::refused(&key(1), refusal);
        let again = AcquireLeaseRequest { waited_before_ms: 9, ..request(1) };
        let resent = AcquireLeaseRequest { hold_id_age_ms: 1, ..request(1) };
        for request in [&request(1), &again, &resent] {
            log.acquire_failed(at(1), &n, request, &held, false);
        }
        let quota = StoreError::LimitReached { message: "keys".to_owned(), limit: 3 };
        let full = StoreError::LimitReached { message: "line".to_owned(), limit: WAITERS_PER_KEY_MAX as u64 };
        log.acquire_failed(at(1), &n, &request(2), &quota, true);
        log.acquire_failed(at(1), &n, &request(3), &full, true);
        let all = log.list(at(1), &n, &ListContentionRequest::default()).keys;
        let counts: Vec<_> = all.iter().map(|seen| (seen.key.clone(), seen.refused_count)).collect();
        assert_eq!(counts, [(key(1), 1), (key(3), 1)]);
        log.acquire_failed(at(1), &n, &again, &held, true);
        assert_eq!(log.list(at(1), &n, &ListContentionRequest::default()).keys[0].refused_count, 2);
    }

    #[test]
    fn what_was_put_back_adds_up() {
        let mut log = ContentionLog::default();
        let n = space("n");
        log.refused(at(1), &n, &request(1));
        let taken = log.take();
        assert!(log.is_empty() && taken.len() == 1);
        log.refused(at(2), &n, &AcquireLeaseRequest { owner: Owner::new("later").unwrap(), ..request(1) });
        log.put_back(at(3), taken);
        let seen = log.list(at(3), &n, &ListContentionRequest::default()).keys.remove(0);
        assert_eq!((seen.refused_count, seen.begins_at_ms), (2, 1_000_001));
        assert_eq!(seen.last_refused.unwrap().owner.as_str(), "later");
    }
}
