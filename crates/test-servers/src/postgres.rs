//! A private PostgreSQL server in a temporary directory, on a free loopback port. It is gone with the test process.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, mpsc};
use std::thread;

use fencehold_contract::{PostgresUrl, StoreUrl};
use fencehold_test_store::pause;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::{locked, scratch};

/// Who serves, where this process is root: PostgreSQL refuses to.
const SERVES: &str = "postgres";
/// The database of those who do not say.
const DATABASE: &str = "postgres";

/// A server and where it listens.
pub struct PostgresServer {
    port: u16,
    directory: Arc<tempfile::TempDir>,
    process: Arc<Mutex<Option<Child>>>,
    starter: mpsc::Sender<mpsc::Sender<()>>,
    shared: OnceLock<Mutex<Admin>>,
}

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// For what is about durability.
    Yes,
    /// For everything else: what is killed there is processes, not machines.
    No,
}

impl PostgresServer {
    /// Makes a server and waits until it answers.
    pub fn start(durable: Durable) -> Self {
        Self::start_with(durable, |_| Vec::new())
    }

    /// The same with more settings, which may name files that are put into its folder.
    pub fn start_with(durable: Durable, more: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let directory = Arc::new(scratch("fencehold-postgres-", durable == Durable::Yes));
        give_to_server(directory.path());
        let data = directory.path().join("data");
        let made = as_server("initdb")
            .arg("-D")
            .arg(&data)
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"])
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success(), "a data directory could not be made");
        let port = free_port();
        let more = more(directory.path());
        let process: Arc<Mutex<Option<Child>>> = Arc::default();
        let (starter, orders) = mpsc::channel::<mpsc::Sender<()>>();
        let (child, place) = (Arc::clone(&process), Arc::clone(&directory));
        // The server dies with the thread that started it, so it is one that stays.
        thread::spawn(move || {
            for started in orders {
                *locked(&child) = Some(launch(place.path(), port, durable, &more));
                let _ = started.send(());
            }
        });
        let cluster = PostgresServer { port, directory, process, starter, shared: OnceLock::new() };
        cluster.start_server();
        cluster
    }

    /// Starts a server that is not running, with the data that it had, and waits until it answers.
    pub fn start_server(&self) {
        let (started, told) = mpsc::channel();
        self.starter.send(started).unwrap();
        told.recv().unwrap();
        for _ in 0..20_000 {
            if Admin::connect(self.port, DATABASE).is_some() {
                return;
            }
            let running = locked(&self.process).as_mut().unwrap().try_wait().unwrap().is_none();
            let log = || std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(running, "the server did not start: {}", log());
            pause();
        }
        panic!("the server does not answer");
    }

    /// What the server said last, but for the statements that it was given.
    pub fn end_of_log(&self) -> String {
        const LINES: usize = 40;
        let log = std::fs::read(self.directory.path().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let said: Vec<&str> = log
            .lines()
            .rev()
            .filter(|line| ["LOG:", "FATAL:", "PANIC:"].iter().any(|level| line.contains(level)))
            .take(LINES)
            .collect();
        said.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Ends the server as `pg_ctl stop -m immediate` does: nothing is written, and the log is replayed at the next start.
    pub fn stop_at_once(&self) {
        if let Some(mut process) = locked(&self.process).take() {
            let pid = rustix::process::Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::QUIT).unwrap();
            process.wait().unwrap();
        }
    }

    /// The store in a schema of this server.
    pub fn url(&self, schema: &str) -> PostgresUrl {
        self.url_in(DATABASE, schema)
    }

    /// The store in a schema of one of its databases.
    pub fn url_in(&self, database: &str, schema: &str) -> PostgresUrl {
        match self.url_text_in(database, schema).parse().unwrap() {
            StoreUrl::Postgres(url) => *url,
            other => panic!("{other}"),
        }
    }

    /// The same as people write it.
    pub fn url_text(&self, schema: &str) -> String {
        self.url_text_in(DATABASE, schema)
    }

    /// The same for one of its databases.
    pub fn url_text_in(&self, database: &str, schema: &str) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/{database}?schema={schema}&max_connections=4&sslmode=disable",
            self.port
        )
    }

    /// A connection that belongs to no store.
    pub fn admin(&self) -> Admin {
        self.admin_in(DATABASE)
    }

    /// A connection that all tests share, for one statement at a time: a new one costs the server as much as a hundred statements.
    pub fn shared(&self) -> MutexGuard<'_, Admin> {
        locked(self.shared.get_or_init(|| Mutex::new(self.admin())))
    }

    /// A connection to one of its databases.
    pub fn admin_in(&self, database: &str) -> Admin {
        Admin::connect(self.port, database).unwrap()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(mut process) = locked(&self.process).take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A session of its own, used from one thread at a time: every call waits for its answer.
pub struct Admin {
    runtime: tokio::runtime::Runtime,
    /// For what the methods here do not do.
    pub client: Client,
}

impl Admin {
    fn connect(port: u16, database: &str) -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let config = format!("host=127.0.0.1 port={port} user=postgres dbname={database}");
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&config, NoTls)).ok()?;
        runtime.spawn(connection);
        Some(Admin { runtime, client })
    }

    /// Runs statements; gives the rows of all of them, as text.
    pub fn try_run(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, tokio_postgres::Error> {
        let messages = self.runtime.block_on(self.client.simple_query(sql))?;
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|nth| row.get(nth).map(str::to_owned)).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    /// The same for statements that must work.
    pub fn run(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.try_run(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// Ends the sessions that are meant, and returns when they have gone.
    pub fn end_sessions(&self, which: &str) {
        let meant = format!("SELECT array_agg(pid)::text FROM pg_stat_activity WHERE {which}");
        let pids = self.value(&meant);
        if pids.is_empty() {
            return;
        }
        self.run(&format!("SELECT pg_terminate_backend(pid) FROM unnest('{pids}'::int[]) AS pid"));
        let left = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY('{pids}'::int[])");
        while self.value(&left) != "0" {
            pause();
        }
    }

    /// The one value of one row.
    pub fn value(&self, sql: &str) -> String {
        self.run(sql)[0][0].clone().unwrap_or_default()
    }
}

/// Gives a file to the user who serves.
pub fn give_to_server(path: &Path) {
    if rustix::process::geteuid().is_root() {
        let given = Command::new("chown").arg(SERVES).arg(path).status().unwrap();
        assert!(given.success(), "there is no user {SERVES}: `cargo xtask servers` installs PostgreSQL");
    }
}

/// A program of PostgreSQL's, as a user that it accepts.
pub fn as_server(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    // It is asked to stop at once, not killed: what it keeps outside its folder would stay behind.
    command.args(["--pdeathsig", "QUIT"]);
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid", SERVES, "--regid", SERVES, "--init-groups"]);
    }
    command
        .arg("--")
        .arg(programs().join(program))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null());
    command
}

/// Where PostgreSQL's programs are: the newest that Debian has installed, or what `FENCEHOLD_POSTGRES` names.
fn programs() -> PathBuf {
    if let Some(named) = std::env::var_os("FENCEHOLD_POSTGRES") {
        return named.into();
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .map(|entry| entry.path())
        .filter(|path| path.join("bin/initdb").exists())
        .max_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let newest = newest.expect("PostgreSQL is not on this machine: `cargo xtask servers` installs it");
    newest.join("bin")
}

fn launch(directory: &Path, port: u16, durable: Durable, more: &[String]) -> Child {
    let log = File::options().create(true).append(true).open(directory.join("log")).unwrap();
    let mut server = as_server("postgres");
    server.arg("-D").arg(directory.join("data")).args(["-p", &port.to_string()]);
    let mut set = |setting: &str| {
        server.args(["-c", setting]);
    };
    set("listen_addresses=127.0.0.1");
    set("unix_socket_directories=");
    set("max_connections=500");
    set("shared_buffers=64MB");
    set("deadlock_timeout=100ms");
    for setting in more {
        set(setting);
    }
    if durable == Durable::No {
        set("fsync=off");
        set("synchronous_commit=off");
        // Tables that were never analysed are taken for large: what takes a moment would be compiled, and shared out among processes.
        set("max_parallel_workers_per_gather=0");
        set("jit=off");
        set("full_page_writes=off");
    }
    server.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}

/// A port that nothing listens on.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A name for a schema or a database that no other test of this process uses.
pub fn fresh_schema() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
