//! `fencehold lease revoke`: end leases by force, and leave a trace.

use clap::ArgGroup;
use fencehold_contract::http::RevokeLeaseBatchResponse;
use fencehold_contract::{RevokeLeasesRequest, RevokeTarget, RevokedLease, json};
use fencehold_core::{Key, Owner, Reason, Task, Token};

use crate::context::Context;
use crate::failure::Failure;
use crate::identity::ByArgs;
use crate::show::{Table, or_dash};
use crate::verb::VerbResult;

/// End leases by force, with a reason
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold lease revoke reports/daily --reason 'host is gone'
fencehold lease revoke reports/daily --token 7 --reason 'wrong input'
fencehold lease revoke --task run-42 --reason 'run was cancelled'
fencehold lease revoke --task-prefix run-42 --reason 'and all that it began'")]
#[command(after_help = "\
The holder learns it at once where the store can tell it, else at its next renewal. A token is consumed, so that \
whatever checks tokens refuses the old holder from now on.")]
#[command(override_usage = "\
fencehold lease revoke [OPTIONS] --reason <REASON> <KEY>
       fencehold lease revoke [OPTIONS] --reason <REASON> --task <TASK>
       fencehold lease revoke [OPTIONS] --reason <REASON> --task-prefix <TASK>
       fencehold lease revoke [OPTIONS] --reason <REASON> --owner <OWNER>
       fencehold lease revoke [OPTIONS] --reason <REASON> --prefix <TEXT>")]
#[command(group = ArgGroup::new("which").required(true).args(["key", "task", "task_prefix", "owner", "prefix"]))]
pub(crate) struct Args {
    /// The key
    #[arg(value_name = "KEY")]
    key: Option<Key>,
    /// All that are held for this task
    #[arg(long)]
    task: Option<Task>,
    /// All that are held for this task and those below it: run-42 covers run-42/a
    #[arg(long, value_name = "TASK")]
    task_prefix: Option<Task>,
    /// All of this owner
    #[arg(long)]
    owner: Option<Owner>,
    /// All whose key starts with this text
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Only if the key is still held under this token
    #[arg(long, value_name = "N", conflicts_with_all = ["task", "task_prefix", "owner", "prefix"])]
    token: Option<u64>,
    /// Why; kept in the lease's history
    #[arg(long)]
    reason: Reason,
    #[command(flatten)]
    by: ByArgs,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let by_key = self.key.is_some();
        let ended = context
            .look(async |store| {
                let (reason, by, target) = (self.reason.clone(), self.by.clone().owner()?, self.which()?);
                let request = RevokeLeasesRequest { reason, by, target };
                store.explained(store.leases.revoke(&store.call, request)).await
            })
            .await?;
        if let (true, [one]) = (by_key, ended.as_slice()) {
            return context.output.one(one, |style| table(&ended).render(style));
        }
        let response = RevokeLeaseBatchResponse { results: ended.iter().cloned().map(Ok).collect() };
        let results = response.results.iter().map(|result| json::ItemResult::from(result.clone()));
        context.output.list_as(&response, results, "no lease matches", || table(&ended))
    }

    fn which(self) -> Result<RevokeTarget, Failure> {
        match (self.key, self.task, self.task_prefix, self.owner, self.prefix) {
            (Some(key), ..) => Ok(RevokeTarget::Key { key, only_token: self.token.map(Token::new) }),
            (_, Some(task), ..) => Ok(RevokeTarget::Task(task)),
            (_, _, Some(above), ..) => Ok(RevokeTarget::TaskPrefix(above)),
            (.., Some(owner), _) => Ok(RevokeTarget::Owner(owner)),
            (.., Some(prefix)) if !prefix.is_empty() => Ok(RevokeTarget::Prefix(prefix)),
            _ => Err(Failure::usage("--prefix <TEXT>: an empty prefix would end every lease")
                .with_next("Name what to end: a key, a task, an owner, or how its keys start.")),
        }
    }
}

fn table(ended: &[RevokedLease]) -> Table {
    Table::of(["KEY", "TOKEN", "CONSUMED", "OWNER", "TASK"], ended, |RevokedLease { key, revoked }| {
        [
            key.as_str().into(),
            revoked.token.into(),
            revoked.consumed_token.into(),
            revoked.owner.as_str().into(),
            or_dash(revoked.task.as_ref()),
        ]
    })
}
