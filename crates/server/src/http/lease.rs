//! Leases.

use fencehold_api::lease::{
    AcquireRequest, Acquired, AdvanceRequest, Advanced, Capabilities, GetRequest, Holds, LeasePage,
    LeaseView, LimitsRequest, LimitsView, ListRequest, OpenNowRequest, Opened, Released, Renewed,
    RevokeRequest, RevokedLeases, StoreStatus,
};
use fencehold_api::{EventPage, EventsRequest, Kind, Nothing, Problem};
use fencehold_contract::LeaseStore as _;
use fencehold_contract::wire::Across;

use super::answer::{Answer, Asked};

pub(super) async fn acquire(asked: Asked, request: AcquireRequest) -> Answer<Acquired> {
    let acquired = asked.in_line(asked.store.acquire(&asked.call, request.across())).await?;
    Ok(acquired.across())
}

pub(super) async fn renew(asked: Asked, request: Holds) -> Answer<Renewed> {
    let renewed = asked.store.renew(&asked.call, request.holds.across()).await;
    renewed.map(Across::across).map_err(Across::across)
}

pub(super) async fn release(asked: Asked, request: Holds) -> Answer<Released> {
    let released = asked.store.release(&asked.call, request.holds.across()).await;
    released
        .map(|answers| Released { answers: answers.across() })
        .map_err(Across::across)
}

pub(super) async fn revoke(asked: Asked, request: RevokeRequest) -> Answer<RevokedLeases> {
    let revoked = asked.store.revoke(&asked.call, request.across()).await;
    revoked
        .map(|revoked| RevokedLeases { revoked: revoked.across() })
        .map_err(Across::across)
}

pub(super) async fn get(asked: Asked, request: GetRequest) -> Answer<LeaseView> {
    let key = request.key;
    let view = asked.store.get(&asked.call, key.clone()).await.map_err(Across::across)?;
    view.map(Across::across).ok_or_else(|| {
        let mut problem = Problem::new(Kind::NoSuchKey, format!("{key}: nothing is kept of this key"));
        problem.key = Some(key);
        problem
    })
}

pub(super) async fn list(asked: Asked, request: ListRequest) -> Answer<LeasePage> {
    let page = asked.store.list(&asked.call, request.across()).await;
    page.map(Across::across).map_err(Across::across)
}

pub(super) async fn events(asked: Asked, request: EventsRequest) -> Answer<EventPage> {
    let page = asked.in_line(asked.store.events(&asked.call, request.across())).await?;
    Ok(page.across())
}

pub(super) async fn capabilities(asked: Asked, _: Nothing) -> Answer<Capabilities> {
    Ok(asked.store.capabilities().across())
}

pub(super) async fn status(asked: Asked, _: Nothing) -> Answer<StoreStatus> {
    let status = asked.store.status(&asked.call).await;
    status.map(Across::across).map_err(Across::across)
}

pub(super) async fn limits(asked: Asked, request: LimitsRequest) -> Answer<LimitsView> {
    let view = asked.store.limits(&asked.call, request.across()).await;
    view.map(Across::across).map_err(Across::across)
}

pub(super) async fn open_now(asked: Asked, request: OpenNowRequest) -> Answer<Opened> {
    let opened = asked.store.open_now(&asked.call, request.by).await;
    opened.map(|()| Opened {}).map_err(Across::across)
}

pub(super) async fn advance(asked: Asked, request: AdvanceRequest) -> Answer<Advanced> {
    let advanced = asked.store.advance(&asked.call, request.by, request.lift).await;
    advanced.map(Across::across).map_err(Across::across)
}
