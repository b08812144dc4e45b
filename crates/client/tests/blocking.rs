//! The same verbs without an executor.

use std::sync::mpsc;
use std::time::Duration;

use fencehold::blocking::{self, Fencehold};
use fencehold::{Error, LeaseState, LostCause, Token};

#[test]
fn a_lease_is_acquired_worked_under_and_released_without_a_runtime() {
    let fh = Fencehold::connect("memory:").expect("a handle");
    let lease = fh.lease("k").task("run-42").ttl(Duration::from_secs(5)).acquire().unwrap();
    assert_eq!((lease.key().as_str(), lease.token(), lease.state()), ("k", Token::new(1), LeaseState::Held));
    assert_eq!(lease.run(|lease| lease.token().get() + 1), Ok(2));
    assert!(matches!(fh.lease("k").try_acquire(), Err(Error::Held { .. })));
    let refused = fh.lease("k").wait(Duration::from_millis(10)).acquire();
    assert!(matches!(refused, Err(Error::Held { .. })), "{refused:?}");
    lease.release().expect("held");
    assert_eq!(fh.lease("k").try_acquire().expect("free again").token(), Token::new(2));
    assert_eq!(fh.ttl_advice("k").map(|advice| advice.samples), Some(2));
}

#[test]
fn a_thread_in_line_gets_its_turn() {
    let fh = Fencehold::connect("memory:").expect("a handle");
    let lease = fh.lease("k").acquire().expect("a lease");
    let other = fh.clone();
    let (sender, turn) = mpsc::channel();
    let (last_sender, last) = mpsc::channel();
    std::thread::spawn(move || {
        let lease = other.lease("k").acquire().expect("its turn");
        sender.send(lease.token()).expect("the test");
        last_sender.send(lease.lost()).expect("the test");
    });
    while blocking::wait(fh.store().status(&fh.call())).expect("a status").waiter_count == 0 {
        std::thread::yield_now();
    }
    lease.release().expect("held");
    assert_eq!(turn.recv_timeout(Duration::from_secs(30)), Ok(Token::new(2)));
    fh.close();
    assert_eq!(last.recv_timeout(Duration::from_secs(30)), Ok(LostCause::Released));
}

#[test]
fn a_short_lease_is_renewed_in_real_time() {
    let fh = Fencehold::connect("memory:").expect("a handle");
    let lease = fh.lease("k").ttl(Duration::from_secs(6)).acquire().expect("a lease");
    let mut watch = lease.watch();
    let mut deadline_ms = watch.changed().expect("news").deadline_ms;
    for _ in 0..2 {
        let next = watch.changed().expect("news");
        assert!(next.deadline_ms > deadline_ms && next.state == LeaseState::Held, "{next:?}");
        deadline_ms = next.deadline_ms;
    }
    lease.release().expect("held");
}

#[test]
fn candidates_on_threads_lead_one_after_the_other() {
    let fh = Fencehold::connect("memory:").expect("a handle");
    let (sender, led) = mpsc::channel();
    std::thread::scope(|scope| {
        for nth in 0..4 {
            let (fh, sender) = (fh.clone(), sender.clone());
            scope.spawn(move || {
                let election = fh.election("leader").owner(format!("candidate-{nth}"));
                let leader = election.campaign().expect("elected");
                sender.send(leader.token().get()).expect("the test");
                leader.resign().expect("led");
            });
        }
    });
    assert_eq!(led.try_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(fh.election("leader").observe().expect("a look").leader().is_none());
}
