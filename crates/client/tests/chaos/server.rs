//! The server through which all others work, in a process of its own. It comes back at the address where it was.

use std::sync::Arc;

use fencehold::clock::SystemClock;
use fencehold_server::Server;
use fencehold_server::access::Access;
use tokio::net::TcpListener;

use crate::worker_processes::{TIMEOUT, WorkDirectory, WorkerProcess, this_process};

pub(crate) const NAME: &str = "server";

/// Serves, in a process of its own. Does nothing when it is run as one of the tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server() {
    let Some((_, work_dir)) = this_process().filter(|(name, _)| name == NAME) else { return };
    let store = format!("file:{}?create=true", work_dir.store().display()).parse().unwrap();
    let store = fencehold_stores::open(&store, Arc::new(SystemClock)).unwrap();
    let before = std::fs::read_to_string(work_dir.sign()).ok();
    let before = before.as_deref().and_then(|url| url.strip_prefix("http://"));
    let address = before.unwrap_or("127.0.0.1:0");
    let listener = TcpListener::bind(address).await.unwrap();
    work_dir.put_up_sign(&format!("http://{}", listener.local_addr().unwrap()));
    let server = Server::new(Arc::clone(&store), Arc::new(SystemClock), Access::default());
    let (gone, dismissed) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        std::io::stdin().lines().for_each(drop);
        drop(gone);
    });
    server.serve(listener, async { drop(dismissed.await) }).await.unwrap();
    store.close().await;
}

/// Starts the room's server, and returns when it listens.
pub(crate) fn start(work_dir: &WorkDirectory) -> WorkerProcess {
    let server = WorkerProcess::start("chaos::server::the_server", NAME, work_dir, drop);
    let begun = std::time::Instant::now();
    while !work_dir.sign().exists() {
        assert!(begun.elapsed() < TIMEOUT, "the server does not start");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    server
}
