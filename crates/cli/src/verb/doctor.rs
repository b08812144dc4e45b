//! `fencehold doctor`: is everything in place?

use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::{AcquireLeaseRequest, CallContext, FileUrl, HoldRef, StoreUrl, memory_file_system};
use fencehold_core::{Key, Namespace};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::checks::{Check, CheckResult};
use crate::context::{Context, OpenStore};
use crate::duration::show_ms;
use crate::exit_code::ExitStatus;
use crate::failure::Failure;
use crate::process::boot_ms;
use crate::show::utc;
use crate::store_choice::StoreChoice;
use crate::verb::VerbResult;
use crate::{checks, hold_id, identity};

/// Clocks that are further apart than this make logs hard to read.
#[cfg(feature = "postgres")]
const CLOCKS_APART_MS: u64 = 1_000;

/// Where doctor tries the store, apart from what people keep there.
const NAMESPACE: &str = "fencehold.doctor";
const KEY: &str = "round-trip";
/// Unless the store's shortest is longer.
const TTL_MS: u64 = 10_000;
/// Two doctors may look at once.
const WAIT_MS: u64 = 10_000;
/// A disk with less than this is about to be full.
const ROOM_BYTES_MIN: u64 = 64 << 20;
/// No clock is right that shows a time before this program was written: 2025-01-01.
const WALL_MS_MIN: u64 = 1_735_689_600_000;
/// Nor one of the next century.
const WALL_MS_MAX: u64 = 4_102_444_800_000;

/// Check the store, the machine and the clocks
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold doctor
fencehold --store file:/var/lib/app/leases doctor -o json")]
#[command(after_help = "\
It acquires and releases one lease, in a namespace of its own, to see that the store writes. The exit code is 0 if no \
check failed; else that of the first that did.")]
pub(crate) struct Args {}

/// What was checked.
#[derive(Debug, Default, Serialize)]
struct Checks {
    checks: Vec<Check>,
}

impl Checks {
    fn add(&mut self, name: &str, verdict: CheckResult, message: impl Into<String>) {
        self.checks.push(Check::new(name, verdict, Some(message.into())));
    }

    fn passed(&mut self, name: &str, message: impl Into<String>) {
        self.add(name, CheckResult::Passed, message);
    }

    fn warn(&mut self, name: &str, message: impl Into<String>) {
        self.add(name, CheckResult::Warning, message);
    }

    fn failed(&mut self, name: &str, message: impl Into<String>) {
        self.add(name, CheckResult::Failed, message);
    }

    fn failed_by(&mut self, name: &str, failure: Failure) {
        let Failure::Said { exit, what, next, .. } = failure else { return };
        // "`doctor` looks closer" is no news here, but how a store is created is.
        let next = next.filter(|next| next.contains("store create"));
        let message = next.map_or(what.clone(), |next| format!("{what}. {next}"));
        self.checks
            .push(Check { exit, ..Check::new(name, CheckResult::Failed, Some(message)) });
    }
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult<ExitCode> {
        context.output.refuse_env()?;
        let place = context.place()?;
        let mut checks = Checks::default();
        about_us(&mut checks, &place);
        about_clocks(&mut checks);
        if let StoreUrl::File(url) = &place.url {
            about_directory(&mut checks, url);
        }
        #[cfg(feature = "etcd")]
        if let StoreUrl::Etcd(url) = &place.url {
            about_members(&mut checks, url).await;
        }
        #[cfg(feature = "postgres")]
        if let StoreUrl::Postgres(url) = &place.url {
            about_database_clock(&mut checks, url).await;
        }
        let began_ms = boot_ms();
        match context.open_existing_at(&place) {
            Err(failure) => checks.failed_by("store", failure),
            Ok(Err(missing)) => {
                let says = format!("{missing}: the first command that changes something creates it");
                checks.passed("store", says);
            }
            Ok(Ok(store)) => {
                let checks = &mut checks;
                store
                    .closing(async move |store| {
                        about_store(checks, store, began_ms).await;
                        Ok(())
                    })
                    .await?;
            }
        }
        let all = &checks.checks;
        context.output.list(&checks, all, "nothing to check", checks::table)?;
        let failed = all.iter().find(|check| check.verdict == CheckResult::Failed);
        Ok(failed.map_or(ExitCode::SUCCESS, |check| check.exit.into()))
    }
}

fn about_us(checks: &mut Checks, place: &StoreChoice) {
    let all = [
        ("file:", cfg!(feature = "file")),
        ("etcd:", cfg!(feature = "etcd")),
        ("postgres:", cfg!(feature = "postgres")),
        ("s3:, gs:, az:", cfg!(feature = "object")),
        ("http:, https:", cfg!(feature = "remote")),
        ("memory:", true),
    ];
    let built: Vec<_> = all.iter().filter(|(_, built)| *built).map(|(store, _)| *store).collect();
    let stores = built.join(", ");
    checks.passed("version", format!("fencehold {}, stores {stores}", env!("CARGO_PKG_VERSION")));
    checks.passed("url", format!("{}, chosen by {}", place.url, place.chosen));
    match std::fs::read_link("/proc/self/exe") {
        Ok(binary) => checks.passed("run", format!("can start its watchdog from {}", binary.display())),
        Err(error) => checks.failed(
            "run",
            format!("/proc/self/exe cannot be read ({error}): `fencehold run` cannot start its watchdog"),
        ),
    }
}

fn about_clocks(checks: &mut Checks) {
    let now = SystemClock.now();
    let wall = utc(now.wall_ms);
    if (WALL_MS_MIN..WALL_MS_MAX).contains(&now.wall_ms) {
        checks.passed("wall clock", format!("{wall} (for people only: no lease depends on it)"));
    } else {
        let says = format!("{wall} cannot be right; leases are safe, but what is shown to people is not");
        checks.warn("wall clock", says);
    }
    let monotonic = clock_gettime(ClockId::Monotonic);
    let monotonic_ms = u64::try_from(monotonic.tv_sec).unwrap_or(0) * 1_000;
    let slept_ms = now.store_ms.saturating_sub(monotonic_ms);
    let slept =
        if slept_ms > 2_000 { format!(", {} of it asleep", show_ms(slept_ms)) } else { String::new() };
    checks.passed("boot clock", format!("{} since boot{slept}", show_ms(now.store_ms)));
    match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(id) => checks.passed("boot id", id.trim()),
        Err(error) => checks.warn("boot id", format!("cannot be read: {error}")),
    }
}

#[cfg(feature = "file")]
fn what_is_unsafe(url: &FileUrl) -> Option<String> {
    fencehold_store_file::FileStore::what_is_unsafe(url.clone())
}

#[cfg(not(feature = "file"))]
fn what_is_unsafe(_: &FileUrl) -> Option<String> {
    None
}

fn about_directory(checks: &mut Checks, url: &FileUrl) {
    let directory = url.directory.as_path();
    let shown = directory.display();
    let metadata = match std::fs::metadata(directory) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return checks.passed("directory", format!("{shown} is not there yet"));
        }
        Err(error) => return checks.failed("directory", format!("{shown}: {error}")),
    };
    let mode = metadata.mode() & 0o7777;
    let uid = rustix::process::geteuid().as_raw();
    let (verdict, remark) = if !metadata.is_dir() {
        (CheckResult::Failed, ": it is no directory".to_owned())
    } else if let Some(why) = what_is_unsafe(url) {
        (CheckResult::Failed, format!(": it is not safe to use: {why}"))
    } else if url.group.is_some() {
        (CheckResult::Passed, format!(", shared with group {}", metadata.gid()))
    } else if metadata.uid() != uid {
        (CheckResult::Warning, format!(": it belongs to user {}, and this is user {uid}", metadata.uid()))
    } else if mode & 0o077 != 0 {
        (CheckResult::Warning, ": others can look into it; 0700 is meant".to_owned())
    } else {
        (CheckResult::Passed, String::new())
    };
    checks.add("directory", verdict, format!("{shown}, mode {mode:04o}{remark}"));
    let system = match rustix::fs::statfs(directory) {
        Ok(system) => system,
        Err(error) => return checks.warn("file system", format!("cannot be asked: {error}")),
    };
    let block_bytes = u64::try_from(system.f_bsize).unwrap_or(0);
    let room_bytes = system.f_bavail.saturating_mul(block_bytes);
    let room = format!("{} MiB free", room_bytes >> 20);
    let (name, network) = file_system(u64::try_from(system.f_type).unwrap_or(0));
    if network {
        let says = format!("{name} is a network file system: locks and shared memory do not hold there");
        checks.failed("file system", says);
    } else if room_bytes < ROOM_BYTES_MIN {
        checks.warn("file system", format!("{name}, only {room}"));
    } else if memory_file_system(directory).is_some() {
        let says = format!("{name}, {room}: a reboot takes the whole store, and tokens begin anew");
        checks.warn("file system", says);
    } else {
        checks.passed("file system", format!("{name}, {room}"));
    }
}

/// The versions of an etcd cluster.
#[cfg(feature = "etcd")]
async fn about_members(checks: &mut Checks, url: &fencehold_contract::EtcdUrl) {
    let found = match fencehold_store_etcd::EtcdStore::open(url, std::sync::Arc::new(SystemClock)) {
        Ok(store) => store.members(&CallContext::new(Namespace::default())).await,
        Err(error) => Err(error),
    };
    let members = match found {
        Ok(members) => members,
        Err(error) => return checks.failed_by("member", Failure::of_store(error, &url.to_string())),
    };
    for member in members {
        let says = format!("{} is etcd {}", member.name, member.version);
        match member.warning {
            None => checks.passed("member", says),
            Some(warning) => checks.warn("member", format!("{says}: {warning}")),
        }
    }
}

/// The clock that decides when a lease on PostgreSQL expires, beside this machine's.
#[cfg(feature = "postgres")]
async fn about_database_clock(checks: &mut Checks, url: &fencehold_contract::PostgresUrl) {
    const NAME: &str = "database clock";
    let before_ms = SystemClock.now().wall_ms;
    let read = match fencehold_store_postgres::PostgresStore::open(url, std::sync::Arc::new(SystemClock)) {
        Ok(store) => store.clock_ms(&CallContext::new(Namespace::default())).await,
        Err(error) => Err(error),
    };
    let took_ms = SystemClock.now().wall_ms.saturating_sub(before_ms);
    let clock_ms = match read {
        Ok(clock_ms) => clock_ms,
        Err(error) => return checks.failed_by(NAME, Failure::of_store(error, &url.to_string())),
    };
    let here_ms = before_ms + took_ms / 2;
    let (off_ms, way) = match clock_ms.checked_sub(here_ms) {
        Some(ahead_ms) => (ahead_ms, "ahead of"),
        None => (here_ms - clock_ms, "behind"),
    };
    let shown = utc(clock_ms);
    if off_ms <= took_ms {
        checks
            .passed(NAME, format!("{shown}: it decides when leases expire, and agrees with this machine's"));
    } else {
        let off = show_ms(off_ms);
        let says = format!("{shown}: it decides when leases expire, and is {off} {way} this machine's");
        // No lease depends on this machine's clock, but what people read in its logs does.
        let verdict = if off_ms < CLOCKS_APART_MS { CheckResult::Passed } else { CheckResult::Warning };
        checks.add(NAME, verdict, says);
    }
}

/// A file system by its magic number, and whether it is on a network.
fn file_system(magic: u64) -> (String, bool) {
    let (name, network) = match magic & 0xffff_ffff {
        0xef53 => ("ext4", false),
        0x5846_5342 => ("xfs", false),
        0x9123_683e => ("btrfs", false),
        0x0102_1994 => ("tmpfs (gone after a reboot)", false),
        0x8584_58f6 => ("ramfs (gone after a reboot)", false),
        0x794c_7630 => ("overlayfs", false),
        0x2fc1_2fc1 => ("zfs", false),
        0xf2f5_2010 => ("f2fs", false),
        0x6969 => ("nfs", true),
        0x517b => ("smb", true),
        0xff53_4d42 => ("cifs", true),
        0xfe53_4d42 => ("smb2", true),
        0x0102_1997 => ("9p", true),
        0x00c3_6400 => ("ceph", true),
        0x5346_414f => ("afs", true),
        0x0bd0_0bd0 => ("lustre", true),
        0x6573_5546 => ("fuse (may be a network file system)", false),
        other => return (format!("type {other:#x}"), false),
    };
    (name.to_owned(), network)
}

async fn about_store(checks: &mut Checks, store: &OpenStore, began_ms: u64) {
    let status = match store.explained(store.leases.status(&store.call)).await {
        Ok(status) => status,
        Err(failure) => return checks.failed_by("store", failure),
    };
    let took = show_ms(boot_ms().saturating_sub(began_ms));
    let says = if status.counts_hidden {
        format!("answers in {took}; its counts are for access tokens of scope admin for all namespaces")
    } else {
        format!(
            "answers in {took}: {} keys, {} held, {} waiting",
            status.key_count, status.held_count, status.waiter_count
        )
    };
    checks.passed("store", says);
    if let Some(pid) = status.owner_pid {
        let who = if pid == std::process::id() {
            "this process, as no other was there".to_owned()
        } else {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({})", name.trim())
        };
        let epoch = status.epoch.map(|epoch| format!(", epoch {epoch}")).unwrap_or_default();
        checks.passed("served by", format!("{who}{epoch}"));
    }
    if status.unreadable_row_count > 0 {
        let says = format!("{} could not be read; see `fencehold event ls`", status.unreadable_row_count);
        checks.warn("rows", says);
    }
    for failing in &status.maintenance_errors {
        checks.failed("maintenance", failing);
    }
    if status.closed_for_ms > 0 {
        let left = show_ms(status.closed_for_ms);
        checks.warn("advance", format!("after `store advance` nothing is granted for another {left}"));
    }
    match round_trip(store).await {
        Ok(says) => checks.passed("round trip", says),
        Err(Failure::Said { exit: ExitStatus::Denied, what, .. }) => {
            checks.warn("round trip", format!("not tried: {what}"));
        }
        // Two doctors may look at once, and not every store lets the second one wait.
        Err(Failure::Said { exit: ExitStatus::Held, what, .. }) => checks.warn("round trip", what),
        Err(failure) => checks.failed_by("round trip", failure),
    }
}

/// Takes and gives back one lease: in a namespace of its own, else, where a token is not for that one, in the token's.
async fn round_trip(store: &OpenStore) -> Result<String, Failure> {
    let apart = CallContext { namespace: Namespace::new(NAMESPACE)?, ..store.call.clone() };
    match round_trip_in(store, &apart, Key::new(KEY)?).await {
        Err(Failure::Said { exit: ExitStatus::Denied, .. }) => {
            round_trip_in(store, &store.call, Key::new(format!("{NAMESPACE}/{KEY}"))?).await
        }
        tried => tried,
    }
}

async fn round_trip_in(store: &OpenStore, call: &CallContext, key: Key) -> Result<String, Failure> {
    let hold = hold_id::fresh()?;
    let ttl_ms = TTL_MS.max(store.leases.capabilities().min_ttl_ms);
    let request = AcquireLeaseRequest {
        wait_ms: WAIT_MS,
        ..AcquireLeaseRequest::new(key.clone(), hold, identity::caller()?, ttl_ms)
    };
    let began_ms = boot_ms();
    let acquired = store.explained(store.leases.acquire(call, request)).await?;
    let acquired_ms = boot_ms();
    let token = acquired.grant.token;
    let holds = vec![HoldRef { key: key.clone(), hold_id: hold, token }];
    let answers = store.explained(store.leases.release(call, holds)).await?;
    if let Some(Err(refusal)) = answers.into_iter().next() {
        return Err(Failure::refused(&key, refusal));
    }
    let acquire = show_ms(acquired_ms - began_ms);
    let release = show_ms(boot_ms() - acquired_ms);
    Ok(format!("a lease was acquired in {acquire} and released in {release}, token {token}"))
}
