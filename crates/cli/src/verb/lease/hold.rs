//! `fencehold lease renew` and `release`: a lease that a script holds.

use fencehold_contract::http::RenewedLease;
use fencehold_contract::{HoldRef, ReleasedLease};
use fencehold_core::Key;
use fencehold_core::lease::LeaseRenewal;

use crate::context::Context;
use crate::duration::show_ms;
use crate::failure::{Failure, only_answer};
use crate::hold_id;
use crate::show::{facts, yield_lines};
use crate::verb::VerbResult;

pub(super) const RENEW_MORE: &str = "\
The hold id comes from FENCEHOLD_HOLD_ID or from stdin, never from an argument, which every user of the machine could read. \
Exit code 76 means that the lease is lost: stop.";

pub(super) const RELEASE_MORE: &str = "\
The hold id comes from FENCEHOLD_HOLD_ID or from stdin, never from an argument, which every user of the machine could read. \
Exit code 76 means that the lease was lost before: another holder may have worked at the same time.";

// Which hold it is.
#[derive(Debug, clap::Args)]
pub(crate) struct HoldArgs {
    /// The key that is held
    #[arg(value_name = "KEY")]
    key: Key,
    #[arg(long, value_name = "N", help = hold_id::TOKEN_HELP)]
    token: Option<u64>,
}

impl HoldArgs {
    fn hold(&self) -> Result<HoldRef, Failure> {
        hold_id::kept(self.key.clone(), self.token)
    }

    pub(super) async fn renew(self, context: &Context) -> VerbResult {
        let key = &self.key;
        let renewed = context
            .look(async |store| store.explained(store.leases.renew(&store.call, vec![self.hold()?])).await)
            .await?;
        let renewal = only_answer(renewed.results, |refusal| Failure::refused(key, refusal))?;
        let LeaseRenewal { token, remaining_ms, yield_request } = renewal;
        let renewed = RenewedLease { token, remaining_ms, yield_request, waited_ms: renewed.waited_ms };
        context.output.one(&renewed, |style| {
            let lines =
                [("key", key.to_string()), ("token", token.to_string()), ("left", show_ms(remaining_ms))];
            facts(style, lines.into_iter().chain(yield_lines(renewed.yield_request.as_ref())))
        })
    }

    pub(super) async fn release(self, context: &Context) -> VerbResult {
        let answers = context
            .look(async |store| store.explained(store.leases.release(&store.call, vec![self.hold()?])).await)
            .await?;
        let released = only_answer(answers, |refusal| Failure::refused(&self.key, refusal))?;
        let ReleasedLease { key, token } = &released;
        let lines =
            [("key", key.to_string()), ("token", token.to_string()), ("state", "released".to_owned())];
        context.output.one(&released, |style| facts(style, lines))
    }
}
