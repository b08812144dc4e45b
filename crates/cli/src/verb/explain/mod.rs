//! `fencehold explain`: why is this stuck, and what happens next?

mod job;
mod lease;

use fencehold_core::job::JobId;
use fencehold_core::{Event, EventData, Key};

use crate::context::{Context, OpenStore};
use crate::failure::Failure;
use crate::follow::{self, EventFilter};
use crate::show::{Colour, Style};
use crate::verb::VerbResult;

/// How many of the last alarms are shown.
const ALARMS_MAX: usize = 5;
/// How the key of a job's events starts.
const JOB_KEY: &str = "job/";

/// Explain why a key is held or a job waits, and what happens next
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold explain reports/daily
fencehold explain reports/daily -o json | jq -r .next
fencehold explain 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55")]
pub(crate) struct Args {
    /// The key or the job
    #[arg(value_name = "KEY|JOB")]
    what: Key,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context
            .look(async |store| {
                // A key may look like the id of a job; then what there is decides.
                let text = self.what.as_str();
                let id = JobId::parse(text.strip_prefix(JOB_KEY).unwrap_or(text)).ok();
                if let Some(id) = id
                    && store.leases.jobs().is_some()
                    && let Some(detail) = store.ask(async |jobs, call| jobs.get_job(call, id).await).await?
                {
                    return job::explain(context, store, &detail).await;
                }
                lease::explain(context, store, self.what).await
            })
            .await
    }
}

/// What is said first, of a key or of a job.
fn head(summary: &str, next: &str, notes: &[String], style: Style) -> String {
    let mut lines = vec![style.paint(&style.wrap(summary, 0), Colour::Strong), String::new()];
    lines.push(style.wrap(&format!("Next: {next}"), 0));
    lines.extend(
        notes
            .iter()
            .map(|note| style.paint(&style.wrap(&format!("Note: {note}"), 0), Colour::Warning)),
    );
    lines.join("\n") + "\n"
}

/// The last late writes that were refused, and worse; and when a job was asked to stop last, in wall time.
async fn alarms(store: &OpenStore, key: &Key) -> Result<(Vec<Event>, Option<u64>), Failure> {
    let mut events = follow::past_if_told(store, EventFilter::of_keys(key.as_str())).await?;
    events.retain(|event| event.key == *key);
    let asked = |event: &&Event| matches!(event.data, EventData::JobCancelRequested { .. });
    let cancelled_wall_ms = events.iter().rev().find(asked).map(|event| event.at_ms);
    events.retain(is_alarm);
    events.drain(..events.len().saturating_sub(ALARMS_MAX));
    Ok((events, cancelled_wall_ms))
}

fn is_alarm(event: &Event) -> bool {
    let is_bad = matches!(
        event.data,
        EventData::StaleWriteBlocked { .. }
            | EventData::StoreRewound { .. }
            | EventData::RowUnreadable { .. }
    );
    is_bad && !event.data.is_renewal_after_release()
}
