//! `fencehold lease release`: give back a lease that a script holds.

use fencehold_core::Key;

use crate::context::{Context, Store};
use crate::failure::{Failure, only_answer};
use crate::hold;
use crate::show::facts;
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  # With FENCEHOLD_HOLD and FENCEHOLD_TOKEN set, as `lease acquire -o env` does it
  fencehold lease release reports/daily
";

const MORE: &str = "\
The hold id comes from FENCEHOLD_HOLD or from stdin; the arguments of a process are there for everybody to read. \
Exit code 76 means that the lease was over before: what ran under it may have had company.";

/// Give a lease back
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// What is held
    #[arg(value_name = "KEY")]
    key: Key,
    #[arg(long, value_name = "N", help = hold::TOKEN_HELP)]
    token: Option<u64>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let store = context.open_to_look()?;
        store.closing(async |store| self.release(context, store).await).await
    }

    async fn release(self, context: &Context, store: &Store) -> Outcome {
        let key = self.key.clone();
        let hold = hold::kept(self.key, self.token)?;
        let answers = store
            .leases
            .release(&store.call, vec![hold])
            .await
            .map_err(|error| store.explain(error))?;
        let token = only_answer(answers, |refusal| Failure::refused(&key, refusal))?;
        let released = serde_json::json!({ "key": key, "token": token, "released": true });
        context.output.one(&released, |palette| {
            facts(
                palette,
                [("key", key.to_string()), ("token", token.to_string()), ("state", "released".to_owned())],
            )
        })?;
        Ok(DONE)
    }
}
