//! `fencehold store probe`: does the storage keep its conditions?

use fencehold_store::StoreUrl;
use fencehold_store::object::{Verdict, probe_place};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::note;
use crate::place::Place;
use crate::show::{Cell, Colour, Table};
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold store probe s3://my-bucket/leases
  fencehold store probe 's3://leases?endpoint=http://minio:9000' -o json
";

/// Check that object storage keeps its conditions, on scratch objects
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The store to probe; otherwise the one that --store names
    #[arg(value_name = "URL")]
    url: Option<String>,
}

impl Args {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        context.output.refuse_env()?;
        let url = match &self.url {
            Some(url) => Place::choose(Some(url))?.url,
            None => context.place()?.url,
        };
        let StoreUrl::Object(place) = &url else {
            let what = format!("{url} has nothing to probe: that is for s3://, gs:// and az://");
            return Err(Failure::new(Exit::Usage, what));
        };
        let report = probe_place(place).map_err(|error| Failure::of_store(error, &url.to_string()))?;
        context.output.one(&report, |palette| {
            let mut table = Table::new(["CHECK", "VERDICT"]);
            for (check, verdict) in &report.checks {
                let verdict = match verdict {
                    Verdict::Failed(why) => Cell::from(format!("failed: {why}")).in_colour(Colour::Bad),
                    _ => Cell::from("passed"),
                };
                table.row([Cell::from(check), verdict]);
            }
            table.render(palette)
        })?;
        if report.failure().is_none() {
            return Ok(DONE);
        }
        note(&format!("{url} does not keep its conditions: two could hold one lease there. Do not use it."));
        Ok(Exit::Unusable.code())
    }
}
