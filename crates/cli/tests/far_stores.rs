//! The verbs of leases on stores that are not on this machine: object storage and etcd, by real servers.
#![allow(clippy::disallowed_methods, reason = "real processes live in real time")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencehold_test_servers::{etcd as cluster, object as servers};

use serde_json::{Value, json};

use crate::support::{CommandOutput, RunningProcess, TestDirectory, assert_has, eventually, found, said};

/// The real binary on one far store.
struct RemoteStoreCli {
    dir: TestDirectory,
    url: String,
}

impl RemoteStoreCli {
    fn new(url: String) -> Self {
        RemoteStoreCli { dir: TestDirectory::new(), url }
    }

    fn command(&self, words: &str) -> Command {
        self.dir.command_on(&self.url, words)
    }

    fn fencehold(&self, words: &str) -> CommandOutput {
        said(&mut self.command(words))
    }

    /// Runs a command line that succeeds and prints all of this.
    fn shows(&self, words: &str, parts: &[&str]) -> CommandOutput {
        self.fencehold(words).ended(0).prints(parts)
    }

    /// Every verb of leases, as a person would use them one after the other.
    fn every_verb_of_leases_works(&self) {
        let ran = self.fencehold("run --key job/nightly -- sh -c 'echo token $FENCEHOLD_TOKEN'");
        assert_eq!((ran.code, ran.out.trim()), (0, "token 1"), "{ran:?}");

        let mut watch = self.command("lease watch job/ -o jsonl");
        let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(watch.stdout.take().unwrap());
        // It has looked once when it says so; what happens from then on is shown.
        let mut first = String::new();
        BufReader::new(watch.stderr.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.contains("looking at its leases every"), "{first}");
        let _watch = RunningProcess::adopt(watch);
        let mut next = || {
            let mut line = String::new();
            told.read_line(&mut line).unwrap();
            serde_json::from_str::<Value>(&line).unwrap()
        };

        let acquire = "lease acquire job/nightly --ttl 60s --owner ann --task run-7 -o json";
        let acquired = self.fencehold(acquire).ended(0).json();
        assert_eq!(acquired["token"], 2);
        let hold = acquired["hold_id"].as_str().unwrap();
        assert_has(&next(), &json!({ "key": "job/nightly", "token": 2, "owner": "ann" }));

        let refused = self.fencehold("lease acquire job/nightly").says(&["ann", "run-7"]);
        assert!(refused.code != 0, "{refused:?}");
        let mut renew = self.command("lease renew job/nightly");
        said(renew.env("FENCEHOLD_HOLD_ID", hold).env("FENCEHOLD_TOKEN", "2")).ended(0);
        let list = self.fencehold("lease ls -o jsonl");
        assert!(list.code == 0 && list.out.contains("\"ann\"") && !list.out.contains(hold), "{list:?}");
        self.shows("explain job/nightly", &["ann", "run-7"]);

        self.fencehold("lease revoke job/nightly --reason 'host is gone'").ended(0);
        assert_has(&next(), &json!({ "token": 2, "outcome": "revoked" }));
        self.shows("lease get job/nightly -o json", &["host is gone"]);
        let stats = self.fencehold("lease stats --since 1h -o json").ended(0).json();
        let counts = json!({ "released_count": 1, "revoked_count": 1, "expired_count": 0, "complete": true });
        assert_has(&stats, &counts);
    }

    /// What `bench lease` says of requests.
    fn costs(&self, expected: [(&str, u64); 3]) {
        let bench = self.fencehold("bench lease --clients 1 --duration 100ms -o json").ended(0);
        for (operation, requests) in expected {
            let report = bench.json();
            let found = found(&report["operations"], "name", operation);
            assert_eq!(found["request_count"], requests, "{}: {found}", self.url);
        }
    }

    /// `store probe`: exit code 0, and every check with its verdict.
    fn probes(&self, checks: &[&str]) -> CommandOutput {
        self.shows("store probe", checks)
    }
}

fn moto(options: &str) -> RemoteStoreCli {
    let url = format!("s3://leases/cli?endpoint={}{options}", servers::ObjectServer::Moto.endpoint());
    RemoteStoreCli::new(url)
}

#[test]
fn object_storage() {
    let far = moto("");
    far.every_verb_of_leases_works();
    far.probes(&["CHECK", "passed"]);
}

#[test]
fn etcd() {
    let cluster = cluster::EtcdCluster::start();
    let far = RemoteStoreCli::new(cluster.url("cli").to_string());
    far.every_verb_of_leases_works();
    let probed = far.probes(&["CHECK", "passed"]);
    assert_eq!(probed.out.contains("etcd issue 15247"), etcd_ends_live_leases(), "{probed:?}");
    far.costs([("acquire", 3), ("renew", 2), ("release", 2)]);
}

/// Whether this machine's etcd is one of those of which the probe must warn: before 3.4.31, or 3.5 before 3.5.13.
fn etcd_ends_live_leases() -> bool {
    let said = said(Command::new("etcd").arg("--version")).out;
    let version = said.lines().find_map(|line| line.strip_prefix("etcd Version: ")).unwrap();
    let parts: Vec<u32> = version.trim().split('.').map(|part| part.parse().unwrap()).collect();
    parts < vec![3, 4, 31] || (parts >= vec![3, 5] && parts < vec![3, 5, 13])
}

/// Credentials and endpoints that are in no URL: the environment that each cloud's own tools read.
#[test]
fn credentials_and_endpoints_are_found_where_each_clouds_tools_look() {
    use servers::{ACCOUNT, ACCOUNT_KEY, ObjectServer};
    let azurite = ObjectServer::Azurite.endpoint();
    let connection = |key: &str| {
        format!(
            "DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={azurite};"
        )
    };
    let at_azurite = format!("az://leases/by-key?probe=off&endpoint={azurite}");
    let cases: [(&str, &[(&str, &str)]); 6] = [
        ("s3://leases/by-environment?probe=off", &[("AWS_ENDPOINT_URL", ObjectServer::Moto.endpoint())]),
        ("gs://leases/by-url?probe=off", &[("STORAGE_EMULATOR_HOST", ObjectServer::Gcs.endpoint())]),
        (
            "gs://leases/by-host?probe=off",
            &[("STORAGE_EMULATOR_HOST", ObjectServer::Gcs.endpoint().trim_start_matches("http://"))],
        ),
        (
            "az://leases/by-connection?probe=off",
            &[("AZURE_STORAGE_CONNECTION_STRING", &connection(ACCOUNT_KEY))],
        ),
        (&at_azurite, &[("AZURE_STORAGE_ACCOUNT", ACCOUNT), ("AZURE_STORAGE_KEY", ACCOUNT_KEY)]),
        (&at_azurite, &[("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT), ("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY)]),
    ];
    let without_keys = |far: &RemoteStoreCli| {
        let mut run = far.command("run --key k -- true");
        run.env_remove("AZURE_STORAGE_ACCOUNT").env_remove("AZURE_STORAGE_KEY");
        run
    };
    for (url, environment) in cases {
        let far = RemoteStoreCli::new(url.to_owned());
        let ran = said(without_keys(&far).envs(environment.iter().copied()));
        assert_eq!(ran.code, 0, "{url}: {ran:?}");
    }
    // A wrong key is refused by the cloud; the error says so, without the key.
    let wrong = ACCOUNT_KEY.replace("Eby8", "AAAA");
    let far = RemoteStoreCli::new("az://leases/by-wrong-key?probe=off".to_owned());
    let refused = said(without_keys(&far).env("AZURE_STORAGE_CONNECTION_STRING", connection(&wrong)));
    assert!(refused.code != 0 && refused.err.contains("az://leases"), "{refused:?}");
    assert!(!refused.err.contains(&wrong[..20]) && !refused.out.contains(&wrong[..20]), "{refused:?}");
}

/// On Google Cloud Storage a write is two requests.
#[test]
fn the_benchmark_says_what_things_cost_in_requests() {
    use servers::ObjectServer;
    let at = |scheme: &str, server: ObjectServer| {
        let url = format!("{scheme}://leases/bench?endpoint={}&min_write_interval_ms=0", server.endpoint());
        RemoteStoreCli::new(url)
    };
    at("s3", ObjectServer::Moto).costs([("acquire", 2), ("renew", 1), ("release", 1)]);
    at("az", ObjectServer::Azurite).costs([("acquire", 2), ("renew", 1), ("release", 1)]);
    at("gs", ObjectServer::Gcs).costs([("acquire", 3), ("renew", 2), ("release", 2)]);
}

#[test]
fn storage_that_lets_two_win_is_refused_by_name() {
    let url = format!("gs://leases/cli?endpoint={}", servers::ObjectServer::Careless.endpoint());
    let far = RemoteStoreCli::new(url);
    let probed = far
        .fencehold("store probe")
        .prints(&["FAILED"])
        .says(&["two could hold one lease"]);
    assert_ne!(probed.code, 0, "{probed:?}");
    let ran = far.fencehold("run --key k -- true");
    assert!(ran.code != 0, "{ran:?}");
}

/// A server that is down is retried for as long as `--timeout` says: no longer, and no less.
#[test]
fn a_server_that_is_down_is_retried_until_the_timeout() {
    let far = RemoteStoreCli::new("http://127.0.0.1:1".to_owned());
    let took = |timeout: &str| {
        let began = Instant::now();
        far.fencehold(&format!("--timeout {timeout} lease ls"))
            .ended(69)
            .says(&["127.0.0.1:1"]);
        began.elapsed()
    };
    // Far from five seconds, which is how long it used to take whatever was asked for.
    let (short, long) = (took("100ms"), took("6s"));
    assert!(short < Duration::from_secs(4) && long >= Duration::from_millis(5_500), "{short:?}, {long:?}");
}

/// The three clouds, a prefix of its own on each.
fn on_each_cloud(bucket: &str, options: &str) -> [RemoteStoreCli; 3] {
    use servers::ObjectServer;
    let clouds = [("s3", ObjectServer::Moto), ("gs", ObjectServer::Gcs), ("az", ObjectServer::Azurite)];
    clouds.map(|(scheme, server)| {
        let url = format!("{scheme}://{bucket}/doctor?endpoint={}{options}", server.endpoint());
        RemoteStoreCli::new(url)
    })
}

/// A bucket that is there and works has nothing wrong with it.
#[test]
fn doctor_finds_nothing_wrong_with_a_healthy_bucket() {
    for far in on_each_cloud("leases", "") {
        far.shows("doctor", &["a lease was acquired", "s3:, gs:, az:"]);
    }
}

/// A bucket that is not there: every verb says so, by its name, and says what to do; none takes it for an empty store.
#[test]
fn every_verb_says_that_the_bucket_is_missing() {
    for options in ["", "&probe=off"] {
        for far in on_each_cloud("mistyped", options) {
            for words in [
                "lease ls",
                "lease get k",
                "lease acquire k",
                "run --key k --wait 2s -- true",
                "store status",
                "store probe",
                "store advance --by ops --yes",
            ] {
                let said = far.fencehold(words).ended(74).says(&[" mistyped ", "create it"]);
                assert!(!said.err.contains("conditions"), "{said:?}");
            }
            far.fencehold("doctor").ended(74).prints(&[" mistyped "]);
        }
    }
}

/// A command that sees a wall clock an hour off, and every other clock as it is.
fn with_wall_clock(command: &Command, shift: &str) -> Command {
    let mut shifted = Command::new("faketime");
    shifted
        .args(["-f", shift])
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear()
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .envs([("FAKETIME_DONT_FAKE_MONOTONIC", "1"), ("DONT_FAKE_MONOTONIC", "1")])
        .stdin(Stdio::null());
    shifted
}

/// Wall, monotonic and boot clock, in seconds, as a process sees them.
fn clocks(far: &RemoteStoreCli, shift: &str) -> [f64; 3] {
    let print = "import time as t; print(t.time(), t.monotonic(), t.clock_gettime(t.CLOCK_BOOTTIME))";
    let template = far.dir.command("");
    let mut python = Command::new("python3");
    python.args(["-c", print]).env_clear();
    python.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let said = said(&mut with_wall_clock(&python, shift));
    let read: Vec<f64> = said.out.split_ascii_whitespace().map(|word| word.parse().unwrap()).collect();
    read.try_into().unwrap_or_else(|_| panic!("{said:?}"))
}

/// Whose wall clock is right makes no difference: only how long a contender has watched does.
#[test]
fn wall_clocks_an_hour_apart_change_nothing() {
    // Side by side, since leases are waited out.
    std::thread::scope(|scope| {
        for (holder, contender) in [("+1h", "-1h"), ("-1h", "+1h")] {
            scope.spawn(move || wall_clocks_change_nothing(holder, contender));
        }
    });
}

fn wall_clocks_change_nothing(holder: &str, contender: &str) {
    // Long enough for a holder that gets no processor for seconds.
    const TTL: Duration = Duration::from_secs(8);
    let far = moto("&min_ttl_ms=100&min_write_interval_ms=0");
    let (ahead, behind) = (clocks(&far, "+1h"), clocks(&far, "-1h"));
    assert!((ahead[0] - behind[0] - 7_200.0).abs() < 60.0, "the wall clocks are two hours apart");
    assert!((ahead[1] - behind[1]).abs() < 60.0 && (ahead[2] - behind[2]).abs() < 60.0, "the others are not");

    // One who lives, and renews: no one takes it, however late their wall clocks are.
    let key = format!("clock/{holder}");
    let until_told = "until [ -e stop ]; do sleep 0.05; done";
    let run = far.command(&format!("run --key {key} --ttl 8s -- sh -c '{until_told}'"));
    let mut run = with_wall_clock(&run, holder);
    let mut running = RunningProcess::start(run.current_dir(far.dir.path("")));
    eventually("the key is held", || far.fencehold(&format!("lease get {key}")).out.contains("held"));
    let wants = far.command(&format!("lease acquire {key} --ttl 8s --wait 12s"));
    let refused = said(&mut with_wall_clock(&wants, contender));
    assert_ne!(refused.code, 0, "{refused:?}");
    std::fs::write(far.dir.path("stop"), "").unwrap();
    assert_eq!(running.finish().code, 0);

    // One who is gone: it is waited out for its ttl and a quarter, neither less nor for hours.
    let first = far.command(&format!("lease acquire {key} --ttl 8s -o json"));
    let had = said(&mut with_wall_clock(&first, holder)).ended(0);
    let began = Instant::now();
    let second = far.command(&format!("lease acquire {key} --ttl 8s --wait 120s -o json"));
    let got = said(&mut with_wall_clock(&second, contender)).ended(0);
    assert!(began.elapsed() >= TTL.mul_f64(1.25), "taken after {:?}", began.elapsed());
    assert!(got.json()["token"].as_u64() > had.json()["token"].as_u64(), "{got:?}");
}
