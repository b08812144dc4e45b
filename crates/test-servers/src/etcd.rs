//! A private etcd cluster of three members, as child processes on loopback. It is gone with the test process.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use fencehold_contract::{EtcdUrl, StoreUrl};
use fencehold_test_store::pause;

use crate::{certificate, locked, scratch, until};

/// What is killed here is processes, not machines: nothing must be durable.
const FOLDER: &str = "fencehold-etcd-";
/// How many members a cluster has.
pub const MEMBERS: usize = 3;

/// Three members and where they listen.
pub struct EtcdCluster {
    members: Vec<EtcdMember>,
    starter: mpsc::Sender<(usize, mpsc::Sender<()>)>,
    _directory: Arc<tempfile::TempDir>,
}

struct EtcdMember {
    client_port: u16,
    process: Arc<Mutex<Option<Child>>>,
}

impl EtcdCluster {
    /// Starts three members and waits until they answer.
    pub fn start() -> Self {
        let installed = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
        assert!(installed.is_ok(), "etcd is not on this machine: `cargo xtask servers` installs it");
        let directory = Arc::new(scratch(FOLDER, false));
        let ports = free_ports(2 * MEMBERS);
        let (client_ports, peer_ports) = ports.split_at(MEMBERS);
        let members: Vec<_> = client_ports
            .iter()
            .map(|port| EtcdMember { client_port: *port, process: Arc::default() })
            .collect();
        let processes: Vec<_> = members.iter().map(|member| Arc::clone(&member.process)).collect();
        let (starter, orders) = mpsc::channel::<(usize, mpsc::Sender<()>)>();
        let place = Launch {
            directory: Arc::clone(&directory),
            client_ports: client_ports.to_vec(),
            peer_ports: peer_ports.to_vec(),
        };
        // Members die with the thread that started them, so it is one that stays.
        thread::spawn(move || {
            for (nth, started) in orders {
                *locked(&processes[nth]) = Some(place.launch(nth));
                let _ = started.send(());
            }
        });
        let cluster = EtcdCluster { members, starter, _directory: directory };
        for nth in 0..MEMBERS {
            cluster.start_member(nth);
        }
        for member in &cluster.members {
            let host = format!("127.0.0.1:{}", member.client_port);
            // A read that a quorum has confirmed.
            let ready = until(|| post(&host, "/v3/kv/range", r#"{"key":"AA=="}"#));
            assert!(ready.is_some(), "a cluster could not be started");
        }
        cluster
    }

    /// Starts a member that is not running, with the data that it had.
    pub fn start_member(&self, nth: usize) {
        let (started, told) = mpsc::channel();
        self.starter.send((nth, started)).unwrap();
        told.recv().unwrap();
    }

    /// Ends a member as a power cut does.
    pub fn kill_member(&self, nth: usize) {
        if let Some(mut process) = locked(&self.members[nth].process).take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Stops a member (SIGSTOP), or lets it go on (SIGCONT).
    pub fn signal_member(&self, nth: usize, signal: rustix::process::Signal) {
        let pid = locked(&self.members[nth].process).as_ref().unwrap().id();
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// The store under a prefix, through every member.
    pub fn url(&self, prefix: &str) -> EtcdUrl {
        self.url_through(prefix, &(0..MEMBERS).collect::<Vec<_>>())
    }

    /// The store under a prefix, through some members only, the first of them first.
    pub fn url_through(&self, prefix: &str, members: &[usize]) -> EtcdUrl {
        let hosts: Vec<_> = members
            .iter()
            .map(|nth| format!("127.0.0.1:{}", self.members[*nth].client_port))
            .collect();
        match format!("etcd://{}/{prefix}", hosts.join(",")).parse().unwrap() {
            StoreUrl::Etcd(url) => url,
            other => panic!("{other}"),
        }
    }

    /// Which member leads, by its own word.
    pub fn leader(&self) -> Option<usize> {
        (0..MEMBERS).find(|nth| {
            let running = locked(&self.members[*nth].process).is_some();
            let status = running.then(|| status_of(self.members[*nth].client_port)).flatten();
            status.is_some_and(|(own, leader)| own == leader)
        })
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for nth in 0..MEMBERS {
            self.kill_member(nth);
        }
    }
}

/// The member's own id and its leader's.
fn status_of(port: u16) -> Option<(String, String)> {
    let answer = post(&format!("127.0.0.1:{port}"), "/v3/maintenance/status", "{}")?;
    let status: serde_json::Value = serde_json::from_str(&answer).ok()?;
    let own = status["header"]["member_id"].as_str()?.to_owned();
    Some((own, status["leader"].as_str()?.to_owned()))
}

/// What a member needs to start.
struct Launch {
    directory: Arc<tempfile::TempDir>,
    client_ports: Vec<u16>,
    peer_ports: Vec<u16>,
}

impl Launch {
    fn launch(&self, nth: usize) -> Child {
        let peer = |nth: usize| format!("http://127.0.0.1:{}", self.peer_ports[nth]);
        let client = format!("http://127.0.0.1:{}", self.client_ports[nth]);
        let all: Vec<_> = (0..MEMBERS).map(|nth| format!("m{nth}={}", peer(nth))).collect();
        etcd(&self.directory.path().join(format!("m{nth}")))
            .args(["--name", &format!("m{nth}")])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer(nth), "--initial-advertise-peer-urls", &peer(nth)])
            .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"])
            .spawn()
            .unwrap()
    }
}

/// One member alone, for what a whole cluster is not needed for.
pub struct SingleMember {
    /// Where it listens.
    pub port: u16,
    process: Child,
    _directory: tempfile::TempDir,
}

impl SingleMember {
    /// One that lets in only this user, who may do everything.
    pub fn with_users(user: &str, password: &str) -> Self {
        let member = SingleMember::start("http", &[]);
        let post = |path: &str, body: serde_json::Value| {
            post(&format!("127.0.0.1:{}", member.port), path, &body.to_string()).unwrap();
        };
        post("/v3/auth/user/add", serde_json::json!({ "name": user, "password": password }));
        post("/v3/auth/role/add", serde_json::json!({ "name": "root" }));
        post("/v3/auth/user/grant", serde_json::json!({ "user": user, "role": "root" }));
        post("/v3/auth/enable", serde_json::json!({}));
        member
    }

    /// One that speaks TLS, and only with those who have a certificate of the same authority.
    pub fn with_tls() -> Self {
        let [ca, server, key] =
            ["ca.pem", "server.pem", "server.key"].map(|name| certificate(name).display().to_string());
        let own = ["--cert-file", &server, "--key-file", &key];
        let theirs = ["--client-cert-auth", "--trusted-ca-file", &ca];
        SingleMember::start("https", &[&own[..], &theirs[..]].concat())
    }

    fn start(scheme: &str, more: &[&str]) -> Self {
        let directory = scratch(FOLDER, false);
        let ports = free_ports(2);
        let (port, peer_port) = (ports[0], ports[1]);
        let client = format!("{scheme}://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{peer_port}");
        let process = etcd(&directory.path().join("m"))
            .args(["--name", "m", "--initial-cluster", &format!("m={peer}")])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(more)
            .spawn()
            .unwrap();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            pause();
        }
        SingleMember { port, process, _directory: directory }
    }
}

impl Drop for SingleMember {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A member that keeps its data here, and dies with the thread that starts it.
fn etcd(data: &Path) -> Command {
    let log = File::create(data.with_extension("log")).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--", "etcd", "--logger", "zap", "--log-level", "error"])
        .arg("--data-dir")
        .arg(data)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    command
}

/// Asks the gateway that every member has.
fn post(host: &str, path: &str, body: &str) -> Option<String> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(host).ok()?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).ok()?;
    let length = body.len();
    write!(stream, "POST {path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}

/// Free ports. They are released all together, so that none comes twice.
fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

/// A prefix that no other test of this process uses.
pub fn fresh_prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
