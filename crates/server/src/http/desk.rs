//! What operators, schedulers and request handlers ask: acting on jobs, queues, schedules, operations, doubts.

use fencehold_api::Nothing;
use fencehold_api::desk::{
    ActRequest, Acted, Began, BeginRequest, FindingPage, FindingsRequest, QueueOrder, QueueView, Queues,
    RemoveQueueRequest, RemoveRequest, Removed, ResolveRequest, Resolved, ScheduleSpec, ScheduleView,
    Schedules,
};
use fencehold_contract::StoreError;
use fencehold_contract::wire::Across;

use super::answer::{Answer, Asked};
use super::job::callers_own;

pub(super) async fn act(asked: Asked, request: ActRequest) -> Answer<Acted> {
    let acted = asked.jobs()?.act(&asked.call, request.across()).await;
    acted.map(Across::across).map_err(Across::across)
}

pub(super) async fn queues(asked: Asked, _: Nothing) -> Answer<Queues> {
    let queues = asked.jobs()?.queues(&asked.call).await;
    queues.map(|queues| Queues { queues: queues.across() }).map_err(Across::across)
}

pub(super) async fn set_queue(asked: Asked, order: QueueOrder) -> Answer<QueueView> {
    let view = asked.jobs()?.set_queue(&asked.call, order.across()).await;
    view.map(Across::across).map_err(Across::across)
}

pub(super) async fn remove_queue(asked: Asked, request: RemoveQueueRequest) -> Answer<Removed> {
    let removed = asked.jobs()?.remove_queue(&asked.call, request.queue, request.by).await;
    removed.map(|removed| Removed { removed }).map_err(Across::across)
}

pub(super) async fn schedules(asked: Asked, _: Nothing) -> Answer<Schedules> {
    let schedules = asked.jobs()?.schedules(&asked.call).await;
    schedules
        .map(|schedules| Schedules { schedules: schedules.across() })
        .map_err(Across::across)
}

pub(super) async fn set_schedule(asked: Asked, spec: ScheduleSpec) -> Answer<ScheduleView> {
    let view = asked.jobs()?.set_schedule(&asked.call, spec.across()).await;
    view.map(Across::across).map_err(Across::across)
}

pub(super) async fn remove_schedule(asked: Asked, request: RemoveRequest) -> Answer<Removed> {
    let removed = asked.jobs()?.remove_schedule(&asked.call, request.name, request.by).await;
    removed.map(|removed| Removed { removed }).map_err(Across::across)
}

pub(super) async fn begin(asked: Asked, request: BeginRequest) -> Answer<Began> {
    asked.server.stopping.check()?;
    let request = fencehold_contract::job::BeginRequest {
        id: match request.id {
            Some(id) => callers_own(id).map_err(|bad| StoreError::BadInput(bad).across())?,
            None => asked.fresh_id()?,
        },
        key: request.key,
        payload: request.payload.across(),
        hold: request.hold,
        owner: request.owner,
        ttl_ms: request.ttl_ms,
        window_ms: request.window_ms,
        policy: request.policy,
    };
    let began = asked.jobs()?.begin(&asked.call, request).await;
    began.map(Across::across).map_err(Across::across)
}

pub(super) async fn findings(asked: Asked, request: FindingsRequest) -> Answer<FindingPage> {
    let page = asked.jobs()?.findings(&asked.call, request.across()).await;
    page.map(Across::across).map_err(Across::across)
}

pub(super) async fn resolve(asked: Asked, request: ResolveRequest) -> Answer<Resolved> {
    let outcome = asked.jobs()?.resolve(&asked.call, request.across()).await;
    outcome
        .map(|outcome| Resolved { outcome: outcome.across() })
        .map_err(Across::across)
}
