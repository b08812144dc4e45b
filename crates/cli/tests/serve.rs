//! `fencehold serve` as people run it: who may start it where, tokens, settings, systemd, its end; and eight thousand
//! connections that say nothing.
#![allow(clippy::disallowed_methods, reason = "real processes live in real time")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fencehold_contract::http::{HttpOperation as _, op};
use fencehold_test_servers::is_alone;
use rustix::process::{Resource, Signal, getrlimit, setrlimit};

use serde_json::json;

use crate::support::{
    self, CommandOutput, RunningProcess, TestDirectory, assert_has, each, eventually, found, said,
};

/// Of an authority for tests.
fn certificate(name: &str) -> String {
    fencehold_test_servers::certificate(name).display().to_string()
}

/// A server that has said where it listens.
struct Serving {
    running: RunningProcess,
    address: String,
    said: Vec<String>,
    /// To the end: a full pipe would stop it.
    rest: Option<std::thread::JoinHandle<String>>,
}

impl Serving {
    fn start(dir: &TestDirectory, options: &str) -> Self {
        Serving::spawn(dir.command(&format!("serve --listen 127.0.0.1:0 {options}")))
    }

    fn spawn(mut command: std::process::Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let address = loop {
            let line = lines.next().unwrap_or_else(|| panic!("it ended: {said:?}")).unwrap();
            said.push(line.clone());
            let text = if line.starts_with('{') { message(&line) } else { line };
            if let Some((_, address)) = text.split_once("://").filter(|_| text.contains("serving ")) {
                // Of several addresses the first.
                break address.split(" and ").next().unwrap_or_default().to_owned();
            }
        };
        let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>().join("\n"));
        Serving { running: RunningProcess::adopt(child), address, said, rest: Some(rest) }
    }

    fn ask(&self, token: &str, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let authorization =
            if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
        let head = "host: localhost\r\nconnection: close\r\n";
        let _ = write!(stream, "GET {path} HTTP/1.1\r\n{head}{authorization}\r\n");
        hear(stream)
    }

    fn memory_kb(&self) -> u64 {
        let pid = self.running.pid().as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Tells it to stop; what it said on the way, and its exit code.
    fn stop(mut self) -> (i32, String) {
        self.running.send(Signal::TERM);
        let code = support::code(self.running.child.wait().unwrap());
        (code, self.rest.take().unwrap().join().unwrap())
    }
}

/// What a line of the log says that is an object.
fn message(line: &str) -> String {
    let object: serde_json::Value =
        serde_json::from_str(line).unwrap_or_else(|_| panic!("no object: {line}"));
    assert!(object["timestamp"].is_string() && object["level"].is_string(), "{line}");
    object["message"].as_str().unwrap().to_owned()
}

fn hear(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text)
}

fn token(dir: &TestDirectory, words: &str) -> String {
    dir.succeeds(&format!("access-token create {words}")).out.trim().to_owned()
}

#[test]
fn an_address_that_others_can_reach_needs_a_token_or_an_explicit_word() {
    let dir = TestDirectory::new();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let advice = ["fencehold access-token create", "--insecure"];
        let said = dir.fails(&format!("serve --listen {address}"), 2, &advice);
        said.says(&["can be reached from other machines, and no token was made yet"]);
    }
    let open = Serving::spawn(dir.command("serve --listen 0.0.0.0:0 --insecure"));
    assert!(open.said.iter().any(|line| line.contains("INSECURE")), "{:?}", open.said);
    drop(open);
    token(&dir, "ops --scope admin");
    let closed = Serving::spawn(dir.command("serve --listen 0.0.0.0:0"));
    assert!(!closed.said.iter().any(|line| line.contains("open to")), "{:?}", closed.said);
}

#[test]
fn on_this_machine_nobody_is_asked_for_a_token_until_there_is_one() {
    let dir = TestDirectory::new();
    let open = Serving::start(&dir, "");
    let warning = "open to every program on this machine";
    assert!(open.said.iter().any(|line| line.contains(warning)), "{:?}", open.said);
    assert_eq!(open.ask("", "/v1/leases").0, 200);
    assert_eq!(open.stop().0, 0);
    let named = Serving::spawn(dir.command("serve --listen localhost:0"));
    assert_eq!(named.ask("", "/v1/leases").0, 200, "a name for this machine: {:?}", named.said);
    assert_eq!(named.stop().0, 0);
    let secret = token(&dir, "ops --scope lease:read");
    let closed = Serving::start(&dir, "");
    assert_eq!(closed.ask("", "/v1/leases").0, 401);
    assert_eq!(closed.ask(&secret, "/v1/leases").0, 200);
}

#[test]
fn tokens_are_made_listed_and_revoked_beside_a_running_server() {
    let dir = TestDirectory::new();
    let first = token(&dir, "first --scope lease:read");
    let server = Serving::start(&dir, "");
    let second = token(&dir, "second --scope lease:read,job:work --expires-in 1h");
    eventually("the new token is known", || server.ask(&second, "/v1/leases").0 == 200);
    let said = dir.fencehold("access-token ls -o json");
    let listed = &said.json()["access_tokens"];
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let named = found(listed, "name", "second");
    assert_eq!(named["scopes"], json!(["lease:read", "job:work"]));
    assert!(named["expires_at"].is_string());
    for secret in [&first, &second] {
        assert!(!said.out.contains(secret.rsplit('_').next().unwrap()), "a secret is listed");
    }
    let id = named["id"].as_str().unwrap();
    dir.succeeds(&["access-token", "revoke", id, "--reason", "a test"]);
    let began = Instant::now();
    eventually("the token is refused", || server.ask(&second, "/v1/leases").0 == 401);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(server.ask(&first, "/v1/leases").0, 200);
    assert_eq!(server.stop().0, 0);
    // When it was used is noted at the latest when the server stops.
    let used = dir.json("access-token ls");
    assert!(used["access_tokens"][0]["last_used_at"].is_string(), "{used}");
    let audit = dir.json("audit ls");
    let (create, revoke) = (op::CreateAccessToken::SPEC.name, op::RevokeAccessToken::SPEC.name);
    assert_eq!(each(&audit["entries"], "action"), [create, create, revoke]);
    assert_eq!(audit["entries"][2]["reason"], "a test");
    dir.fails("access-token revoke ffffffffffff", 1, &["there is no token ffffffffffff"]);
}

#[test]
fn settings_come_from_flags_then_variables_then_the_file_and_what_is_unknown_is_named() {
    let dir = TestDirectory::new();
    let file = dir.path("server.toml");
    let text = "shutdown_grace = '3s'\n[limits]\nconnections = 77\nheader_timeout = '3s'\n";
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let mut command = dir.command(&["config", "check", "--config", path, "-o", "json"]);
    command.env("FENCEHOLD_SERVE_LIMITS_CONNECTIONS", "66");
    let settings = &said(&mut command).ended(0).json()["settings"];
    let connections = json!({ "value": "66", "source": "FENCEHOLD_SERVE_LIMITS_CONNECTIONS" });
    assert_has(found(settings, "name", "limits.connections"), &connections);
    assert_eq!(found(settings, "name", "limits.header_timeout")["source"], path);
    assert!(found(settings, "name", "listen")["source"].is_null());
    // What is wrong with a file is found by the check as by the server itself, before anything is started.
    for (text, wrong) in [
        ("[limits]\nconections = 77\n", "limits.conections is not a setting"),
        ("[tls]\ncert = '/nowhere/cert.pem'\nkey = '/nowhere/key.pem'\n", "/nowhere/cert.pem"),
        ("[traces]\notlp = 'collector:4318'\n", "traces.otlp"),
        ("[traces]\notlp = 'https://c:1'\nca = '/nowhere/ca.pem'\n", "/nowhere/ca.pem"),
        ("[log]\nlevel = 'fencehold=loud'\n", "log.level"),
        ("listen = 'localhost'\n", "listen: \"localhost\" is not HOST:PORT"),
        ("require_tokens = true\n", "require_tokens is not a setting; there are listen, store, access_file"),
    ] {
        std::fs::write(&file, text).unwrap();
        for verb in ["config check", "serve"] {
            dir.fails(&format!("{verb} --config {path}"), 2, &[wrong]);
        }
    }
}

#[test]
fn systemd_is_told_when_it_is_ready_and_when_it_stops() {
    let dir = TestDirectory::new();
    let path = dir.path("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = dir.command("serve --listen 127.0.0.1:0 --log-format json");
    command.env("NOTIFY_SOCKET", &path);
    let server = Serving::spawn(command);
    let told = || {
        let mut buffer = [0; 1_000];
        let length = systemd.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let ready = told();
    assert!(ready.starts_with("READY=1\nSTATUS=serving file:"), "{ready}");
    assert_eq!(server.ask("", "/readyz").0, 200);
    let mut lines = server.said.clone();
    let (code, rest) = server.stop();
    assert!(told().starts_with("STOPPING=1\n"));
    assert_eq!(code, 0);
    lines.extend(rest.lines().map(str::to_owned));
    let said: Vec<String> = lines.iter().map(|line| message(line)).collect();
    assert!(said.iter().any(|text| text.starts_with("stopping: ")), "every line is an object: {said:?}");
}

#[test]
fn the_unit_is_one_that_systemd_understands() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/fencehold.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let dir = TestDirectory::new();
    let path = dir.path("fencehold.service");
    // Verified with the program where it is: it is not installed on this machine.
    std::fs::write(&path, unit.replace("/usr/bin/fencehold", env!("CARGO_BIN_EXE_fencehold"))).unwrap();
    let Ok(verified) = std::process::Command::new("systemd-analyze").arg("verify").arg(&path).output() else {
        println!("systemd-analyze is not on this machine, so the unit was not verified");
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(verified.status.success() && !said.contains("fencehold.service"), "{said}");
}

#[test]
fn eight_thousand_idle_connections_are_borne_and_others_are_served() {
    const IDLE: usize = 8_000;
    // The limit of open files is the process's.
    if !is_alone("serve::eight_thousand_idle_connections_are_borne_and_others_are_served") {
        return;
    }
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(limit.current.is_none_or(|files| files > 9_000), "this test needs 9000 open files");
    let dir = TestDirectory::new();
    let server = Serving::start(&dir, "--set limits.connections=5000 --set limits.header_timeout=60s");
    let before_kb = server.memory_kb();
    // One that is held: it stands in line all the while.
    let lease = dir.json("lease acquire k --ttl 5m");
    let mut waits = TcpStream::connect(&server.address).unwrap();
    let request =
        json!({ "key": "k", "hold_id": "ab".repeat(16), "owner": "o", "ttl_ms": 30_000, "wait_ms": 300_000 });
    let body = request.to_string();
    let length = body.len();
    write!(waits, "POST /v1/leases/acquire HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    // One that will be used again.
    let mut kept = TcpStream::connect(&server.address).unwrap();
    let mut ask = |path: &str| {
        write!(kept, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut head = [0; 12];
        kept.read_exact(&mut head).unwrap();
        let mut rest = vec![0; 65_536];
        let _ = kept.read(&mut rest).unwrap();
        String::from_utf8_lossy(&head).into_owned()
    };
    assert_eq!(ask("/livez"), "HTTP/1.1 200");
    let idle: Vec<TcpStream> = (0..IDLE).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    eventually("one more is turned away", || server.ask("", "/livez").0 == 503);
    assert_eq!(ask("/livez"), "HTTP/1.1 200", "who is connected is served");
    let grown_kb = server.memory_kb().saturating_sub(before_kb);
    println!("{IDLE} connections, of which 5000 are let in: {grown_kb} kB more");
    assert!(grown_kb < 150_000, "{grown_kb} kB for five thousand connections");
    let released = json!({ "key": "k", "hold_id": lease["hold_id"], "token": lease["token"] }).to_string();
    let length = released.len();
    write!(kept, "POST /v1/leases/release HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{released}").unwrap();
    let (status, text) = hear(waits);
    assert_eq!(status, 200, "who stood in line is granted: {text}");
    drop(idle);
    eventually("there is room again", || server.ask("", "/livez").0 == 200);
    assert_eq!(server.stop().0, 0);
}

#[test]
fn an_open_server_asks_for_tokens_once_there_is_one() {
    let dir = TestDirectory::new();
    let server = Serving::start(&dir, "");
    assert_eq!(server.ask("", "/v1/leases").0, 200);
    let secret = token(&dir, "ops --scope lease:read");
    eventually("a token is asked for", || server.ask("", "/v1/leases").0 == 401);
    assert_eq!(server.ask(&secret, "/v1/leases").0, 200);
}

#[test]
fn a_lost_access_file_does_not_open_a_store_that_had_tokens() {
    let dir = TestDirectory::new();
    token(&dir, "ops --scope lease:read");
    let server = Serving::start(&dir, "");
    let mark = "--namespace fencehold.access lease get tokens";
    eventually("the store remembers", || !dir.fencehold(mark).out.contains("never held"));
    assert_eq!(server.stop().0, 0);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(dir.path(&format!("leases/access.db{suffix}")));
    }
    dir.fails("serve --listen 127.0.0.1:0", 2, &["was served with tokens before", "require_access_tokens"]);
    let told = Serving::start(&dir, "--set require_access_tokens=false");
    assert_eq!(told.ask("", "/v1/leases").0, 200);
    drop(told);
    let fresh = TestDirectory::new();
    let closed = Serving::start(&fresh, "--set require_access_tokens=true");
    assert_eq!(closed.ask("", "/v1/leases").0, 401);
}

/// A command line that knows a server, and nothing else.
fn through(dir: &TestDirectory, server: &Serving, secret: &str, words: &str) -> CommandOutput {
    let mut command = dir.command(words);
    command.env("FENCEHOLD_STORE", format!("http://{}", server.address));
    if !secret.is_empty() {
        command.env("FENCEHOLD_ACCESS_TOKEN", secret);
    }
    said(&mut command)
}

#[test]
fn tokens_and_the_audit_go_through_the_server() {
    let (here, there) = (TestDirectory::new(), TestDirectory::new());
    let admin = token(&here, "ops --role admin --all-namespaces");
    let server = Serving::start(&here, "");
    let ask = |secret: &str, words: &str| through(&there, &server, secret, words);
    let made = ask(&admin, "access-token create w --role worker --expires-in 1h").ended(0);
    let worker = made.out.trim();
    assert_eq!(ask(worker, "lease ls").code, 0);
    let listed = ask(&admin, "access-token ls -o json").json();
    let listed = listed["access_tokens"].as_array().unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
    let scopes = json!(["lease:read", "lease:write", "job:enqueue", "job:work"]);
    assert_eq!(listed[1]["scopes"], scopes);
    let id = listed[1]["id"].as_str().unwrap();
    assert_eq!(ask(&admin, &format!("access-token revoke {id}")).code, 0);
    assert_eq!(ask(worker, "lease ls").code, 78);
    let audit = ask(&admin, "audit ls -o json").json();
    let (create, revoke) = (op::CreateAccessToken::SPEC.name, op::RevokeAccessToken::SPEC.name);
    assert_eq!(each(&audit["entries"], "action"), [create, create, revoke]);
    assert!(!there.path("leases").exists() && !there.path(".local").exists(), "nothing was made here");
    let unknown = ask(&admin, "access-token revoke ffffffffffff").ended(1);
    unknown.says(&["there is no token ffffffffffff"]);
}

#[test]
fn what_a_server_does_not_allow_is_said_with_where_and_what_to_do() {
    let (here, there) = (TestDirectory::new(), TestDirectory::new());
    let reader = token(&here, "v --role reader");
    let writer = token(&here, "w --role worker");
    let server = Serving::start(&here, "");
    let ask = |secret: &str, words: &str| through(&there, &server, secret, words);
    for (secret, why) in [("", "a token is needed"), ("fencehold_000000000000_00", "is not known here")] {
        let said = ask(secret, "lease ls").ended(78);
        let said = said.says(&[why, &server.address, "FENCEHOLD_ACCESS_TOKEN"]);
        assert!(!said.err.contains("used as a store"), "{said:?}");
    }
    ask(&reader, "lease acquire k").ended(78).says(&["lease:write"]);
    let status = ask(&writer, "store status");
    assert!(status.code == 0 && status.out.contains("hidden") && !status.out.contains("keys"), "{status:?}");
    for secret in [&reader, &writer] {
        let doctor = ask(secret, "doctor");
        assert!(doctor.code == 0 && !doctor.out.contains("FAILED"), "{doctor:?}");
    }
    let run = |pass: &str| {
        let again = env!("CARGO_BIN_EXE_fencehold");
        ask(&writer, &format!("run --key k {pass} -- sh -c '{again} lease ls'"))
    };
    // The token was inherited.
    run("").ended(78).says(&["--pass-access-token"]);
    assert_eq!(run("--pass-access-token").code, 0);
}

#[test]
fn a_server_that_is_not_trusted_is_named_with_the_cause_at_once() {
    let (here, there) = (TestDirectory::new(), TestDirectory::new());
    let (cert, key) = (certificate("server.pem"), certificate("server.key"));
    let server = Serving::start(&here, &format!("--tls-cert {cert} --tls-key {key}"));
    let mut command = there.command("lease ls -v");
    command.env("FENCEHOLD_STORE", format!("https://{}", server.address));
    said(&mut command).ended(74).says(&["certificate", "?ca=FILE"]);
    // Nor does one help that speaks no TLS at all.
    let plain = Serving::start(&there, "");
    let mut command = here.command("lease ls");
    command.env("FENCEHOLD_STORE", format!("https://{}", plain.address));
    said(&mut command).ended(74);
}

#[test]
fn a_url_may_name_several_servers_and_one_that_answers_is_found() {
    let dir = TestDirectory::new();
    let (first, second) = (Serving::start(&dir, ""), Serving::start(&dir, ""));
    let both = format!("http://127.0.0.1:1,{},{}", first.address, second.address);
    let ask = |words: &str| said(dir.command(words).env("FENCEHOLD_STORE", &both));
    assert_eq!(ask("lease acquire k --ttl 1m").code, 0);
    assert_eq!(first.stop().0, 0);
    let listed = ask("lease ls -o json");
    assert!(listed.code == 0 && listed.json()["leases"][0]["key"] == "k", "{listed:?}");
    assert_eq!(second.stop().0, 0);
    assert_eq!(ask("lease ls").code, 69);
}

#[test]
fn the_check_of_settings_names_what_the_store_was_chosen_by() {
    let dir = TestDirectory::new();
    let file = dir.path("server.toml");
    std::fs::write(&file, "store = 'memory:'\n").unwrap();
    let mut command = dir.command(&format!("config check --config {} -o json", file.display()));
    let by_variable = &said(&mut command).json()["settings"];
    let expected = json!({ "value": dir.store(), "source": "FENCEHOLD_STORE" });
    assert_has(found(by_variable, "name", "store"), &expected);
    let by_file = &said(command.env_remove("FENCEHOLD_STORE")).json()["settings"];
    let expected = json!({ "value": "memory:", "source": file.display().to_string() });
    assert_has(found(by_file, "name", "store"), &expected);
}

/// What is dangerous is said at the start, and what is not dangerous is not.
#[test]
fn the_start_of_a_server_warns_of_what_is_dangerous() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = TestDirectory::new();
    let put = |name: &str, text: &str, mode: u32| {
        let path = dir.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let key = std::fs::read_to_string(certificate("server.key")).unwrap();
    let cert = certificate("server.pem");
    // An address for documentation: no machine has it, so the server ends after its warnings.
    let start = |settings: &str, more: &str| {
        let said = dir.fencehold(&format!("serve --listen 192.0.2.1:7117 --config {settings} {more}"));
        assert_ne!(said.code, 0, "{said:?}");
        said.err
    };
    let unencrypted =
        "WARNING: access tokens are sent unencrypted to an address that other machines can reach";
    for mode in [0o604, 0o602] {
        let settings = put("open.toml", "", mode);
        let said = start(&settings, "");
        assert!(said.contains(unencrypted), "{said}");
        let readable = format!("WARNING: the settings {settings} can be read or written by every user");
        assert!(said.contains(&readable), "mode {mode:o}: {said}");
    }
    let settings = put("closed.toml", "", 0o640);
    let readable = put("open.key", &key, 0o644);
    let said = start(&settings, &format!("--tls-cert {cert} --tls-key {readable}"));
    let warning = format!("WARNING: the key {readable} can be read or written by every user");
    assert!(said.contains(&warning), "{said}");
    assert!(!said.contains("the settings") && !said.contains(unencrypted), "{said}");
    let own = put("own.key", &key, 0o600);
    let said = start(&settings, &format!("--tls-cert {cert} --tls-key {own}"));
    assert!(!said.contains("WARNING"), "{said}");
}
