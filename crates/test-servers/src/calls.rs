//! What callers send in tests, and calls about one lease or one job: short, in the default namespace, and waiting for the
//! response.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};

use fencehold_contract::job::{
    AttemptRef, AttemptReport, ClaimJobsRequest, EnqueuedJob, NewJob, Report, ScheduleSpec, Unique,
};
use fencehold_contract::{
    AcquireLeaseRequest, CallContext, HoldRef, LeaseStore, ReleasedLease, RevokeLeasesRequest, RevokeTarget,
    StoreError,
};
use fencehold_core::job::{
    AttemptRenewal, JobId, JobKind, JobOptions, JobRefusal, QueueName, ReportedAttempt, ScheduleName,
    UniqueKey,
};
use fencehold_core::lease::LeaseRenewal;
use fencehold_core::{HoldId, Key, Namespace, Owner, Reason, Refusal, Token};
use fencehold_test_store::block_on;

/// With a timeout for slow machines.
pub fn call() -> CallContext {
    CallContext::new(Namespace::default()).with_timeout_ms(60_000)
}

/// The key of this name.
pub fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// The owner of this name.
pub fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

/// The queue of this name.
pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// A hold id that is the same byte all over.
pub fn hold_id(byte: u8) -> HoldId {
    HoldId::from_random([byte; 16])
}

/// A lease for half a minute, without waiting.
pub fn lease_request(key_name: &str, hold: u8, owner_name: &str) -> AcquireLeaseRequest {
    AcquireLeaseRequest::new(key(key_name), hold_id(hold), owner(owner_name), 30_000)
}

/// One job for half a minute, without waiting.
pub fn claim_request(queue_name: &str, hold: u8, owner_name: &str) -> ClaimJobsRequest {
    ClaimJobsRequest {
        queues: vec![(queue(queue_name), 1)],
        limit: 1,
        hold_id: hold_id(hold),
        owner: owner(owner_name),
        ttl_ms: 30_000,
        wait_ms: 0,
        waited_before_ms: 0,
    }
}

/// A job of the kind `work`.
pub fn new_job(id: JobId, queue_name: &str, payload: impl Into<Box<str>>) -> NewJob {
    NewJob::new(id, queue(queue_name), JobKind::new("work").unwrap(), payload)
}

/// A unique key of a job.
pub fn unique(name: &str, window_ms: u64) -> Option<Unique> {
    Some(Unique { key: UniqueKey::new(name).unwrap(), window_ms })
}

/// A schedule whose jobs have its name for their kind.
pub fn schedule_spec(name: &str, cron: &str, queue_name: &str) -> ScheduleSpec {
    ScheduleSpec {
        name: ScheduleName::new(name).unwrap(),
        cron: cron.to_owned(),
        time_zone: "UTC".to_owned(),
        queue: queue(queue_name),
        kind: JobKind::new(name).unwrap(),
        payload: "{}".into(),
        options: JobOptions::default(),
        labels: Vec::new(),
        by: owner("P"),
    }
}

/// Force, by the operator `P`.
pub fn revoke_request(target: RevokeTarget) -> RevokeLeasesRequest {
    RevokeLeasesRequest { target, by: owner("P"), reason: Reason::new("it was stuck").unwrap() }
}

/// Force on one key.
pub fn revoke_key(name: &str) -> RevokeLeasesRequest {
    revoke_request(RevokeTarget::Key { key: key(name), only_token: None })
}

/// Calls about one lease or one job.
pub trait OneByOne: LeaseStore {
    /// Takes a key that must be free.
    fn take(&self, request: AcquireLeaseRequest) -> HoldRef {
        let hold_id = request.hold_id;
        let acquired = block_on(self.acquire(&call(), request)).unwrap();
        HoldRef { key: acquired.key, hold_id, token: acquired.grant.token }
    }

    /// Renews one lease.
    fn renew_one(&self, hold: &HoldRef) -> Result<LeaseRenewal, Refusal> {
        block_on(self.renew(&call(), vec![hold.clone()])).unwrap().results.remove(0)
    }

    /// Releases one lease.
    fn release_one(&self, hold: &HoldRef) -> Result<ReleasedLease, Refusal> {
        block_on(self.release(&call(), vec![hold.clone()])).unwrap().remove(0)
    }

    /// Enqueues one job.
    fn enqueue_one(&self, job: NewJob) -> Result<EnqueuedJob, JobRefusal> {
        block_on(self.jobs().unwrap().enqueue(&call(), vec![job])).unwrap().remove(0)
    }

    /// Claims one job, which must be there.
    fn claim_one(&self, request: ClaimJobsRequest) -> AttemptRef {
        let hold_id = request.hold_id;
        let claimed = block_on(self.jobs().unwrap().claim(&call(), request)).unwrap().jobs.remove(0);
        AttemptRef { job_id: claimed.id, hold_id, token: claimed.token }
    }

    /// Renews one claim.
    fn renew_attempt(&self, attempt: &AttemptRef) -> Result<AttemptRenewal, JobRefusal> {
        let renewed = block_on(self.jobs().unwrap().renew_attempts(&call(), vec![attempt.clone()]));
        renewed.unwrap().results.remove(0)
    }

    /// Reports on one attempt.
    fn report_one(&self, attempt: &AttemptRef, report: Report) -> Result<ReportedAttempt, JobRefusal> {
        let report = AttemptReport { attempt: attempt.clone(), report };
        block_on(self.jobs().unwrap().report(&call(), vec![report])).unwrap().remove(0)
    }
}

impl<S: LeaseStore + ?Sized> OneByOne for S {}

/// Why a store that cannot be used says that it cannot.
pub fn unusable<T: Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Unusable { message, .. }) => message,
        other => panic!("not unusable: {other:?}"),
    }
}

/// Why a store that cannot be reached, or is closed, says that it cannot.
pub fn unavailable<T: Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Unavailable { message }) => message,
        other => panic!("not unavailable: {other:?}"),
    }
}

/// Who holds a key, and under which token, in the words of the refusal.
pub fn held_by<T: Debug>(answer: Result<T, StoreError>) -> (String, Token) {
    match answer {
        Err(StoreError::Refused { refusal: Refusal::Held { owner, token, .. }, .. }) => {
            (owner.to_string(), token)
        }
        other => panic!("not held: {other:?}"),
    }
}

/// A waker, and what hears of it.
pub fn waker() -> (Waker, mpsc::Receiver<()>) {
    struct Tell(mpsc::Sender<()>);
    impl Wake for Tell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    let (sender, woken) = mpsc::channel();
    (Waker::from(Arc::new(Tell(sender))), woken)
}

/// A call under way, whose caller can go before it reads the response.
pub struct UnreadCall<'a, T> {
    /// For a caller that stays after all.
    pub response: Pin<Box<dyn Future<Output = T> + 'a>>,
    woken: mpsc::Receiver<()>,
}

impl<'a, T> UnreadCall<'a, T> {
    /// Sends it: it is not answered at once.
    pub fn send(call: impl Future<Output = T> + 'a) -> Self {
        let (waker, woken) = waker();
        let mut response: Pin<Box<dyn Future<Output = T> + 'a>> = Box::pin(call);
        assert!(response.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        UnreadCall { response, woken }
    }

    /// Returns when the response is there; it is not read.
    pub fn until_answered(&self) {
        self.woken.recv().unwrap();
    }
}
