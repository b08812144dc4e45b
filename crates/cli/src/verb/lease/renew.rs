//! `fencehold lease renew`: keep a lease that a script holds.

use fencehold_core::Key;
use fencehold_core::lease::LeaseRenewal;
use serde::Serialize;

use crate::context::{Context, Store};
use crate::duration::{show_exact_ms, show_ms};
use crate::failure::{Failure, only_answer};
use crate::hold;
use crate::show::facts;
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  # With FENCEHOLD_HOLD and FENCEHOLD_TOKEN set, as `lease acquire -o env` does it
  fencehold lease renew reports/daily || exit
";

const MORE: &str = "\
The hold id comes from FENCEHOLD_HOLD or from stdin; the arguments of a process are there for everybody to read. \
Exit code 76 means that the lease is over: stop.";

/// Keep a lease for another ttl
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// What is held
    #[arg(value_name = "KEY")]
    key: Key,
    #[arg(long, value_name = "N", help = hold::TOKEN_HELP)]
    token: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Kept {
    key: Key,
    #[serde(flatten)]
    renewal: LeaseRenewal,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let store = context.open_to_look()?;
        store.closing(async |store| self.renew(context, store).await).await
    }

    async fn renew(self, context: &Context, store: &Store) -> Outcome {
        let key = self.key.clone();
        let hold = hold::kept(self.key, self.token)?;
        let renewed = store
            .leases
            .renew(&store.call, vec![hold])
            .await
            .map_err(|error| store.explain(error))?;
        let renewal = only_answer(renewed.results, |refusal| Failure::refused(&key, refusal))?;
        let kept = Kept { key, renewal };
        context.output.one(&kept, |palette| {
            let Kept { key, renewal } = &kept;
            let mut lines = vec![
                ("key", key.to_string()),
                ("token", renewal.token.to_string()),
                ("remaining", show_ms(renewal.remaining_ms)),
            ];
            if let Some(notice) = &renewal.yield_request {
                lines.push(("yield to", notice.contender.to_string()));
                lines.push(("yield in", show_exact_ms(notice.yield_in_ms)));
            }
            facts(palette, lines)
        })?;
        Ok(DONE)
    }
}
