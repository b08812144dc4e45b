//! The servers that stand for the clouds: real processes on free loopback ports, one of each for all tests of a process,
//! which the kernel kills when that process ends, however it ends.

mod gcs;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use fencehold_contract::{ObjectUrl, Scheme};

use crate::{installed, until};

pub use gcs::{GcsServer, GcsWrite, HeldWrite};

/// Storage that tests can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectServer {
    /// S3, by moto. Its requests are carried out one at a time: see the decision on test servers.
    Moto,
    /// Google Cloud Storage, by the server in `gcs.rs`.
    Gcs,
    /// Azure Blob Storage, by azurite.
    Azurite,
    /// Google Cloud Storage, by an emulator that does not keep its conditions.
    Careless,
}

/// One that stands for each of the clouds.
pub const CLOUDS: [ObjectServer; 3] = [ObjectServer::Moto, ObjectServer::Gcs, ObjectServer::Azurite];

/// Does something on every cloud, side by side: for what mostly waits.
pub fn on_every_cloud(act: impl Fn(ObjectServer) + Sync) {
    std::thread::scope(|scope| {
        for server in CLOUDS {
            let act = &act;
            scope.spawn(move || act(server));
        }
    });
}

/// A bucket (or container) that is there on each of them.
const BUCKET: &str = "leases";
/// The account that azurite knows, and its key, which is no secret: it is printed in its documentation.
pub const ACCOUNT: &str = "devstoreaccount1";
/// See [`ACCOUNT`].
pub const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

const MOTO: &str = r#"
import sys, threading
from werkzeug.serving import make_server, WSGIRequestHandler
from moto.server import DomainDispatcherApplication, create_backend_app
WSGIRequestHandler.protocol_version = "HTTP/1.1"
WSGIRequestHandler.log = lambda *_: None
inner, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()
def one_at_a_time(environ, start):
    with lock:
        return [b"".join(inner(environ, start))]
make_server("127.0.0.1", int(sys.argv[1]), one_at_a_time, threaded=True).serve_forever()
"#;

/// Makes a container, which takes a signature.
const CONTAINER: &str = r#"
import base64, hashlib, hmac, sys, urllib.request
from email.utils import formatdate
endpoint, account, key, container = sys.argv[1:]
date = formatdate(usegmt=True)
headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06"
resource = f"/{account}/{account}/{container}\nrestype:container"
text = "PUT" + "\n" * 12 + headers + "\n" + resource
signature = base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()
request = urllib.request.Request(f"{endpoint}/{container}?restype=container", data=b"", method="PUT", headers={
    "x-ms-date": date, "x-ms-version": "2021-08-06", "Content-Type": "", "Authorization": f"SharedKey {account}:{signature}"})
urllib.request.urlopen(request)
"#;

impl ObjectServer {
    /// What a URL of it begins with.
    pub fn scheme(self) -> Scheme {
        match self {
            ObjectServer::Moto => Scheme::S3,
            ObjectServer::Gcs | ObjectServer::Careless => Scheme::Gs,
            ObjectServer::Azurite => Scheme::Az,
        }
    }

    /// Where it listens. It is started by the first to ask.
    pub fn endpoint(self) -> &'static str {
        static STARTED: [OnceLock<String>; 4] = [const { OnceLock::new() }; 4];
        STARTED[self as usize].get_or_init(|| self.start())
    }

    /// A place of its own in the bucket, in which nothing is yet.
    pub fn place(self) -> ObjectUrl {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut place = ObjectUrl::new(self.scheme(), BUCKET, prefix);
        place.endpoint = Some(self.endpoint().to_owned());
        place.options.ttl_ms_min = 100;
        place.options.min_write_interval_ms = 0;
        // Never looked for anywhere else than here: no test asks a cloud for credentials.
        match self {
            ObjectServer::Moto => place.with_keys("test", "test"),
            ObjectServer::Azurite => place.with_keys(ACCOUNT, ACCOUNT_KEY),
            ObjectServer::Gcs | ObjectServer::Careless => place,
        }
    }

    fn start(self) -> String {
        match self {
            ObjectServer::Gcs => GcsServer::start().endpoint(),
            ObjectServer::Moto => {
                let start = |port: u16| {
                    let mut command = Command::new(installed("python/bin/python3"));
                    command.args(["-c", MOTO, &port.to_string()]);
                    command
                };
                let made = |address: SocketAddr| ask(address, &format!("PUT /{BUCKET} HTTP/1.1"));
                format!("http://{}", spawn(start, made))
            }
            ObjectServer::Azurite => {
                let start = |port: u16| {
                    let mut command = Command::new(installed("node/node_modules/.bin/azurite-blob"));
                    let switches =
                        ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"];
                    command
                        .args(switches)
                        .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
                    command
                };
                let endpoint = |address: SocketAddr| format!("http://{address}/{ACCOUNT}");
                let made = |address: SocketAddr| {
                    let mut command = Command::new(installed("python/bin/python3"));
                    command.args(["-c", CONTAINER, &endpoint(address), ACCOUNT, ACCOUNT_KEY, BUCKET]);
                    is_reached(address)
                        && command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
                };
                endpoint(spawn(start, made))
            }
            ObjectServer::Careless => {
                let start = |port: u16| {
                    let mut command = Command::new(installed("python/bin/gcp-storage-emulator"));
                    let port = format!("--port={port}");
                    command.args(["start", "--host=127.0.0.1", &port, "--in-memory"]);
                    command.arg(format!("--default-bucket={BUCKET}"));
                    command
                };
                format!("http://{}", spawn(start, is_reached))
            }
        }
    }
}

/// Starts a server on a free port, and returns when it is ready. A process that answers there and never is has taken the port from it:
/// then it is tried with another one.
fn spawn(command: impl Fn(u16) -> Command, ready: impl Fn(SocketAddr) -> bool) -> SocketAddr {
    static RUNNING: Mutex<Vec<Child>> = Mutex::new(Vec::new());
    for _ in 0..5 {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut child = kill_with_us(command(address.port()));
        let is_ready = until(|| {
            let is_ready = ready(address);
            // One that has ended: another process took the port.
            (is_ready || child.try_wait().unwrap().is_some()).then_some(is_ready)
        });
        if is_ready == Some(true) {
            RUNNING.lock().unwrap().push(child);
            return address;
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    panic!("a server could not be started");
}

/// Starts a process that the kernel kills when the thread that started it ends; that thread lasts as long as we do.
fn kill_with_us(mut command: Command) -> Child {
    let (sender, child) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // A group of its own, so that Ctrl-C reaches the test first.
        command.process_group(0);
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        sender.send(child.expect("setpriv, of util-linux")).unwrap();
        loop {
            std::thread::park();
        }
    });
    child.recv().unwrap()
}

/// Whether a process listens there. A connection to a port without a listener may be given that very port, and reach itself.
fn is_reached(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok_and(|stream| stream.local_addr().is_ok_and(|local| local != address))
}

/// Whether this is answered with success.
fn ask(address: SocketAddr, line: &str) -> bool {
    let said = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        write!(stream, "{line}\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    said().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}
