//! An object that lets no stale holder write, on the three clouds.
#![allow(clippy::disallowed_methods, reason = "real servers take real time to start")]
#![allow(clippy::print_stdout, reason = "a process that the test starts tells it what it does")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fencehold::clock::{Clock as _, ManualClock, SystemClock};
use fencehold::fence::{FenceError, FencedObject, KeyToken};
use fencehold::store::{LeaseStore, ListEventsRequest};
use fencehold::{BlockedAction, EventData, Fencehold, Key, Owner, Token};
use fencehold_contract::ObjectUrl;
use fencehold_store_object::{Cas as _, NonceSeed, ObjectStore, Storage, over_after_ms};
use fencehold_test_servers::object::{CLOUDS, ObjectServer};
use rustix::process::{Pid, Signal, kill_process};

/// An object beside the leases of a test.
fn beside(place: &ObjectUrl) -> ObjectUrl {
    let mut object = place.clone();
    object.prefix = format!("{}/report", place.prefix);
    object
}

fn pass(token: u64, owner: &str) -> KeyToken {
    KeyToken::new(Key::new("reports/daily").unwrap(), Token::new(token))
        .with_owner(Owner::new(owner).unwrap())
}

fn assert_stale(answer: Result<(), FenceError>, shown_token: u64, highest_token: u64, by: &str) {
    match answer {
        Err(FenceError::Stale { token: shown, highest_token: highest, raised_by, .. }) => {
            assert_eq!((shown.get(), highest.get()), (shown_token, highest_token));
            assert_eq!(raised_by.as_ref().map(Owner::as_str), Some(by));
        }
        other => panic!("{other:?}"),
    }
}

/// A token below the highest is refused, and what is there stays.
#[tokio::test]
async fn a_stale_holder_is_refused_and_changes_nothing() {
    for server in CLOUDS {
        let object = FencedObject::open_with(beside(&server.place())).await.unwrap();
        assert_eq!(object.read().await.unwrap(), None);
        object.write(pass(33, "A"), "by A\n").await.unwrap();
        object.write(pass(34, "B"), "by B\n").await.unwrap();
        assert_stale(object.write(pass(33, "A"), "late\n").await, 33, 34, "B");
        assert_stale(object.raise(pass(33, "A")).await, 33, 34, "B");
        assert_eq!(object.read().await.unwrap().as_deref(), Some(&b"by B\n"[..]), "{server:?}");
        object.write(pass(34, "B"), "again\n").await.expect("the same token is its own");
        assert_eq!(object.mark().await.unwrap().unwrap().1.token, Token::new(34));
    }
}

/// The object keeps no trace of what it refuses; the store that the holder has its lease from does.
#[tokio::test]
async fn what_a_late_holder_was_refused_is_recorded_in_its_store() {
    let object = FencedObject::open_with(beside(&CLOUDS[0].place())).await.unwrap();
    let fh = Fencehold::connect("memory:").await.unwrap();
    let late = fh.lease("reports/daily").acquire().await.unwrap();
    let old = late.key_token();
    late.release().await.unwrap();
    let next = fh.lease("reports/daily").acquire().await.unwrap();
    object.raise(&next).await.unwrap();
    let recorded = async || {
        let request = ListEventsRequest { limit: 100, ..ListEventsRequest::default() };
        let events = fh.store().list_events(&fh.call(), request).await.unwrap().events;
        let blocked = events.into_iter().filter_map(|event| match event.data {
            EventData::StaleWriteBlocked { token, current_token, action, .. } => {
                Some((token, current_token, action))
            }
            _ => None,
        });
        blocked.collect::<Vec<_>>()
    };
    let refused = (old.token(), next.token(), BlockedAction::Write);
    object.write(old.clone(), "late\n").await.unwrap_err();
    assert_eq!(recorded().await, [refused; 1]);
    object.raise(old).await.unwrap_err();
    assert_eq!(recorded().await, [refused; 2]);
}

/// R18: A (33) is paused, B (34) holds and has not written; raised at acquisition, the fence refuses A all the same, and
/// keeps the content that was there.
#[tokio::test]
async fn a_raised_fence_refuses_the_holder_before_although_nothing_new_was_written() {
    for server in CLOUDS {
        let object = FencedObject::open_with(beside(&server.place())).await.unwrap();
        object.raise(pass(32, "A")).await.unwrap();
        assert_eq!(object.read().await.unwrap(), None, "{server:?}: raised is not written");
        object.write(pass(33, "A"), "by A\n").await.unwrap();
        object.raise(pass(34, "B")).await.unwrap();
        assert_stale(object.write(pass(33, "A"), "late\n").await, 33, 34, "B");
        assert_eq!(object.read().await.unwrap().as_deref(), Some(&b"by A\n"[..]), "{server:?}");
    }
}

/// Whatever the order in which many write at once, what is left is the highest's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_write_at_once_the_highest_is_left() {
    for server in CLOUDS {
        let object = FencedObject::open_with(beside(&server.place())).await.unwrap();
        let mut writes = tokio::task::JoinSet::new();
        for token in 1..=8 {
            let object = object.clone();
            writes.spawn(async move { object.write(pass(token, "any"), format!("{token}")).await });
        }
        for answer in writes.join_all().await {
            assert!(matches!(answer, Ok(()) | Err(FenceError::Stale { .. })), "{answer:?}");
        }
        assert_eq!(object.read().await.unwrap().as_deref(), Some(&b"8"[..]), "{server:?}");
    }
}

/// An object is fenced for one key; and one that was written past a fence is left alone.
#[tokio::test]
async fn another_key_and_an_unfenced_object_are_refused_untouched() {
    let place = ObjectServer::Moto.place();
    let object = FencedObject::open_with(beside(&place)).await.unwrap();
    object.write(pass(5, "A"), "x").await.unwrap();
    let other = KeyToken::new(Key::new("other").unwrap(), Token::new(9));
    let other = object.write(other, "y").await.unwrap_err();
    assert!(other.to_string().contains("fenced for the key reports/daily, not for other"), "{other}");
    let plain = Storage::open(&place).unwrap();
    plain
        .write("plain", None, b"hello".to_vec(), Duration::from_secs(10))
        .await
        .unwrap();
    let mut bare = place.clone();
    bare.prefix = format!("{}/plain", place.prefix);
    let bare = FencedObject::open_with(bare).await.unwrap();
    let refused = bare.write(pass(1, "A"), "z").await.unwrap_err();
    assert!(refused.to_string().contains("not written through a fence"), "{refused}");
}

/// A holder that does not run for longer than its ttl loses its lease to one who has watched; when it wakes, its late
/// write is refused by the object, whatever it believes.
#[tokio::test]
async fn a_holder_that_slept_past_its_ttl_loses_and_its_late_write_is_refused() {
    for server in CLOUDS {
        let place = server.place();
        // Each on a machine of its own: neither boot-time clocks nor wall clocks agree.
        let (holders, contenders) = (ManualClock::new(), ManualClock::new());
        contenders.advance_ms(77_000_000);
        contenders.set_wall(1_800_000_000_000 + 3_600_000);
        let connect = async |clock: &ManualClock, name: &str| {
            let clock = Arc::new(clock.clone());
            let store = ObjectStore::open(&place, clock.clone(), NonceSeed::draw().unwrap()).unwrap();
            let store: Arc<dyn LeaseStore> = Arc::new(store);
            Fencehold::builder()
                .store(store)
                .clock(clock)
                .owner(name)
                .connect()
                .await
                .unwrap()
        };
        let (a, b) = (connect(&holders, "A").await, connect(&contenders, "B").await);
        let object = FencedObject::open_with(beside(&place)).await.unwrap();
        let ttl = Duration::from_secs(30);
        let lease = a.lease("reports/daily").ttl(ttl).acquire().await.unwrap();
        object.write(&lease, "by A\n").await.unwrap();
        // A's clock stands still: it is stopped. B watches on its own.
        assert!(b.lease("reports/daily").ttl(ttl).try_acquire().await.is_err());
        contenders.advance_ms(over_after_ms(30_000) - 1);
        assert!(b.lease("reports/daily").ttl(ttl).try_acquire().await.is_err(), "{server:?}: too early");
        contenders.advance_ms(1);
        let newer = b.lease("reports/daily").ttl(ttl).try_acquire().await.unwrap();
        object.raise(&newer).await.unwrap();
        let late = object.write(&lease, "late\n").await;
        assert!(matches!(late, Err(FenceError::Stale { .. })), "{server:?}: {late:?}");
        assert_eq!(object.read().await.unwrap().as_deref(), Some(&b"by A\n"[..]));
        drop(lease);
        newer.release().await.unwrap();
    }
}

/// Where the storage is, for the process that plays the holder.
const PART: &str = "FENCEHOLD_TEST_HOLDER_AT";
/// Where Debian keeps it.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
const HOUR_MS: u64 = 3_600_000;
const MINUTE_MS: u64 = 60_000;

fn url(name: &str, endpoint: &str) -> String {
    format!("s3://leases/{name}?endpoint={endpoint}&min_ttl_ms=100&min_write_interval_ms=0&probe=off")
}

/// Not a test of its own: the process that the next one starts. It takes the key and writes; when it is asked to, it writes
/// again, whatever has become of its lease.
#[tokio::test]
async fn a_holder_in_a_process_of_its_own() {
    let Ok(endpoint) = std::env::var(PART) else { return };
    let fh = crate::connect_patiently(&url("stopped", &endpoint)).await;
    let object = FencedObject::open(&url("stopped/report", &endpoint)).await.unwrap();
    let lease = fh.lease("reports/daily").ttl(Duration::from_secs(5)).acquire().await.unwrap();
    object.write(&lease, "by A\n").await.unwrap();
    let now = SystemClock.now();
    println!("holding: {} {} {}", lease.token(), now.store_ms, now.wall_ms);
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let late = object.write(&lease, "late\n").await;
    println!("wrote: {late:?}");
    std::process::exit(0);
}

/// A process that is killed at the latest when the test is over.
struct HolderProcess {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl HolderProcess {
    /// One whose wall clock is an hour ahead; every other clock is left as it is.
    fn start(endpoint: &str) -> Self {
        assert!(std::path::Path::new(FAKETIME).exists(), "`cargo xtask servers` installs {FAKETIME}");
        // Not by the program of that name, which would stand between us and the one that is to be stopped.
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fence_object::a_holder_in_a_process_of_its_own"])
            .args(["--nocapture", "--test-threads=1"])
            .envs([("LD_PRELOAD", FAKETIME), ("FAKETIME", "+1h"), ("DONT_FAKE_MONOTONIC", "1")])
            .envs([("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), (PART, endpoint)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        HolderProcess { child, said }
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What it says next about this.
    fn says(&mut self, what: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "it ended before it said {what:?}");
            if let Some((_, rest)) = line.split_once(what) {
                return rest.trim().to_owned();
            }
        }
    }
}

impl Drop for HolderProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same with a real process, whose wall clock is an hour ahead of ours, and which is stopped for longer than its ttl.
#[tokio::test]
async fn a_stopped_process_loses_its_lease_and_its_late_write_is_refused() {
    let endpoint = ObjectServer::Moto.endpoint();
    let mut holder = HolderProcess::start(endpoint);
    let said = holder.says("holding: ");
    let said: Vec<u64> = said.split(' ').map(|number| number.parse().unwrap()).collect();
    let [token, boot_ms, wall_ms] = said[..] else { panic!("{said:?}") };
    let now = SystemClock.now();
    assert!(wall_ms.abs_diff(now.wall_ms + HOUR_MS) < MINUTE_MS, "its wall clock is an hour ahead");
    assert!(boot_ms.abs_diff(now.store_ms) < MINUTE_MS, "its boot-time clock is the machine's");

    holder.send(Signal::STOP);
    let mut place = ObjectServer::Moto.place();
    place.prefix = "stopped".to_owned();
    let store = ObjectStore::open(&place, Arc::new(SystemClock), NonceSeed::draw().unwrap()).unwrap();
    let store: Arc<dyn LeaseStore> = Arc::new(store);
    let fh = Fencehold::builder().store(store).owner("B").connect().await.unwrap();
    let newer = fh.lease("reports/daily").ttl(Duration::from_secs(5)).acquire().await.unwrap();
    assert!(newer.token().get() > token);
    let object = FencedObject::open_with(beside(&place)).await.unwrap();
    object.raise(&newer).await.unwrap();

    holder.send(Signal::CONT);
    writeln!(holder.child.stdin.as_mut().unwrap()).unwrap();
    let late = holder.says("wrote: ");
    assert!(late.starts_with("Err(Stale"), "{late}");
    assert_eq!(object.read().await.unwrap().as_deref(), Some(&b"by A\n"[..]));
    newer.release().await.unwrap();
}
