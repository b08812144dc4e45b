//! `fencehold plan`: how large a machine so many leases and jobs need.

use clap::ValueEnum;
use serde::Serialize;

use crate::context::Context;
use crate::duration::parse_ms;
use crate::failure::Failure;
use crate::show::facts;
use crate::verb::VerbResult;

/// A holder renews at every third of its ttl.
const RENEWALS_PER_TTL: u64 = 3;
/// A running job is claimed with this ttl, unless told otherwise.
const JOB_TTL_MS: u64 = 30_000;

/// What was measured of a store, as docs/capacity.md has it. None: it was not measured.
struct Measured {
    renewals_per_s: Option<u64>,
    jobs_per_s: Option<u64>,
    /// Memory of the process that serves the store.
    memory_bytes_per_lease: u64,
    memory_bytes_per_job: u64,
    disk_bytes_per_lease: u64,
    /// Beside its payload.
    disk_bytes_per_job: u64,
    connections: &'static str,
}

const FILE: Measured = Measured {
    renewals_per_s: Some(1_151_900),
    jobs_per_s: Some(48_622),
    memory_bytes_per_lease: 243,
    memory_bytes_per_job: 197,
    disk_bytes_per_lease: 240,
    disk_bytes_per_job: 220,
    connections: "none: processes share a socket",
};
const SERVER: Measured = Measured {
    renewals_per_s: Some(571_800),
    jobs_per_s: Some(7_240),
    connections: "a few for each client process, and one for each request that waits",
    ..FILE
};
const POSTGRES: Measured = Measured {
    renewals_per_s: Some(79_634),
    jobs_per_s: None,
    memory_bytes_per_lease: 0,
    memory_bytes_per_job: 0,
    connections: "up to max_connections + 4 for each process",
    ..FILE
};
const OTHERS: Measured = Measured { renewals_per_s: None, connections: "a few for each process", ..POSTGRES };

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum StoreKind {
    File,
    Http,
    Postgres,
    Etcd,
    S3,
    Gs,
    Az,
}

impl StoreKind {
    /// By the name of the store or by its URL.
    fn named(text: &str) -> Option<Self> {
        let scheme = text.split(':').next().unwrap_or(text);
        match scheme {
            "https" => Some(StoreKind::Http),
            "postgresql" => Some(StoreKind::Postgres),
            _ => StoreKind::from_str(scheme, false).ok(),
        }
    }

    fn measured(self) -> Measured {
        match self {
            StoreKind::File => FILE,
            StoreKind::Http => SERVER,
            StoreKind::Postgres => POSTGRES,
            StoreKind::Etcd | StoreKind::S3 | StoreKind::Gs | StoreKind::Az => OTHERS,
        }
    }

    fn has_jobs(self) -> bool {
        matches!(self, StoreKind::File | StoreKind::Http | StoreKind::Postgres)
    }
}

/// Work out what so many leases and jobs need
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold plan --leases 100k --ttl 30s
fencehold plan --leases 100k --ttl 30s --jobs 500/s --store postgres")]
#[command(after_help = "\
--store takes a URL or the name of a kind of store: file, http, postgres, etcd, s3, gs, az. Nothing is opened. What a store \
does in a second was measured on a virtual machine of two cores; `fencehold bench` measures yours.")]
pub(crate) struct Args {
    /// How many leases are held at once: 5000, 100k, 2M
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "0")]
    leases: u64,
    /// Their ttl
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "30s")]
    ttl: u64,
    /// How many jobs are enqueued: 500/s, 20k/m, 1M/d
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "0/s")]
    jobs: f64,
    /// How long a job is worked on
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "1s")]
    work: u64,
    /// How many jobs wait at the most
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "0")]
    queued: u64,
    /// How many bytes the payload of a job has
    #[arg(long, value_name = "BYTES", value_parser = parse_count, default_value = "300")]
    payload: u64,
    /// For how long finished jobs are kept
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "7d")]
    keep_finished: u64,
}

/// What is needed.
#[derive(Debug, PartialEq, Serialize)]
struct Plan {
    store: StoreKind,
    /// Jobs that are worked on at once, each a lease.
    running_job_count: u64,
    renewals_per_second: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    renewals_measured_per_second: Option<u64>,
    jobs_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs_measured_per_second: Option<u64>,
    memory_bytes: u64,
    disk_bytes: u64,
    connections: &'static str,
}

impl Args {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context.output.refuse_env()?;
        let named = context.store_named().map_or(Some(StoreKind::File), StoreKind::named);
        let store = named.ok_or_else(|| {
            Failure::usage("--store names no kind of store")
                .with_next("It takes file, http, postgres, etcd, s3, gs or az, or a URL.")
        })?;
        if self.jobs > 0.0 && !store.has_jobs() {
            return Err(Failure::usage("this kind of store keeps no jobs")
                .with_next("Jobs live in file: and postgres: stores, and in servers on them."));
        }
        let plan = self.plan(store);
        context.output.one(&plan, |style| {
            let share = |needed: f64, measured: Option<u64>| match measured {
                #[expect(clippy::cast_precision_loss, reason = "it is shown to people, in per cent")]
                Some(most) => {
                    format!(" ({:.1} % of {} measured)", needed * 100.0 / most as f64, grouped(most))
                }
                None => " (not measured on this store)".to_owned(),
            };
            #[expect(clippy::cast_precision_loss, reason = "it is shown to people, in per cent")]
            let renewals = share(plan.renewals_per_second as f64, plan.renewals_measured_per_second);
            let mut lines =
                vec![("renewals a second", format!("{}{renewals}", grouped(plan.renewals_per_second)))];
            if plan.jobs_per_second > 0.0 {
                let jobs = share(plan.jobs_per_second, plan.jobs_measured_per_second);
                lines.push(("jobs a second", format!("{}{jobs}", plan.jobs_per_second)));
                lines.push(("running jobs", grouped(plan.running_job_count)));
            }
            let memory =
                if plan.memory_bytes == 0 { "the store's own".to_owned() } else { size(plan.memory_bytes) };
            lines.push(("memory", memory));
            lines.push(("disk", size(plan.disk_bytes)));
            lines.push(("connections", plan.connections.to_owned()));
            facts(style, lines)
        })
    }

    fn plan(&self, store: StoreKind) -> Plan {
        let measured = store.measured();
        // Little's law: as many are worked on as come in the time that one takes.
        let running = whole(self.jobs * seconds(self.work));
        let finished = whole(self.jobs * seconds(self.keep_finished));
        let unfinished = running.saturating_add(self.queued);
        let renewals = |leases: u64, ttl_ms: u64| {
            leases
                .saturating_mul(RENEWALS_PER_TTL)
                .saturating_mul(1_000)
                .div_ceil(ttl_ms.max(1))
        };
        let job_bytes = measured.disk_bytes_per_job.saturating_add(self.payload);
        Plan {
            store,
            running_job_count: running,
            renewals_per_second: renewals(self.leases, self.ttl)
                .saturating_add(renewals(running, JOB_TTL_MS)),
            renewals_measured_per_second: measured.renewals_per_s,
            jobs_per_second: self.jobs,
            jobs_measured_per_second: measured.jobs_per_s,
            memory_bytes: (self.leases.saturating_mul(measured.memory_bytes_per_lease))
                .saturating_add(unfinished.saturating_mul(measured.memory_bytes_per_job)),
            disk_bytes: (self.leases.saturating_mul(measured.disk_bytes_per_lease))
                .saturating_add(unfinished.saturating_add(finished).saturating_mul(job_bytes)),
            connections: measured.connections,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

/// A whole number that is no less.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates, and is never negative"
)]
fn whole(number: f64) -> u64 {
    number.ceil() as u64
}

/// A number for people: 10 000.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let is_first = |at: usize| at > 0 && (digits.len() - at).is_multiple_of(3);
    let groups = digits
        .char_indices()
        .map(|(at, digit)| if is_first(at) { format!(" {digit}") } else { digit.into() });
    groups.collect()
}

/// A size for people.
fn size(bytes: u64) -> String {
    let mut unit = "bytes";
    #[expect(clippy::cast_precision_loss, reason = "it is shown to people, with one place")]
    let mut left = bytes as f64;
    for larger in ["kB", "MB", "GB", "TB"] {
        if left < 1_000.0 {
            break;
        }
        (left, unit) = (left / 1_000.0, larger);
    }
    if unit == "bytes" { format!("{bytes} bytes") } else { format!("{left:.1} {unit}") }
}

/// `5000`, `100k`, `1.5M`.
fn parse_count(text: &str) -> Result<u64, String> {
    let number = parse_number(text)?;
    if number > 1e15 { Err("is too large".to_owned()) } else { Ok(whole(number)) }
}

fn parse_number(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k')) => (&text[..at], 1e3),
        Some((at, 'M')) => (&text[..at], 1e6),
        Some((at, 'G')) => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    let number = digits.parse::<f64>().ok().filter(|_| plain);
    number
        .map(|number| number * factor)
        .ok_or_else(|| "takes a number such as 5000, 100k or 2M".to_owned())
}

/// `500/s`, `20k/m`, `1M/d`: how many a second.
fn parse_rate(text: &str) -> Result<f64, String> {
    let (count, per) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match per {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err("takes a rate such as 500/s, 20k/m, 5k/h or 1M/d".to_owned()),
    };
    parse_number(count).map(|count| count / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> Args {
        Args {
            leases: 100_000,
            ttl: 30_000,
            jobs: 500.0,
            work: 2_000,
            queued: 1_000_000,
            payload: 300,
            keep_finished: 7 * 86_400_000,
        }
    }

    #[test]
    fn a_plan_is_worked_out_from_what_was_measured() {
        let plan = args().plan(StoreKind::File);
        assert_eq!(plan.running_job_count, 1_000);
        assert_eq!(plan.renewals_per_second, 3 * 100_000 / 30 + 3 * 1_000 / 30);
        assert_eq!(plan.memory_bytes, 100_000 * 243 + 1_001_000 * 197);
        assert_eq!(plan.disk_bytes, 100_000 * 240 + (1_001_000 + 500 * 604_800) * 520);
        assert_eq!(args().plan(StoreKind::Postgres).memory_bytes, 0, "it is the database's");
    }

    /// The figures are those that people read, and change with them.
    #[test]
    fn what_was_measured_stands_in_the_documentation() {
        let page = include_str!("../../../../docs/capacity.md").replace(' ', "");
        for measured in [FILE, SERVER, POSTGRES] {
            let figures = [measured.renewals_per_s, measured.jobs_per_s];
            for figure in figures.into_iter().flatten() {
                assert!(page.contains(&figure.to_string()), "{figure}");
            }
        }
        for text in [
            format!("{}bytes|[amillionleases]", FILE.memory_bytes_per_lease),
            format!("{}bytes|[amillionjobs]", FILE.memory_bytes_per_job),
            format!("leasetakesabout{}bytes", FILE.disk_bytes_per_lease),
            format!("payloadandabout{}bytes", FILE.disk_bytes_per_job),
        ] {
            assert!(page.contains(&text), "{text}");
        }
    }

    #[test]
    fn counts_and_rates_are_read_as_people_write_them() {
        for (text, count) in [("0", 0), ("5000", 5_000), ("100k", 100_000), ("1.5M", 1_500_000)] {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        for bad in ["", "k", "-1", "1e9", "many", "1kk", "NaN", "9999999G"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
        for (text, rate) in
            [("500/s", 500.0), ("500", 500.0), ("60/m", 1.0), ("3.6k/h", 1.0), ("86.4k/d", 1.0)]
        {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        assert!(parse_rate("5/y").is_err() && parse_rate("/s").is_err());
    }

    #[test]
    fn a_store_is_named_by_its_kind_or_by_its_url() {
        for (text, kind) in [
            ("postgres", Some(StoreKind::Postgres)),
            ("postgresql://db/app", Some(StoreKind::Postgres)),
            ("file:demo", Some(StoreKind::File)),
            ("https://locks.example.org", Some(StoreKind::Http)),
            ("s3://bucket/leases", Some(StoreKind::S3)),
            ("redis://x", None),
        ] {
            assert_eq!(StoreKind::named(text), kind, "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_with_one_place() {
        for (bytes, text) in
            [(0, "0 bytes"), (999, "999 bytes"), (1_500, "1.5 kB"), (157_248_000_000, "157.2 GB")]
        {
            assert_eq!(size(bytes), text);
        }
    }
}
