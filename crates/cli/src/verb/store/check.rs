//! `fencehold store check`: is anything damaged?

use std::path::PathBuf;

use fencehold_contract::FileUrl;
use serde::Serialize;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::note;
use crate::show::facts;
use crate::verb::store::directory;
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold store check
  fencehold store check leases-monday.fencehold
";

/// Look for damage in the store, or in a backup
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// A backup; otherwise the store's own directory
    #[arg(value_name = "FILE")]
    path: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    epoch: u64,
    keys: u64,
    held: u64,
    set_aside: u64,
    problems: Vec<String>,
}

impl Args {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let (name, store) = match self.path {
            Some(path) => (path.display().to_string(), FileUrl::new(path)),
            None => directory(context)?,
        };
        let found = fencehold_store_file::check(store).map_err(|error| Failure::of_store(error, &name))?;
        let report = Report {
            schema: found.schema,
            epoch: found.epoch,
            keys: found.keys,
            held: found.held,
            set_aside: found.set_aside,
            problems: found.problems,
        };
        let damaged = !report.problems.is_empty();
        context.output.one(&report, |palette| {
            let verdict =
                if damaged { format!("{} problems", report.problems.len()) } else { "no damage".to_owned() };
            let text = facts(
                palette,
                [
                    ("checked", name.clone()),
                    ("verdict", verdict),
                    ("schema", report.schema.to_string()),
                    ("epoch", report.epoch.to_string()),
                    ("keys", report.keys.to_string()),
                    ("held on record", report.held.to_string()),
                    ("set aside", report.set_aside.to_string()),
                ],
            );
            let problems = report.problems.iter().map(|problem| format!("  {problem}\n"));
            text + &problems.collect::<String>()
        })?;
        if damaged {
            note("Restore a backup into a fresh directory with `fencehold store restore`.");
            return Ok(Exit::Unusable.code());
        }
        Ok(DONE)
    }
}
