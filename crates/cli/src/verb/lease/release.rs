//! `fencehold lease release`: end a lease that a script holds.

use fencehold_contract::ReleasedLease;
use fencehold_core::Key;

use crate::context::{Context, OpenStore};
use crate::failure::{Failure, only_answer};
use crate::hold_id;
use crate::show::facts;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  # After eval \"$(fencehold lease acquire reports/daily -o env)\"
  fencehold lease release reports/daily
";

const MORE: &str = "\
The hold id comes from FENCEHOLD_HOLD_ID or from stdin, never from an argument, which every user of the machine could read. \
Exit code 76 means that the lease was lost before: another holder may have worked at the same time.";

/// Release a lease
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// The key that is held
    #[arg(value_name = "KEY")]
    key: Key,
    #[arg(long, value_name = "N", help = hold_id::TOKEN_HELP)]
    token: Option<u64>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_look()?;
        store.closing(async |store| self.release(context, store).await).await
    }

    async fn release(self, context: &Context, store: &OpenStore) -> VerbResult {
        let key = self.key.clone();
        let hold = hold_id::kept(self.key, self.token)?;
        let answers = store
            .leases
            .release(&store.call, vec![hold])
            .await
            .map_err(|error| store.explain(error))?;
        let released = only_answer(answers, |refusal| Failure::refused(&key, refusal))?;
        context.output.one(&released, |style| {
            let ReleasedLease { key, token } = &released;
            facts(
                style,
                [("key", key.to_string()), ("token", token.to_string()), ("state", "released".to_owned())],
            )
        })?;
        Ok(DONE)
    }
}
