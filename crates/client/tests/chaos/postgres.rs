//! PostgreSQL with its commits on disk: connections are ended at random, and the server is stopped at once and started again,
//! so that it must recover from its log.

use fencehold_test_servers::postgres::{Durable, PostgresServer};
use std::time::{Duration, Instant};

use super::Random;
use super::environment::{Environment, FaultedServer, ServerFault};
use super::leader::Fault;
use crate::worker_processes::WorkDirectory;

/// Between two restarts: the jobs that run are to be hit, not kept from running.
const CALM: Duration = Duration::from_secs(6);
/// How many connections are ended at once, at most.
const CUT_OFF_MAX: u64 = 6;

const DEEDS: [Fault; 10] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Stop,
    Fault::Stop,
    Fault::CutOff,
    Fault::CutOff,
    Fault::CutOff,
    Fault::KillOwner,
];

pub(crate) struct Postgres {
    cluster: PostgresServer,
    restarted: Instant,
    struck: FaultedServer,
}

impl Postgres {
    pub(crate) fn start(work_dir: &WorkDirectory) -> Self {
        let cluster = PostgresServer::start(Durable::Yes);
        assert_eq!(cluster.admin().value("SHOW fsync"), "on");
        assert_eq!(cluster.admin().value("SHOW synchronous_commit"), "on");
        work_dir.put_up_sign(&cluster.url_text("chaos"));
        Postgres { cluster, restarted: Instant::now(), struck: FaultedServer::default() }
    }

    fn restart(&mut self) {
        self.cluster.stop_at_once();
        self.cluster.start_server();
        self.restarted = Instant::now();
    }

    /// Ends up to `most` connections, and tells how many.
    fn cut_off(&self, most: u64, drawn: u64) -> usize {
        let sql = format!(
            "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM (
                 SELECT pid FROM pg_stat_activity WHERE application_name = 'fencehold'
                 ORDER BY md5(pid::text || '{drawn}') LIMIT {most}
             ) AS chosen"
        );
        self.cluster.admin().value(&sql).parse().unwrap()
    }
}

impl Environment for Postgres {
    fn deeds(&self) -> &'static [Fault] {
        &DEEDS
    }

    /// Two restarts, however short the run.
    fn owed(&self, share: &dyn Fn(usize) -> usize) -> FaultedServer {
        FaultedServer { deaths: 2, cut_off: share(60) }
    }

    fn struck(&self) -> FaultedServer {
        self.struck
    }

    fn strike(&mut self, fault: Fault, jobs_run: bool, random: &mut Random) -> ServerFault {
        if fault == Fault::CutOff {
            let (most, drawn) = (1 + random.below(CUT_OFF_MAX), random.below(u64::MAX));
            let cut_off = self.cut_off(most, drawn);
            self.struck.cut_off += if jobs_run { cut_off } else { 0 };
        } else if self.restarted.elapsed() < CALM {
            return ServerFault::NotNow;
        } else {
            self.restart();
            self.struck.deaths += usize::from(jobs_run);
        }
        ServerFault::Done
    }

    /// Every job has its row in one table, the one of those that have come to their end; nothing else is left of anybody.
    fn check(&mut self, _: &WorkDirectory, jobs: usize) {
        let admin = self.cluster.admin();
        let count = |rows: &str| admin.value(&format!("SELECT count(*) FROM chaos.{rows}"));
        let all = jobs.to_string();
        for rows in ["job_body", "job_settled WHERE state = 3", "job_effect"] {
            assert_eq!(count(rows), all, "{rows}");
        }
        for rows in ["job_ready", "job_scheduled", "job_running", "lease_hold"] {
            assert_eq!(count(rows), "0", "{rows}");
        }
        for part in ["job_settled", "job_past", "job_effect", "job_note"] {
            let orphans = format!("{part} WHERE arrival NOT IN (SELECT arrival FROM chaos.job_body)");
            assert_eq!(count(&orphans), "0", "{orphans}");
        }
    }
}
