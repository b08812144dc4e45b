//! `fencehold store check`: is anything damaged?

use std::path::PathBuf;

use fencehold_contract::FileUrl;
use serde::Serialize;

use crate::context::Context;
use crate::exit_code::ExitStatus;
use crate::failure::Failure;
use crate::output::complain;
use crate::show::facts;
use crate::verb::store::directory;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold store check
  fencehold store check leases-monday.fencehold
";

/// Check a store, or a backup, for damage
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
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

impl Args {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let (name, store) = match self.path {
            Some(path) => (path.display().to_string(), FileUrl::new(path)),
            None => directory(context)?,
        };
        let found = fencehold_store_file::check(store).map_err(|error| Failure::of_store(error, &name))?;
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
            let text = facts(
                style,
                [
                    ("checked", name.clone()),
                    ("verdict", verdict),
                    ("schema version", report.schema_version.to_string()),
                    ("epoch", report.epoch.to_string()),
                    ("keys", report.key_count.to_string()),
                    ("held", report.held_count.to_string()),
                    ("unfinished jobs", report.job_count.to_string()),
                    ("unreadable rows", report.unreadable_row_count.to_string()),
                ],
            );
            let problems = report.problems.iter().map(|problem| format!("  {problem}\n"));
            text + &problems.collect::<String>()
        })?;
        if damaged {
            complain("restore a backup into a fresh directory with `fencehold store restore`.");
            return Ok(ExitStatus::Unusable.code());
        }
        Ok(DONE)
    }
}
