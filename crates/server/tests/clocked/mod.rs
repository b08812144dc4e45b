//! A real server in a process of its own, whose clock the test moves by hand. The shipped server has no such switch.
//!
//! The process is the test binary itself, started with a role. It takes orders on its stdin, one a line, and answers each
//! with a line on its stdout.
#![allow(unreachable_pub, reason = "it is a module of a test program")]
#![allow(clippy::print_stdout, reason = "that is how the process speaks")]

pub mod test_store;

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use fencehold_contract::StoreUrl;
use fencehold_contract::clock::{Clock, ManualClock};
use fencehold_server::Server;
use fencehold_server::access::Access;
use fencehold_stores::open;

use crate::plain_client::runtime;

const STORE: &str = "FENCEHOLD_TEST_STORE";
const CLOCK: &str = "FENCEHOLD_TEST_CLOCK";
const ADDRESS: &str = "FENCEHOLD_TEST_ADDRESS";
/// Any port.
const ANY: &str = "127.0.0.1:0";

/// The process that tests start: the test of this name.
const ROLE: &str = "clocked::a_server_whose_clock_is_moved_by_hand";

/// Not a test of its own: serves if the process was started for that, and never comes back then.
#[test]
fn a_server_whose_clock_is_moved_by_hand() {
    let Ok(store) = std::env::var(STORE) else { return };
    let clock = ManualClock::new();
    if let Some((store_ms, wall_ms)) = std::env::var(CLOCK).unwrap().split_once(' ') {
        clock.advance_ms(store_ms.parse::<u64>().unwrap() - clock.now().store_ms);
        clock.set_wall(wall_ms.parse().unwrap());
    }
    let url: StoreUrl = store.parse().unwrap();
    let store = open(&url, Arc::new(clock.clone())).unwrap();
    runtime().block_on(async {
        let address = std::env::var(ADDRESS).unwrap();
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        println!("\nserving {}", listener.local_addr().unwrap());
        let orders = clock.clone();
        std::thread::spawn(move || {
            for order in std::io::stdin().lines() {
                obey(&orders, &order.unwrap());
                println!("done");
            }
            // What started it has gone.
            std::process::exit(0);
        });
        let server = Server::new(store, Arc::new(clock), Access::default());
        server.serve(listener, std::future::pending()).await.unwrap();
    });
}

fn obey(clock: &ManualClock, order: &str) {
    match order.split_once(' ').unwrap() {
        ("pass", ms) => clock.advance_ms(ms.parse().unwrap()),
        ("wall", ms) => clock.set_wall(ms.parse().unwrap()),
        other => panic!("an unknown order: {other:?}"),
    }
}

/// The test's side of the process.
pub struct ClockedServer {
    child: Child,
    orders: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
    pub url: String,
}

impl ClockedServer {
    /// Starts a server on a store. `clock` is where its clock stands, in store time and wall time, unless it is a fresh one.
    pub fn start(store: &str, clock: Option<(u64, u64)>) -> Self {
        ClockedServer::start_at(store, clock, ANY)
    }

    /// The same at an address of the caller's choice.
    pub fn start_at(store: &str, clock: Option<(u64, u64)>, address: &str) -> Self {
        let clock = clock
            .map(|(store_ms, wall_ms)| format!("{store_ms} {wall_ms}"))
            .unwrap_or_default();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", ROLE, "--nocapture", "--test-threads=1"])
            .env(STORE, store)
            .env(CLOCK, clock)
            .env(ADDRESS, address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = said.by_ref().map(|line| line.expect("a server that speaks"));
        let address = lines.find_map(|line| line.strip_prefix("serving ").map(str::to_owned));
        let address = address.expect("a server that starts");
        ClockedServer { child, orders, said, url: format!("http://{address}") }
    }

    /// Has the process do something, and returns when it has.
    pub fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
        let done = self.said.next().expect("a server that is there").unwrap();
        assert_eq!(done, "done");
    }

    /// `kill -9`. When this returns, it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ClockedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
