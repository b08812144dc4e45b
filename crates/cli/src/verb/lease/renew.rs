//! `fencehold lease renew`: keep a lease that a script holds.

use fencehold_contract::http::RenewedLease;
use fencehold_core::Key;
use fencehold_core::lease::LeaseRenewal;

use crate::context::{Context, OpenStore};
use crate::duration::{show_exact_ms, show_ms};
use crate::failure::{Failure, only_answer};
use crate::hold_id;
use crate::show::facts;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  # After eval \"$(fencehold lease acquire reports/daily -o env)\"
  fencehold lease renew reports/daily || exit
";

const MORE: &str = "\
The hold id comes from FENCEHOLD_HOLD_ID or from stdin, never from an argument, which every user of the machine could read. \
Exit code 76 means that the lease is lost: stop.";

/// Renew a lease for another ttl
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
        store.closing(async |store| self.renew(context, store).await).await
    }

    async fn renew(self, context: &Context, store: &OpenStore) -> VerbResult {
        let key = self.key.clone();
        let hold = hold_id::kept(self.key, self.token)?;
        let renewed = store
            .leases
            .renew(&store.call, vec![hold])
            .await
            .map_err(|error| store.explain(error))?;
        let renewal = only_answer(renewed.results, |refusal| Failure::refused(&key, refusal))?;
        let LeaseRenewal { token, remaining_ms, yield_request } = renewal;
        let renewed = RenewedLease { token, remaining_ms, yield_request, waited_ms: renewed.waited_ms };
        context.output.one(&renewed, |style| {
            let mut lines = vec![
                ("key", key.to_string()),
                ("token", renewed.token.to_string()),
                ("left", show_ms(renewed.remaining_ms)),
            ];
            if let Some(request) = &renewed.yield_request {
                lines.push(("yield to", request.contender.to_string()));
                lines.push(("yield in", show_exact_ms(request.yield_in_ms)));
            }
            facts(style, lines)
        })?;
        Ok(DONE)
    }
}
