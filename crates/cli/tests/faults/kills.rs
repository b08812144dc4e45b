//! `kill -9` and SIGSTOP: of participants, the owner of the directory among them, and of a server.

use std::time::Duration;

use rustix::process::Signal;

use super::crew::{FaultRates, Participants, lasts};
use super::is_long;
use crate::support::{TestDirectory, serve};

/// Longer than a participant's ttl.
const SERVER_STOPPED_FOR: Duration = Duration::from_millis(1_500);

/// What every change must stand, or what is run now and then.
fn dose() -> FaultRates {
    if is_long() {
        FaultRates { participants: 6, kills: 100, stops: 20, calls: 50_000 }
    } else {
        FaultRates { participants: 6, kills: 20, stops: 4, calls: 5_000 }
    }
}

/// Where a server is one process more in the way, fewer calls get through.
fn dose_of_a_server() -> FaultRates {
    let FaultRates { participants, kills, stops, calls } = dose();
    FaultRates { participants: participants / 2, kills: kills / 2, stops: stops / 2, calls: calls / 5 }
}

#[test]
fn whoever_is_killed_or_stopped_on_a_directory_every_history_can_be_true() {
    let (dir, histories) = (TestDirectory::new(), tempfile::tempdir().unwrap());
    let mut participants = Participants::new(&dir.store(), histories.path());
    participants.suffers(dose(), |_| {});
    println!("faults: file: {} kills and {} stops: {}", dose().kills, dose().stops, participants.ends());
}

#[test]
fn whoever_is_killed_or_stopped_through_a_server_every_history_can_be_true() {
    let (dir, histories) = (TestDirectory::new(), tempfile::tempdir().unwrap());
    let (mut server, address) = serve(&dir, "127.0.0.1:0");
    let mut participants = Participants::new(&format!("http://{address}"), histories.path());
    let (mut deaths, mut stops) = (0, 0);
    participants.suffers(dose_of_a_server(), |nth| match nth % 4 {
        1 => {
            // Killed, and started again where its clients look for it.
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            (server, _) = serve(&dir, &address);
            deaths += 1;
        }
        3 => {
            server.send(Signal::STOP);
            lasts(SERVER_STOPPED_FOR);
            server.send(Signal::CONT);
            stops += 1;
        }
        _ => {}
    });
    println!("faults: http: server killed {deaths} times, stopped {stops} times: {}", participants.ends());
    assert!(deaths > 0 && stops > 0);
}

#[cfg(feature = "postgres")]
#[test]
fn whoever_is_killed_or_stopped_on_postgresql_every_history_can_be_true() {
    use fencehold_test_servers::postgres::{Durable, PostgresServer, fresh_schema};
    let histories = tempfile::tempdir().unwrap();
    let cluster = PostgresServer::start(Durable::No);
    let url = cluster.url(&fresh_schema()).to_string();
    let mut participants = Participants::new(&url, histories.path());
    participants.suffers(dose_of_a_server(), |_| {});
    println!("faults: postgres: {} kills: {}", dose_of_a_server().kills, participants.ends());
}

/// A cluster of three members; leases that last as long as it takes etcd to notice that a holder is gone.
#[cfg(feature = "etcd")]
#[test]
fn whoever_is_killed_or_stopped_on_etcd_every_history_can_be_true() {
    use fencehold_test_servers::etcd::{EtcdCluster, fresh_prefix};
    let histories = tempfile::tempdir().unwrap();
    let cluster = EtcdCluster::start();
    let url = cluster.url(&fresh_prefix()).to_string();
    let mut participants = Participants::new(&url, histories.path()).without_jobs().with_ttl_ms(2_000);
    participants.suffers(dose_of_a_server(), |_| {});
    let FaultRates { kills, stops, .. } = dose_of_a_server();
    println!("faults: etcd: {kills} kills and {stops} stops: {}", participants.ends());
}

/// A contender that takes over has watched the lease for a ttl, in a process that was not killed meanwhile.
#[cfg(feature = "object")]
#[test]
fn whoever_is_killed_or_stopped_on_s3_every_history_can_be_true() {
    use fencehold_test_servers::object::ObjectServer;
    let histories = tempfile::tempdir().unwrap();
    let endpoint = ObjectServer::Moto.endpoint();
    let url = format!("s3://leases/faults?endpoint={endpoint}&min_ttl_ms=100&min_write_interval_ms=0");
    let participants = Participants::new(&url, histories.path()).without_jobs();
    let mut participants = participants.prepared(|command| {
        let keys = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")];
        command.envs(keys).env("AWS_EC2_METADATA_DISABLED", "true");
    });
    // Every call is several requests, which the server carries out one at a time.
    let dose = FaultRates { calls: dose_of_a_server().calls / 4, ..dose_of_a_server() };
    participants.suffers(dose, |_| {});
    println!("faults: s3: {} kills and {} stops: {}", dose.kills, dose.stops, participants.ends());
}
