//! `fencehold lease stats`: how leases ended lately.

use fencehold_contract::{LeaseStats, LeaseStatsRequest, LeaseStatsStep};

use crate::context::Context;
use crate::duration::parse_ms;
use crate::show::{facts, utc};
use crate::verb::VerbResult;

/// Count how leases ended lately: released, expired, revoked, yielded
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold lease stats
fencehold lease stats --since 24h --step 1h
fencehold lease stats --since 15m -o json | jq .expired_count")]
#[command(after_help = "\
Many expired leases mean that holders die or stall. `postgres:` counts all of the last day, by the minute. `memory:` and `file:` \
count in the events that they keep, `etcd:` and buckets in the last 8 endings of each key: where that does not reach back far \
enough, there were at least as many.")]
pub(crate) struct Args {
    /// How far back to count, at most 24h
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "1h")]
    since: u64,

    /// Count also in steps of this length, at least 1m
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    step: Option<u64>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let (since_ms, step_ms) = (self.since, self.step);
        let stats = context
            .look(async |store| {
                let request = LeaseStatsRequest { since_ms, step_ms };
                store.explained(store.leases.stats(&store.call, request)).await
            })
            .await?;
        context.output.one(&stats, |style| facts(style, lines(&stats)) + &steps(&stats))
    }
}

/// A line for each step.
fn steps(stats: &LeaseStats) -> String {
    let line = |step: &LeaseStatsStep| {
        let ended: Vec<String> =
            step.ended_counts.iter().map(|(how, count)| format!("{count} {how}")).collect();
        let ended = if ended.is_empty() { "none ended".to_owned() } else { ended.join(", ") };
        format!("{}  {ended}\n", utc(step.begins_at_ms))
    };
    stats.steps.iter().map(line).collect()
}

/// Each way that leases ended. The rare ones are named where there were any.
fn lines(stats: &LeaseStats) -> Vec<(&'static str, String)> {
    let total = stats.total();
    let share = |count: u64| match count.saturating_mul(100).checked_div(total) {
        Some(percent) if count > 0 => format!("{count} ({percent} %)"),
        _ => count.to_string(),
    };
    let mut lines = vec![
        ("since", utc(stats.begins_at_ms)),
        ("ended", if stats.complete { total.to_string() } else { format!("at least {total}") }),
        ("released", share(stats.released_count)),
        ("expired", share(stats.expired_count)),
        ("revoked", share(stats.revoked_count)),
        ("yielded", share(stats.yielded_count)),
    ];
    let rare = [
        ("aged out", stats.aged_out_count),
        ("abandoned", stats.abandoned_count),
        ("advanced", stats.advanced_count),
    ];
    lines.extend(
        rare.into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(how, count)| (how, share(count))),
    );
    lines
}
