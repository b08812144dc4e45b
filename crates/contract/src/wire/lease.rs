//! Leases, across the wire.

use fencehold_api as wire;
use fencehold_core::lease::{Grant, Renewal, Revoked};

use super::{Across, mirror};
use crate::{
    AcquireRequest, Acquired, Advanced, Capabilities, EndingView, EventPage, EventsRequest, HoldRef,
    HolderView, LeasePage, LeaseView, Limits, LimitsRequest, LimitsView, ListRequest, NamespaceClosed,
    Renewed, RevokeRequest, RevokedLease, StoreStatus, Used, Which,
};

mirror! {
    wire::lease::AcquireRequest = AcquireRequest {
        keys hold hold_age_ms owner task ttl_ms max_age_ms wait_ms waited_before_ms priority yield_within_ms seen_token
    }
    wire::lease::HoldRef = HoldRef { key hold token }
    wire::lease::Renewed = Renewed { answers waited_ms }
    wire::lease::Renewal = Renewal { token remaining_ms notice yield_in_ms }
    wire::lease::RevokeRequest = RevokeRequest { which by reason }
    wire::lease::LeaseView = LeaseView { key token holder waiters endings }
    wire::lease::HolderView = HolderView {
        owner task ttl_ms max_age_ms priority age_ms remaining_ms renewed_ms_ago notice yield_in_ms;
        since = since_wall_ms
    }
    wire::lease::EndingView = EndingView { token owner task how by reason; at = at_wall_ms }
    wire::lease::ListRequest = ListRequest { prefix owner task include_free cursor limit }
    wire::lease::LeasePage = LeasePage { leases next }
    wire::lease::Advanced = Advanced { keys ended closed_for_ms namespaces }
    wire::lease::Limits = Limits { queues keys jobs bytes schedules ttl_ms }
    wire::lease::Used = Used { queues keys jobs bytes schedules }
    wire::lease::LimitsRequest = LimitsRequest { set every_namespace by }
    wire::lease::LimitsView = LimitsView { limits used }
    wire::lease::NamespaceClosed = NamespaceClosed { namespace closed_for_ms }
    wire::lease::StoreStatus = StoreStatus {
        store owner_pid epoch keys held waiters jobs last_event set_aside maintenance closed_for_ms counts_hidden
    }
    wire::EventsRequest = EventsRequest { after prefix limit wait_ms }
}

impl Across<wire::lease::Acquired> for Acquired {
    fn across(self) -> wire::lease::Acquired {
        let Acquired { key, grant: Grant { token, remaining_ms, resumed }, waited_ms } = self;
        wire::lease::Acquired { key, token, remaining_ms, resumed, waited_ms }
    }
}

impl Across<Acquired> for wire::lease::Acquired {
    fn across(self) -> Acquired {
        let wire::lease::Acquired { key, token, remaining_ms, resumed, waited_ms } = self;
        Acquired { key, grant: Grant { token, remaining_ms, resumed }, waited_ms }
    }
}

impl Across<wire::lease::Which> for Which {
    fn across(self) -> wire::lease::Which {
        match self {
            Which::Key { key, only_token } => wire::lease::Which::Key { key, only_token },
            Which::Task(task) => wire::lease::Which::Task(task),
            Which::Owner(owner) => wire::lease::Which::Owner(owner),
            Which::Prefix(prefix) => wire::lease::Which::Prefix(prefix),
        }
    }
}

impl Across<Which> for wire::lease::Which {
    fn across(self) -> Which {
        match self {
            wire::lease::Which::Key { key, only_token } => Which::Key { key, only_token },
            wire::lease::Which::Task(task) => Which::Task(task),
            wire::lease::Which::Owner(owner) => Which::Owner(owner),
            wire::lease::Which::Prefix(prefix) => Which::Prefix(prefix),
        }
    }
}

impl Across<wire::lease::RevokedLease> for RevokedLease {
    fn across(self) -> wire::lease::RevokedLease {
        let RevokedLease { key, revoked: Revoked { token, consumed, owner, task } } = self;
        wire::lease::RevokedLease { key, token, consumed, owner, task }
    }
}

impl Across<RevokedLease> for wire::lease::RevokedLease {
    fn across(self) -> RevokedLease {
        let wire::lease::RevokedLease { key, token, consumed, owner, task } = self;
        RevokedLease { key, revoked: Revoked { token, consumed, owner, task } }
    }
}

impl Across<wire::EventPage> for EventPage {
    fn across(self) -> wire::EventPage {
        let event = |event: fencehold_core::Event| wire::Event {
            seq: event.seq,
            at: event.at_wall_ms.across(),
            key: event.key,
            fact: event.fact,
        };
        wire::EventPage { events: self.events.into_iter().map(event).collect(), next: self.next }
    }
}

impl Across<wire::lease::Capabilities> for Capabilities {
    fn across(self) -> wire::lease::Capabilities {
        let Capabilities { store, fair, waits, preempts, jobs, durable, ttl_ms_min } = self;
        wire::lease::Capabilities {
            store: store.to_owned(),
            fair,
            waits,
            preempts,
            jobs,
            durable,
            ttl_ms_min,
        }
    }
}
