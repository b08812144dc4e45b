//! A private PostgreSQL server, on a free loopback port.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{install, process};

/// Who serves, where this process is root: PostgreSQL refuses to.
const SERVES: &str = "postgres";
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// Whatever it is for.
const SETTINGS: [&str; 5] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=300",
    "log_min_messages=fatal",
    "logging_collector=off",
];

/// It and its folder are gone at the end.
pub(crate) struct PrivatePostgres {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl PrivatePostgres {
    /// Installs PostgreSQL if need be, and starts a server with these settings beside ours.
    pub(crate) fn start(settings: &[&str]) -> Result<Self, String> {
        // Its programs are not on the path: Debian keeps those of several versions side by side.
        install::ensure(&["postgresql"])?;
        // A disk that everybody may use: a folder in memory would be synced in no time.
        let folder = PathBuf::from(format!("/var/tmp/fencehold-postgres-{}", std::process::id()));
        let programs = programs()?;
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let (serves_as, data) = (serves_as(&folder)?, folder.join("data"));
        let program = |name: &str| {
            let mut command = Command::new("setpriv");
            command
                .args(["--pdeathsig", "QUIT"])
                .args(&serves_as)
                .arg("--")
                .arg(programs.join(name));
            command.arg("-D").arg(&data).current_dir("/").stdin(Stdio::null());
            command
        };
        process::run(
            program("initdb")
                .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C"])
                .stdout(Stdio::null()),
        )?;
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = port.map_err(|error| format!("no port is free: {error}"))?.port();
        let mut server = program("postgres");
        server.args(["-p", &port.to_string()]);
        for setting in SETTINGS.iter().chain(settings) {
            server.args(["-c", setting]);
        }
        let process = server
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("PostgreSQL cannot be started: {error}"))?;
        let server = PrivatePostgres { process, port, folder };
        let asked = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if asked.elapsed() > STARTS_WITHIN {
                return Err(format!("PostgreSQL did not answer within {STARTS_WITHIN:?}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// Its one database.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// How to become the user who serves, if need be; the folder is theirs.
fn serves_as(folder: &Path) -> Result<Vec<&'static str>, String> {
    if !install::is_root() {
        return Ok(Vec::new());
    }
    process::run(Command::new("chown").arg(SERVES).arg(folder))?;
    Ok(vec!["--reuid", SERVES, "--regid", SERVES, "--init-groups"])
}

/// Where PostgreSQL's programs are: the newest that Debian has installed.
fn programs() -> Result<PathBuf, String> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions
        .map(|entry| entry.path())
        .filter(|path| path.join("bin/initdb").exists())
        .max_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()))
        .map(|path| path.join("bin"))
        .ok_or_else(|| "PostgreSQL is not on this machine: `cargo xtask servers` installs it".to_owned())
}
