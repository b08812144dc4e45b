//! `fencehold store backup`, `restore` and `check`: the files of a `file:` store.

use std::path::PathBuf;
use std::process::ExitCode;

use fencehold_contract::{FileUrl, StoreUrl};
use fencehold_core::Owner;
use fencehold_core::limits::ADVANCE_BY;
use serde::Serialize;

use crate::context::Context;
use crate::duration::show_exact_ms;
use crate::exit_code::ExitStatus;
use crate::failure::Failure;
use crate::output::{complain, note};
use crate::show::{Progress, facts};
use crate::verb::VerbResult;

/// The directory of a `file:` store, and its name for people. Copying and checking files is for that store only.
fn directory(context: &Context) -> Result<(String, FileUrl), Failure> {
    let url = context.place()?.url;
    match &url {
        StoreUrl::File(file) => Ok((url.to_string(), file.clone())),
        other => Err(Failure::usage(format!(
            "{other} is not a directory: backup, restore and check are for file: stores"
        ))),
    }
}

/// Copy the store into a new file, while others use it
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold store backup leases-monday.fencehold \\
  --store file:/var/lib/app/leases")]
pub(crate) struct BackupArgs {
    /// The file to create
    #[arg(value_name = "FILE")]
    to: PathBuf,
}

impl BackupArgs {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let (place, store) = directory(context)?;
        let progress = Progress::of("copying");
        let copied = fencehold_store_file::backup(store, &self.to);
        drop(progress);
        copied.map_err(|error| Failure::of_store(error, &place))?;
        note(&format!("{place} was copied to {}", self.to.display()));
        Ok(())
    }
}

/// Put a backup into an empty directory, and advance it
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold store restore leases-monday.fencehold --by alice \\
  --store file:/var/lib/app/leases")]
#[command(after_help = "\
Tokens were granted since the backup was made. So the restored store is advanced at once: every lease in it is ended, \
every counter is raised, and nothing is granted until the longest ttl in it has passed.")]
pub(crate) struct RestoreArgs {
    /// The backup
    #[arg(value_name = "FILE")]
    from: PathBuf,
    /// Who does it
    #[arg(long, value_name = "NAME")]
    by: Owner,
}

impl RestoreArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let (place, target) = directory(context)?;
        let explain = |error| Failure::of_store(error, &place);
        // Advanced away from its place, and put there when it is: no caller meanwhile gets a token of the day of the backup.
        let progress = Progress::of("restoring");
        let aside = fencehold_store_file::ScratchDirectory::within(target.clone()).map_err(explain)?;
        let mut restored = target.clone();
        aside.path().clone_into(&mut restored.directory);
        fencehold_store_file::restore(&self.from, restored.clone()).map_err(explain)?;
        let mut there = context.place()?;
        there.url = StoreUrl::File(restored.clone());
        let store = context.open_at(&there)?;
        let advanced = store
            .closing(async |store| {
                store.explained(store.leases.advance(&store.call, self.by, ADVANCE_BY)).await
            })
            .await?;
        let whole = aside.path().join("advanced");
        fencehold_store_file::backup(restored, &whole).map_err(explain)?;
        fencehold_store_file::restore(&whole, target).map_err(explain)?;
        drop(progress);
        note(&format!(
            "{place} was restored and advanced: {} leases ended, {} keys raised, closed for {}",
            advanced.ended_count,
            advanced.key_count,
            show_exact_ms(advanced.closed_for_ms)
        ));
        Ok(())
    }
}

/// Check a store, or a backup, for damage
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold store check
fencehold store check leases-monday.fencehold")]
pub(crate) struct CheckArgs {
    /// A backup [default: the store's own directory]
    #[arg(value_name = "FILE")]
    path: Option<PathBuf>,
}

#[derive(Serialize)]
struct CheckOutput {
    schema_version: u32,
    epoch: u64,
    key_count: u64,
    held_count: u64,
    job_count: u64,
    unreadable_row_count: u64,
    problems: Vec<String>,
}

impl CheckArgs {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult<ExitCode> {
        let (name, store) = match self.path {
            Some(path) => (path.display().to_string(), FileUrl::new(path)),
            None => directory(context)?,
        };
        let progress = Progress::of("checking");
        let found = fencehold_store_file::check(store);
        drop(progress);
        let found = found.map_err(|error| Failure::of_store(error, &name))?;
        let report = CheckOutput {
            schema_version: found.schema,
            epoch: found.epoch,
            key_count: found.keys,
            held_count: found.held,
            job_count: found.jobs,
            unreadable_row_count: found.set_aside,
            problems: found.problems,
        };
        let damaged = !report.problems.is_empty();
        context.output.one(&report, |style| {
            let verdict =
                if damaged { format!("{} problems", report.problems.len()) } else { "no damage".to_owned() };
            let lines = [
                ("checked", name),
                ("verdict", verdict),
                ("schema version", report.schema_version.to_string()),
                ("epoch", report.epoch.to_string()),
                ("keys", report.key_count.to_string()),
                ("held", report.held_count.to_string()),
                ("unfinished jobs", report.job_count.to_string()),
                ("unreadable rows", report.unreadable_row_count.to_string()),
            ];
            let problems = report.problems.iter().map(|problem| format!("  {problem}\n"));
            facts(style, lines) + &problems.collect::<String>()
        })?;
        if damaged {
            complain("restore a backup into a fresh directory with `fencehold store restore`.");
            return Ok(ExitStatus::Unusable.into());
        }
        Ok(ExitCode::SUCCESS)
    }
}
