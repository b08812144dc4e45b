//! `fencehold lease ls --contended`: which keys callers contend for.

use fencehold_contract::{KeyContention, ListContentionRequest};

use crate::context::Context;
use crate::show::{Table, or_dash, utc};
use crate::verb::VerbResult;

const NOTHING: &str = "no key was contended for in the last hour, as far as this store remembers";

pub(super) async fn list(context: &Context, prefix: Option<String>) -> VerbResult {
    let request = ListContentionRequest { key: None, prefix };
    let list = context
        .look(async |store| {
            store
                .explained(store.leases.list_contention(&store.call, request.clone()))
                .await
        })
        .await?;
    context.output.list(&list, &list.keys, NOTHING, table)
}

fn table(keys: &[KeyContention]) -> Table {
    let header = ["KEY", "REFUSED", "LINE", "SINCE", "LAST", "TO", "TASK"];
    Table::of(header, keys, |seen| {
        let last = seen.last_refused.as_ref();
        [
            seen.key.as_str().into(),
            seen.refused_count.into(),
            seen.max_waiter_count.into(),
            utc(seen.begins_at_ms).into(),
            or_dash(last.map(|last| utc(last.refused_at_ms))),
            or_dash(last.map(|last| last.owner.as_str())),
            or_dash(last.and_then(|last| last.task.as_ref())),
        ]
    })
}

/// What happened to those who wanted a key, in one sentence.
pub(crate) fn sentence(seen: &KeyContention) -> String {
    let since = utc(seen.begins_at_ms);
    let last = seen.last_refused.as_ref().map(|last| {
        let task = last.task.as_ref().map(|task| format!(" for task {task}")).unwrap_or_default();
        format!(", last to {}{task} at {}", last.owner, utc(last.refused_at_ms))
    });
    let times = if seen.refused_count == 1 { "once" } else { &format!("{} times", seen.refused_count) };
    let line = match seen.max_waiter_count {
        0 => String::new(),
        most => format!("; the longest line had {most}"),
    };
    format!("refused {times} since {since}{}{line}.", last.unwrap_or_default())
}
