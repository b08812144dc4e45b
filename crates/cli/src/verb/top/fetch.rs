//! Fetching what a view shows, and acting: the only place that knows the store. Lists are read as far as a screen is of use, and nothing is
//! counted.

use fencehold_contract::job::{
    ChangeJobsRequest, JobAction, JobFilter, JobSelector, JobView, ListJobsRequest, QueueMode,
    SetQueueModeRequest,
};
use fencehold_contract::{
    LeaseView, ListContentionRequest, ListEventsRequest, ListLeasesRequest, RevokeLeasesRequest,
    RevokeTarget, StoreError,
};
use fencehold_core::job::JobState;
use fencehold_core::limits::PAGE_MAX;
use fencehold_core::{Key, Owner, Reason};

use super::action::Action;
use super::query::{Found, Held, LeaseFound, NewEvents, Page, Query, ROWS_MAX, Trouble};
use crate::context::OpenStore;
use crate::failure::Failure;

/// How far back, in events of the whole store, the first look goes.
const EVENTS_BACK: u64 = 4_096;
/// And of one key, whose events are few.
const EVENTS_BACK_OF_KEY: u64 = 16_384;
/// A page may be short, or empty, and still not be the last: so many are read for one picture.
const PAGES_MAX: usize = 5;
/// How many jobs of each kind are read: those that need a person, those that run, those that wait.
const JOBS_MAX: usize = 200;

const NEED_A_PERSON: [JobState; 3] = [JobState::Failed, JobState::Quarantined, JobState::InDoubt];
const WAIT: [JobState; 2] = [JobState::Queued, JobState::Scheduled];

/// Fetches what a view shows.
pub(super) async fn fetch(store: &OpenStore, query: Query) -> Result<Found, Trouble> {
    match query {
        Query::Leases(request) => Ok(Found::Leases(leases(store, request).await.map_err(in_words(store))?)),
        Query::Queues => {
            let queues = store.ask(async |jobs, call| jobs.list_queues(call).await).await;
            queues.map(|list| Found::Queues(list.queues)).map_err(said)
        }
        Query::Jobs(filter) => jobs(store, filter).await.map(Found::Jobs).map_err(said),
        Query::Workers { cursor } => {
            let held = held(store).await?;
            // Who was lost is in the events; who holds what is not.
            let events = match new_events(store, cursor, None, EVENTS_BACK).await {
                Err(StoreError::Forbidden { .. }) => None,
                events => events.map_err(in_words(store))?,
            };
            Ok(Found::Workers { held, events })
        }
        Query::Events { cursor } => {
            let events = new_events(store, cursor, None, EVENTS_BACK).await;
            events.map(Found::Events).map_err(in_words(store))
        }
        Query::Lease { key, cursor } => {
            let found = lease(store, key, cursor).await.map_err(in_words(store))?;
            Ok(Found::Lease(Box::new(found)))
        }
        Query::Job(id) => {
            let job = store.ask(async |jobs, call| jobs.get_job(call, id).await).await;
            job.map(|job| Found::Job(job.map(Box::new))).map_err(said)
        }
    }
}

async fn leases(store: &OpenStore, mut request: ListLeasesRequest) -> Result<Page<LeaseView>, StoreError> {
    let mut page = Page::default();
    for _ in 0..PAGES_MAX {
        let listed = store.leases.list(&store.call, request.clone()).await?;
        page.rows.extend(listed.leases);
        page.has_more = listed.next_cursor.is_some();
        request.cursor = listed.next_cursor;
        if !page.has_more || page.rows.len() >= ROWS_MAX {
            break;
        }
    }
    page.rows.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(page)
}

/// Those that need a person first, then those that run, then those that wait; or those in the states that were named.
async fn jobs(store: &OpenStore, filter: JobFilter) -> Result<Page<JobView>, Failure> {
    let groups = match filter.states.as_slice() {
        [] => vec![NEED_A_PERSON.to_vec(), vec![JobState::Running], WAIT.to_vec()],
        states => vec![states.to_vec()],
    };
    let mut page = Page::default();
    for states in groups {
        let some = some_jobs(store, JobFilter { states, ..filter.clone() }, JOBS_MAX).await?;
        page.rows.extend(some.rows);
        page.has_more |= some.has_more;
    }
    Ok(page)
}

async fn some_jobs(store: &OpenStore, filter: JobFilter, limit: usize) -> Result<Page<JobView>, Failure> {
    let mut page = Page::default();
    let mut request = ListJobsRequest { filter, cursor: None, limit };
    for _ in 0..PAGES_MAX {
        let listed = store
            .ask(async |jobs, call| jobs.list_jobs(call, request.clone()).await)
            .await?;
        page.rows.extend(listed.jobs);
        page.has_more = listed.next_cursor.is_some();
        request.cursor = listed.next_cursor;
        request.limit = limit.saturating_sub(page.rows.len());
        if !page.has_more || request.limit == 0 {
            break;
        }
    }
    Ok(page)
}

/// What all owners hold. What the access token does not allow to see is left out, and said.
async fn held(store: &OpenStore) -> Result<Held, Trouble> {
    let mut held = Held::default();
    let request = ListLeasesRequest { limit: ROWS_MAX, ..ListLeasesRequest::default() };
    match leases(store, request).await {
        Ok(page) => held.leases = page,
        Err(StoreError::Forbidden { .. }) => held.hidden.push("leases"),
        Err(error) => return Err(in_words(store)(error)),
    }
    if let Some(jobs) = store.leases.jobs() {
        let filter = JobFilter { states: vec![JobState::Running], ..JobFilter::default() };
        let request = ListJobsRequest { filter, cursor: None, limit: PAGE_MAX };
        match jobs.list_jobs(&store.call, request).await {
            Ok(listed) => held.jobs = Page { has_more: listed.next_cursor.is_some(), rows: listed.jobs },
            Err(StoreError::Forbidden { .. }) => held.hidden.push("jobs"),
            // A server whose own store keeps none.
            Err(StoreError::Unsupported { .. }) => {}
            Err(error) => return Err(in_words(store)(error)),
        }
    }
    Ok(held)
}

async fn lease(store: &OpenStore, key: Key, cursor: Option<u64>) -> Result<LeaseFound, StoreError> {
    let view = store.leases.get(&store.call, key.clone()).await?;
    let request = ListContentionRequest { key: Some(key.clone()), prefix: None };
    let contention = match store.leases.list_contention(&store.call, request).await {
        Ok(list) => list.keys.into_iter().next(),
        // A server of an earlier version: all else can be shown.
        Err(StoreError::Unsupported { .. } | StoreError::Unusable { .. }) => None,
        Err(error) => return Err(error),
    };
    let mut events = new_events(store, cursor, Some(&key), EVENTS_BACK_OF_KEY).await?;
    if let Some(events) = &mut events {
        // Longer keys begin with it, too.
        events.events.retain(|event| event.key == key);
    }
    Ok(LeaseFound { view, contention, events })
}

/// The events after a cursor, or the newest ones. `None`: the store keeps none.
async fn new_events(
    store: &OpenStore,
    known: Option<u64>,
    key: Option<&Key>,
    back: u64,
) -> Result<Option<NewEvents>, StoreError> {
    let list = async |cursor, limit| {
        let prefix = key.map(|key| key.as_str().to_owned());
        let request = ListEventsRequest { cursor, prefix, limit, ..ListEventsRequest::default() };
        match store.leases.list_events(&store.call, request).await {
            Err(StoreError::Unsupported { .. }) => Ok(None),
            listed => listed.map(Some),
        }
    };
    let mut follows = known.is_some();
    let mut cursor = match known {
        Some(known) => known,
        // Not by its status where there are no events: that is dear in a store that keeps no counts.
        None if list(None, 1).await?.is_none() => return Ok(None),
        None => {
            let status = store.leases.status(&store.call).await?;
            status.newest_event_seq.saturating_sub(back)
        }
    };
    let mut events = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = match list(Some(cursor), PAGE_MAX).await {
            Ok(Some(page)) => page,
            Ok(None) => return Ok(None),
            Err(StoreError::CursorTooOld { oldest_cursor, .. }) => {
                cursor = oldest_cursor.saturating_sub(1);
                continue;
            }
            // It was restored from a backup, say: what is known of it is not its story any more.
            Err(StoreError::BadInput(_)) if known.is_some() => {
                cursor = 0;
                follows = false;
                continue;
            }
            Err(error) => return Err(error),
        };
        let is_last = page.events.len() < PAGE_MAX;
        cursor = page.next_cursor;
        events.extend(page.events);
        if is_last {
            break;
        }
    }
    Ok(Some(NewEvents { events, cursor, follows }))
}

/// Does what was confirmed, and says that it was done.
pub(super) async fn act(
    store: &OpenStore,
    action: Action,
    reason: Option<Reason>,
    by: Owner,
) -> Result<String, Trouble> {
    let trouble = |failure: Failure| said(failure);
    match action {
        Action::Revoke { key, token, .. } => {
            let Some(reason) = reason else { return Err(said(Failure::usage("a reason is needed"))) };
            // Only the hold that was shown: the key may have another holder by now.
            let target = RevokeTarget::Key { key: key.clone(), only_token: Some(token) };
            let request = RevokeLeasesRequest { target, by, reason };
            let ended = store
                .explained(store.leases.revoke(&store.call, request))
                .await
                .map_err(trouble)?;
            match ended.first() {
                Some(ended) => {
                    let consumed = ended.revoked.consumed_token;
                    Ok(format!("{key}: token {token} was revoked, and token {consumed} consumed"))
                }
                None => Err(said(Failure::failed(format!("{key} is not held under token {token} any more")))),
            }
        }
        Action::SetMode { queue, mode } => {
            let request = SetQueueModeRequest { queue: queue.clone(), mode, by };
            store
                .ask(async |jobs, call| jobs.set_queue_mode(call, request.clone()).await)
                .await
                .map_err(trouble)?;
            let done = if mode == QueueMode::Paused { "paused" } else { "open again" };
            Ok(format!("queue {queue} is {done}"))
        }
        Action::Cancel { job } | Action::Retry { job } => {
            let cancels = matches!(action, Action::Cancel { .. });
            let change = if cancels { JobAction::Cancel { reason, force: false } } else { JobAction::Retry };
            let selector = JobSelector::Ids { job_ids: vec![job] };
            let request = ChangeJobsRequest::new(selector, change, by);
            let changed = store
                .ask(async |jobs, call| jobs.change_jobs(call, request.clone()).await)
                .await
                .map_err(trouble)?;
            match changed.results.into_iter().next().map(|changed| changed.result) {
                Some(Ok(state)) if cancels && state == JobState::Running => {
                    Ok(format!("job {job}: its worker is asked to stop"))
                }
                Some(Ok(state)) => Ok(format!("job {job} is {state}")),
                Some(Err(refusal)) => Err(said(Failure::refused_change(job, refusal))),
                None => Err(said(Failure::failed("the store gave no answer"))),
            }
        }
    }
}

fn in_words(store: &OpenStore) -> impl Fn(StoreError) -> Trouble {
    |error| said(store.explain(error))
}

/// What a failure says to people, in one line.
fn said(failure: Failure) -> Trouble {
    use crate::exit_code::ExitStatus;
    match failure {
        Failure::Said { exit, what, .. } => Trouble { says: what, passes: exit == ExitStatus::Unavailable },
        Failure::ReaderGone => Trouble { says: "the terminal is gone".to_owned(), passes: false },
    }
}
