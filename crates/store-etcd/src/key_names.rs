//! What each thing is called in etcd.
//!
//! ```text
//! PREFIX/store                          the mark: floor, generation, longest ttl
//! PREFIX/closed                         there while nothing is granted, on an etcd lease
//! PREFIX/closed-apart/NAMESPACE         there while the namespace opens by itself, on the etcd lease of the above
//! PREFIX/closed-namespace/NAMESPACE     there while such a namespace is closed, on an etcd lease
//! PREFIX/limits                         what each namespace may have
//! PREFIX/limits/NAMESPACE               what one may have
//! PREFIX/newest-key/NAMESPACE           the last key that was held for the first time, where their number is limited
//! PREFIX/record/NAMESPACE/KEY           the lasting record: token, holder, history
//! PREFIX/held/NAMESPACE/KEY             there while the key is held, on the hold's etcd lease
//! PREFIX/age/NAMESPACE/KEY              there while the hold is within its max_age, on an etcd lease of that length
//! PREFIX/line/NAMESPACE/KEY␀PLACE␀WHO   a place in line, on the waiter's etcd lease
//! PREFIX/waiting/NAMESPACE/WHO          the waiter itself, on the same lease
//! PREFIX/hold-changed/NAMESPACE         the key that was revoked last
//! PREFIX/probe/NUMBER                   there while a probe runs
//! ```
//!
//! A key has no control characters and a namespace no slash, so no name is the beginning of another by accident. WHO is
//! made from the hash of a hold id.

use fencehold_core::{HoldHash, Key, Namespace};

/// Where one store's keys live.
#[derive(Clone, Debug)]
pub(super) struct KeyNames {
    prefix: String,
}

/// The names from the first to before the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRange(pub(super) Vec<u8>, pub(super) Vec<u8>);

impl KeyNames {
    pub(super) fn new(prefix: &str) -> Self {
        KeyNames { prefix: prefix.to_owned() }
    }

    pub(super) fn mark(&self) -> Vec<u8> {
        format!("{}/store", self.prefix).into_bytes()
    }

    /// A key for a probe, with this number in its name.
    pub(super) fn scratch(&self, number: i64) -> Vec<u8> {
        format!("{}/probe/{number:x}", self.prefix).into_bytes()
    }

    /// Where is said that a caller acted on a hold.
    pub(super) fn hold_changed(&self, namespace: &Namespace) -> Vec<u8> {
        format!("{}/hold-changed/{namespace}", self.prefix).into_bytes()
    }

    pub(super) fn closed(&self) -> Vec<u8> {
        format!("{}/closed", self.prefix).into_bytes()
    }

    /// There while a namespace opens by itself, before the store does.
    pub(super) fn closed_apart(&self, namespace: &Namespace) -> Vec<u8> {
        format!("{}/closed-apart/{namespace}", self.prefix).into_bytes()
    }

    /// There while such a namespace is closed.
    pub(super) fn closed_namespace(&self, namespace: &Namespace) -> Vec<u8> {
        format!("{}/closed-namespace/{namespace}", self.prefix).into_bytes()
    }

    #[cfg(feature = "gates")]
    pub(super) fn all_closed_namespaces(&self) -> KeyRange {
        starting_with(format!("{}/closed-namespace/", self.prefix))
    }

    /// The limits of a namespace; `None`: those of every one.
    pub(super) fn limits(&self, namespace: Option<&Namespace>) -> Vec<u8> {
        match namespace {
            Some(namespace) => format!("{}/limits/{namespace}", self.prefix),
            None => format!("{}/limits", self.prefix),
        }
        .into_bytes()
    }

    /// Written with each key that is held for the first time, where their number is limited.
    pub(super) fn newest_key(&self, namespace: &Namespace) -> Vec<u8> {
        format!("{}/newest-key/{namespace}", self.prefix).into_bytes()
    }

    pub(super) fn record(&self, namespace: &Namespace, key: &Key) -> Vec<u8> {
        self.of("record", namespace, key)
    }

    pub(super) fn held(&self, namespace: &Namespace, key: &Key) -> Vec<u8> {
        self.of("held", namespace, key)
    }

    pub(super) fn age(&self, namespace: &Namespace, key: &Key) -> Vec<u8> {
        self.of("age", namespace, key)
    }

    fn of(&self, what: &str, namespace: &Namespace, key: &Key) -> Vec<u8> {
        format!("{}/{what}/{namespace}/{key}", self.prefix).into_bytes()
    }

    /// Every record of a namespace whose key starts with this text.
    pub(super) fn records(&self, namespace: &Namespace, key_prefix: &str) -> KeyRange {
        starting_with(format!("{}/record/{namespace}/{key_prefix}", self.prefix))
    }

    /// Every record of every namespace.
    pub(super) fn all_records(&self) -> KeyRange {
        starting_with(format!("{}/record/", self.prefix))
    }

    pub(super) fn all_held(&self) -> KeyRange {
        starting_with(format!("{}/held/", self.prefix))
    }

    pub(super) fn all_waiting(&self) -> KeyRange {
        starting_with(format!("{}/waiting/", self.prefix))
    }

    /// The namespace and the key that a record's name was made of.
    pub(super) fn key_of(&self, record: &[u8]) -> Option<(Namespace, Key)> {
        let text = std::str::from_utf8(record).ok()?;
        let text = text.strip_prefix(self.prefix.as_str())?.strip_prefix("/record/")?;
        let (namespace, key) = text.split_once('/')?;
        Some((Namespace::new(namespace).ok()?, Key::new(key).ok()?))
    }

    pub(super) fn waiting(&self, namespace: &Namespace, hash: HoldHash) -> Vec<u8> {
        format!("{}/waiting/{namespace}/{}", self.prefix, hex(hash)).into_bytes()
    }

    /// Everybody in line for a key.
    pub(super) fn line(&self, namespace: &Namespace, key: &Key) -> KeyRange {
        starting_with(format!("{}/line/{namespace}/{key}\0", self.prefix))
    }

    /// Those in line who came to the same place: among them, the order of arrival counts.
    pub(super) fn same_place(&self, namespace: &Namespace, key: &Key, place: &QueuePosition) -> KeyRange {
        starting_with(format!("{}/line/{namespace}/{key}\0{}\0", self.prefix, place.0))
    }

    pub(super) fn in_line(
        &self,
        namespace: &Namespace,
        key: &Key,
        place: &QueuePosition,
        hash: HoldHash,
    ) -> Vec<u8> {
        format!("{}/line/{namespace}/{key}\0{}\0{}", self.prefix, place.0, hex(hash)).into_bytes()
    }
}

/// A place in line: sorted as text, smaller is further ahead. Within one place, etcd's revisions tell who
/// came first.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct QueuePosition(String);

impl QueuePosition {
    /// Higher priority first. Then those who stood in line before, at a store that was cut off since: in classes of
    /// twice the time each, because no two clocks are compared here.
    pub(super) fn new(priority: i16, waited_before_ms: u64) -> Self {
        let rank = i32::from(i16::MAX) - i32::from(priority);
        let newness = (waited_before_ms / 1000).leading_zeros();
        QueuePosition(format!("{rank:04x}{newness:02x}"))
    }
}

/// Every name that starts with this text. The texts here end in a character below the last of ASCII, or in a key.
fn starting_with(text: String) -> KeyRange {
    let start = text.into_bytes();
    let mut end = start.clone();
    // UTF-8 has no byte 255, so the last byte can always be raised.
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    KeyRange(start, end)
}

fn hex(hash: HoldHash) -> String {
    format!("{:032x}", u128::from_be_bytes(*hash.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> (KeyNames, Namespace, Key) {
        (KeyNames::new("team/leases"), Namespace::default(), Key::new("gpu/3").unwrap())
    }

    #[test]
    fn a_record_says_whose_it_is() {
        let (names, space, key) = names();
        assert_eq!(names.key_of(&names.record(&space, &key)), Some((space.clone(), key.clone())));
        assert_eq!(names.key_of(&names.held(&space, &key)), None);
    }

    #[test]
    fn a_line_holds_its_own_waiters_and_no_other_keys() {
        let (names, space, key) = names();
        let (hash, place) = (HoldHash::from_bytes([7; 16]), QueuePosition::new(0, 0));
        let KeyRange(from, to) = names.line(&space, &key);
        let within = |name: Vec<u8>| from <= name && name < to;
        assert!(within(names.in_line(&space, &key, &place, hash)));
        let longer = Key::new("gpu/30").unwrap();
        assert!(!within(names.in_line(&space, &longer, &place, hash)));
    }

    #[test]
    fn rank_comes_before_time_stood_elsewhere() {
        let order = [(9, 0), (0, u64::MAX), (0, 60_000), (0, 5_000), (0, 0), (-5, 5_000), (i16::MIN, 0)];
        let places = order.map(|(priority, waited)| QueuePosition::new(priority, waited).0);
        assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
    }
}
