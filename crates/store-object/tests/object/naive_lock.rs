//! The two classic races of locks in a bucket, each with its naive twin: the same schedule breaks the twin, and does not
//! break the store.

use std::sync::Arc;
use std::time::Duration;

use fencehold_core::Refusal;
use fencehold_store_object::{Cas as _, Cloud, WriteResult};

use crate::fixture::{Fixture, TestGate};
use crate::servers::CLOUDS;

const LIMIT: Duration = Duration::from_secs(10);
const LOCK: &str = "lock";

/// A lock as it is often made: an object with its owner's name, created if absent.
struct NaiveLock {
    name: &'static str,
    cloud: Cloud,
    gate: Arc<TestGate>,
    runtime: tokio::runtime::Runtime,
}

impl NaiveLock {
    fn new(fixture: &Fixture, name: &'static str) -> Self {
        let gate = Arc::new(TestGate::default());
        let cloud = Cloud::behind(&fixture.place, gate.clone()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        NaiveLock { name, cloud, gate, runtime }
    }

    fn create(&self) -> bool {
        let created =
            self.runtime
                .block_on(self.cloud.write(LOCK, None, self.name.as_bytes().to_vec(), LIMIT));
        matches!(created.unwrap(), WriteResult::Won(_))
    }

    fn owner(&self) -> Option<String> {
        let object = self.runtime.block_on(self.cloud.read(LOCK, LIMIT)).unwrap()?;
        Some(String::from_utf8(object.body).unwrap())
    }

    fn delete(&self) {
        self.runtime.block_on(self.cloud.remove(LOCK, LIMIT)).unwrap();
    }

    /// Read, compare, delete.
    fn release(&self) {
        if self.owner().as_deref() == Some(self.name) {
            self.delete();
        }
    }

    /// It has expired: delete it and create it anew.
    fn reclaim(&self) -> bool {
        self.delete();
        self.create()
    }
}

/// Delete after reclaim (R01). A has read its own lock; it expires; B reclaims it; A's delete arrives.
#[test]
fn read_compare_delete_destroys_the_newer_lock_and_our_release_does_not() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (NaiveLock::new(&fixture, "A"), NaiveLock::new(&fixture, "B"));
        assert!(a.create());
        let gate = a.gate.hold_delete();
        let releasing = std::thread::spawn(move || a.release());
        gate.arrived();
        assert!(b.reclaim(), "B has it");
        gate.go();
        releasing.join().unwrap();
        assert_eq!(b.owner(), None, "{server:?}: the twin breaks: B's lock is gone, and B does not know");

        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        let held = a.take("k");
        b.look("k");
        let (released, newer) = a.held_up(|a| a.release(&held), || fixture.taken_over(&b));
        assert!(matches!(released, Err(Refusal::Lost { .. })), "{server:?}: A learns of it");
        let holder = fixture.holder("C").held_by("k");
        assert_eq!(holder, ("B".to_owned(), newer.token), "{server:?}: B's lease is there");
    }
}

/// Double reclaim (R02). A and B have both seen the same dead lock; both take it.
#[test]
fn delete_and_recreate_lets_both_win_and_our_takeover_does_not() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (dead, a, b) =
            (NaiveLock::new(&fixture, "dead"), NaiveLock::new(&fixture, "A"), NaiveLock::new(&fixture, "B"));
        assert!(dead.create());
        let gate = b.gate.hold_delete();
        let reclaiming = std::thread::spawn(move || b.reclaim());
        gate.arrived();
        let a_won = a.reclaim();
        gate.go();
        let b_won = reclaiming.join().unwrap();
        assert!(a_won && b_won, "{server:?}: the twin breaks: both have it");

        let (dead, a, b) = (fixture.holder("dead"), fixture.holder("A"), fixture.holder("B"));
        dead.take("k");
        a.look("k");
        b.look("k");
        fixture.run_out();
        let (reclaimed, _) = b.held_up(|b| b.acquire(b.ask("k")), || a.take("k"));
        assert!(reclaimed.is_err(), "{server:?}: exactly one has it");
    }
}
