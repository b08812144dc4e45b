//! The end of the process: what was dropped just before is given back before the process is gone.
//!
//! A guard that is dropped has its lease given back by the handle's own thread, and a process that returns from `main`
//! ends all threads. So the end waits for them, for a moment. Guards that are still alive then are left alone: another
//! thread may be working under them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, Once, Weak};
use std::task::Context;
use std::time::Duration;

use crate::connection::ConnectionInner;
use crate::wake::{WakeFlag, lock};

/// The longest that the end of a process is held up, while a store does not answer.
const EXIT_MS: u64 = 1_000;

static HUBS: Mutex<Vec<Weak<ConnectionInner>>> = Mutex::new(Vec::new());

/// Has the end of the process wait for what this handle's thread has to do.
pub(crate) fn wait_at_exit_for(connection: &Arc<ConnectionInner>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(register);
    let mut hubs = lock(&HUBS);
    hubs.retain(|connection| connection.strong_count() > 0);
    hubs.push(Arc::downgrade(connection));
}

#[expect(unsafe_code, reason = "the end of a process can be waited at in no other way")]
fn register() {
    // SAFETY: the function lives as long as the program, and does not unwind.
    // Where there is no room for it, leases run out as they do after a kill.
    let _ = unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let hubs: Vec<Arc<ConnectionInner>> =
            lock(&HUBS).drain(..).filter_map(|connection| connection.upgrade()).collect();
        for connection in hubs {
            wait(&connection);
        }
    }));
}

fn wait(connection: &ConnectionInner) {
    let wake = Arc::new(WakeFlag::default());
    let waker = Arc::clone(&wake).into();
    let mut done = pin!(connection.background.all_done());
    let until_ms = connection.now_ms().saturating_add(EXIT_MS);
    while done.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        let left_ms = until_ms.saturating_sub(connection.now_ms()).min(EXIT_MS);
        if left_ms == 0 {
            return;
        }
        wake.wait(Some(Duration::from_millis(left_ms)));
        // A clock that is moved by hand stands still: real time has passed all the same.
        if connection.background.are_done() || connection.clock.real_time_until(until_ms).is_none() {
            return;
        }
    }
}
