//! What happens to leases in a store without events: found by polling, and shown as if it had them.
//!
//! What comes and goes between two looks is read from the key's history, as far as that reaches back; when something
//! happened is then known only from what the record says, and nothing is known of refused writes.

use std::collections::HashMap;
use std::time::Duration;

use fencehold_contract::{EndingView, LeaseView, ListLeasesRequest};
use fencehold_core::limits::PAGE_MAX;
use fencehold_core::{Event, EventData, Key, Token};

use super::{EventFilter, print};
use crate::context::{OpenStore, pages};
use crate::failure::Failure;
use crate::output::{Output, note};

/// How long between two looks: each is a request for every key.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What was last seen of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LastSeen {
    /// The token of the last hold whose beginning was shown.
    begun: Token,
    /// The token of the last hold whose end was shown.
    ended: Token,
}

/// Prints what happens from now on, for ever.
pub(super) async fn follow(
    store: &OpenStore,
    output: Output,
    filter: EventFilter<'_>,
) -> Result<(), Failure> {
    let prefix = filter.prefix;
    let mut known: HashMap<Key, LastSeen> = HashMap::new();
    for view in look(store, prefix).await? {
        known.insert(view.key.clone(), LastSeen::of(&view));
    }
    note(&format!("this store tells no events: looking at its leases every {} s", LOOK_EVERY.as_secs()));
    let mut seq = 0;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        for view in look(store, prefix).await? {
            let before = known.insert(view.key.clone(), LastSeen::of(&view)).unwrap_or_default();
            for (at_wall_ms, fact) in news(before, &view) {
                let namespace = store.call.namespace.clone();
                let event = Event::new(seq + 1, at_wall_ms, namespace, view.key.clone(), fact);
                // The keys are looked at whichever task they served last: what ended may have served another.
                if filter.includes(&event) {
                    seq += 1;
                    print(output, &event)?;
                }
            }
        }
    }
}

async fn look(store: &OpenStore, prefix: Option<&str>) -> Result<Vec<LeaseView>, Failure> {
    let wanted = ListLeasesRequest {
        prefix: prefix.map(ToOwned::to_owned),
        include_free: true,
        limit: PAGE_MAX,
        ..ListLeasesRequest::default()
    };
    let mut views = Vec::new();
    pages(async |cursor| {
        let request = ListLeasesRequest { cursor, ..wanted.clone() };
        let page = store.explained(store.leases.list(&store.call, request)).await?;
        views.extend(page.leases);
        Ok(page.next_cursor)
    })
    .await?;
    Ok(views)
}

impl LastSeen {
    fn of(view: &LeaseView) -> Self {
        let ended = view.endings.last().map_or(Token::NONE, |ending| ending.token);
        let held = view.holder.as_ref().map_or(Token::NONE, |_| view.token);
        LastSeen { begun: held.max(ended), ended }
    }
}

/// What has happened since, oldest first.
fn news(before: LastSeen, view: &LeaseView) -> Vec<(u64, EventData)> {
    let mut news = Vec::new();
    for ending in view.endings.iter().filter(|ending| ending.token > before.ended) {
        let EndingView { token, owner, task, outcome, by, reason, ended_at_ms, .. } = ending.clone();
        news.push((ended_at_ms, EventData::LeaseEnded { token, owner, task, outcome, by, reason }));
    }
    if let Some(holder) = &view.holder
        && view.token > before.begun
    {
        let (token, ttl_ms) = (view.token, holder.ttl_ms);
        let (owner, task) = (holder.owner.clone(), holder.task.clone());
        news.push((holder.acquired_at_ms, EventData::LeaseAcquired { token, owner, task, ttl_ms }));
    }
    news
}
