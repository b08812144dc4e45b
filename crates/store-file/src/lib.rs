//! `file:DIR`: the engine, kept in SQLite, shared by every process of the machine that opens the directory.
//!
//! The process that opens it first *owns* it and serves the others through a socket in it. Ownership is an epoch in the
//! database, checked in the transaction of every commit and again before answers that change nothing; so an owner that
//! was stopped and superseded can answer nothing when it wakes. Callers see a pause when an owner goes, not an error:
//! their questions are sent again, which is always safe.

#![cfg_attr(
    not(feature = "sim"),
    allow(unreachable_pub, reason = "what the simulation needs is public for it")
)]

mod atomic_file;
mod boot_clock;
mod codec;
mod directory;
mod disk_lock;
mod foreign_files;
mod frame;
#[cfg(test)]
mod frame_golden;
#[cfg(test)]
mod fuzz;
#[cfg(feature = "gates")]
mod hostile_client;
mod job;
mod lease_rows;
mod load;
mod maintenance;
mod old_events;
#[cfg(feature = "sim")]
mod owned_directory;
mod owner;
mod owner_connection;
mod peer_groups;
mod permissions;
mod progress;
mod schema;
mod service;
mod sqlite;
mod takeover;
mod test_points;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use fencehold_contract::clock::{Clock, SystemClock};
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::metrics::StoreMetrics;
use fencehold_contract::operation::{CallHold, StoreBackend, StoreRequest, StoreResponse};
use fencehold_contract::{CallContext, Capabilities, FileUrl, KeepFinished, StoreError};
use fencehold_core::Key;
use fencehold_core::limits::TTL_MS_MIN;
use fencehold_engine::{PendingResponse, ResponseSender, response_channel};
use tokio::sync::mpsc;

use self::directory::StoreDirectory;
use self::service::{Delivery, HandleCommand, PendingRequest, ServiceShared, closed, or_unknown, owner_went};

pub use self::atomic_file::ScratchDirectory;
#[cfg(feature = "gates")]
pub use self::hostile_client::{KnockResult, probe_socket, questions};
pub use self::maintenance::{CheckReport, backup, check, restore};

/// What a simulation needs: an owner without a thread, and how what is kept is read after a reboot.
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod sim {
    pub use crate::boot_clock::{ClockContinuity, NotedClock};
    pub use crate::job::rebase as rebase_job;
    pub use crate::load::{Trust, rebase};
    pub use crate::owned_directory::OwnedDirectory;
}

/// How long closing waits for an attempt to take over that is no longer wanted.
const ATTEMPT_ENDS_WITHIN: Duration = Duration::from_secs(5);

/// How a directory is served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileOptions {
    /// For how long finished jobs are kept. The directory remembers what was named last; an opener that names nothing leaves it.
    pub keep_finished: KeepFinished,
    /// Wait a little for a batch to fill while it is smaller than the recent ones: one sync then serves more. Off only
    /// to see what it gives.
    pub gather: bool,
    /// Open a store that has lost what was acknowledged from it. For the next `store advance`.
    pub accept_rewound: bool,
    /// Create a store where there is none. Without it that is an error.
    pub create: bool,
    /// The group whose members share the directory: its name, or its number.
    pub group: Option<String>,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions {
            keep_finished: KeepFinished::default(),
            gather: true,
            accept_rewound: false,
            create: false,
            group: None,
        }
    }
}

impl FileOptions {
    /// The same, but each batch takes only what waits already.
    pub fn without_gathering(self) -> Self {
        FileOptions { gather: false, ..self }
    }

    /// The same, but a store that was rewound is opened: its tokens are lifted, and it grants nothing for its longest ttl.
    pub fn accepting_rewound(self) -> Self {
        FileOptions { accept_rewound: true, ..self }
    }

    /// What a URL says.
    pub fn of_url(url: &FileUrl) -> Self {
        let FileUrl { keep_finished, create, group, .. } = url.clone();
        FileOptions { keep_finished, create, group, ..FileOptions::default() }
    }

    /// The same, but a store is created where there is none.
    pub fn creating(self) -> Self {
        FileOptions { create: true, ..self }
    }

    /// The same, but finished jobs are kept for this long.
    pub fn keep_finished(self, keep_finished: KeepFinished) -> Self {
        FileOptions { keep_finished, ..self }
    }
}

/// A store in a directory of this machine.
#[derive(Debug)]
pub struct FileStore {
    shared: Arc<ServiceShared>,
    orders: mpsc::UnboundedSender<HandleCommand>,
    next_id: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl FileStore {
    /// Opens the store in a directory. It must be there.
    ///
    /// The clock decides when leases end; every process that opens the same directory must use the same one.
    pub fn open(directory: &Path, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::open_with(directory, clock, FileOptions::default())
    }

    /// Opens the store in a directory; where there is none, creates it, and the directory for this user alone.
    pub fn open_or_create(directory: &Path, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::open_with(directory, clock, FileOptions::default().creating())
    }

    /// Whether there is a store in a directory that this process can use. Changes nothing.
    pub fn find(url: impl Into<FileUrl>) -> Result<(), StoreError> {
        let url = url.into();
        StoreDirectory::open(&url.directory, false, url.group.as_deref()).map(drop)
    }

    /// Why users who are not meant to could take part in what happens in a directory, or why it cannot be shared with the
    /// group that its URL names. Changes nothing.
    pub fn what_is_unsafe(url: impl Into<FileUrl>) -> Option<String> {
        let url = url.into();
        let path = std::fs::canonicalize(&url.directory).ok()?;
        match url.group.as_deref().map(permissions::SharedGroup::find).transpose() {
            Ok(group) => permissions::what_is_unsafe(&path, group.as_ref()),
            Err(why) => Some(why),
        }
    }

    /// Opens it with other options than the usual ones.
    pub fn open_with(
        directory: &Path,
        clock: Arc<dyn Clock>,
        options: FileOptions,
    ) -> Result<Self, StoreError> {
        let mut place = StoreDirectory::open(directory, options.create, options.group.as_deref())?;
        place.refuse_lost()?;
        place.accept_rewound = options.accept_rewound;
        let place = Arc::new(place);
        let shared = Arc::new(ServiceShared::default());
        let (orders, inbox) = mpsc::unbounded_channel();
        let unavailable = |error: std::io::Error| StoreError::Unavailable {
            message: format!("the thread of {} could not be started: {error}", directory.display()),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2)
            .thread_name("fencehold-file")
            .build()
            .map_err(unavailable)?;
        let service = service::run(place, clock, options, Arc::clone(&shared), inbox);
        let thread = std::thread::Builder::new()
            .name("fencehold-file".to_owned())
            .spawn(move || {
                runtime.block_on(service);
                // An attempt to take over may be under way. It sees that it is no longer wanted and ends, and what
                // closed the store may then do with the directory what they like; but a sick disk must not hold them up.
                runtime.shutdown_timeout(ATTEMPT_ENDS_WITHIN);
            })
            .map_err(unavailable)?;
        Ok(FileStore { shared, orders, next_id: AtomicU64::new(1), thread: Mutex::new(Some(thread)) })
    }

    fn stop(&self) {
        self.shared.close();
        let _ = self.orders.send(HandleCommand::Close);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }

    /// Has the service thread find the owner of the directory, and ask it. `None`: the handle was closed. Dropping it leaves the line,
    /// and gives back a lease that was granted but never taken.
    fn ask_elsewhere(
        &self,
        question: impl FnOnce(ResponseSender<Delivery>) -> PendingRequest,
    ) -> impl Future<Output = Option<Delivery>> + Send {
        let (reply, receiver) = response_channel();
        let question = question(reply);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (orders, asked_in, claim) = (self.orders.clone(), question.namespace.clone(), question.claim);
        // A closed handle drops the question, and with it the reply.
        let _ = self.orders.send(HandleCommand::Ask(id, Box::new(question)));
        PendingResponse::new(receiver, move |told| match told {
            Some(Delivery::Answer { result, sent_before, .. }) => {
                let claim = claim.map(|claim| claim.after_sending(sent_before));
                if let Some(unclaimed) = claim.and_then(|claim| claim.unclaimed(*result)) {
                    let _ = orders.send(HandleCommand::GiveBack(asked_in, Box::new(unclaimed)));
                }
            }
            Some(Delivery::AskHere { .. }) => {}
            None => drop(orders.send(HandleCommand::Cancel(id))),
        })
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        self.stop();
    }
}

#[async_trait]
impl StoreBackend for FileStore {
    async fn execute(&self, call: &CallContext, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        let asked_at_ms = SystemClock.now().store_ms;
        let give_up_ms = asked_at_ms.saturating_add(ask.wait_ms()).saturating_add(call.timeout_ms);
        let claim = CallHold::of(call, &ask);
        let mut uncertain = false;
        loop {
            // Wherever it would go next, also to this process's own engine that has just taken over.
            if uncertain && !ask.may_be_repeated() {
                return Err(owner_went());
            }
            if let Some(engine) = self.shared.here() {
                let sent_at_ms = SystemClock.now().store_ms;
                let aged = ask.aged(sent_at_ms - asked_at_ms, uncertain);
                let claim = claim.map(|claim| claim.after_sending(uncertain));
                if let Some(result) = engine.ask(call.namespace.clone(), aged, claim, give_up_ms).await {
                    let result = result.map_err(|error| or_unknown(error, &ask, uncertain));
                    return result.map(|answer| answer.waited_longer(sent_at_ms - asked_at_ms));
                }
                uncertain = true;
                if !ask.may_be_repeated() {
                    continue;
                }
            }
            let told = self.ask_elsewhere(|reply| PendingRequest {
                namespace: call.namespace.clone(),
                ask: ask.clone(),
                claim,
                asked_at_ms,
                sent_at_ms: asked_at_ms,
                give_up_ms,
                uncertain,
                uncertain_before: uncertain,
                reply,
            });
            match told.await {
                Some(Delivery::Answer { result, sent_at_ms, .. }) => {
                    return (*result)
                        .map(|answer| answer.waited_longer(sent_at_ms.saturating_sub(asked_at_ms)));
                }
                Some(Delivery::AskHere { uncertain: sent }) => uncertain |= sent,
                None => return Err(or_unknown(closed(), &ask, uncertain)),
            }
        }
    }

    /// Opening only looks at the directory. The first answer shows that the store is there, and was created if it had to be.
    async fn ping(&self, call: &CallContext) -> Result<(), StoreError> {
        // A question about leases: it makes no owner read the jobs.
        let any = Key::new("fencehold").map_err(StoreError::from)?;
        self.execute(call, StoreRequest::Get(any)).await.map(drop)
    }

    fn metrics(&self) -> Option<&StoreMetrics> {
        Some(&self.shared.measures)
    }

    fn hold_changes(&self) -> Option<&Arc<HoldChanges>> {
        Some(&self.shared.hold_changes)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            store: "file:",
            supports_fair_waiting: true,
            supports_waiting: true,
            supports_preemption: true,
            supports_jobs: true,
            durable: true,
            min_ttl_ms: TTL_MS_MIN,
        }
    }

    async fn close(&self) {
        self.stop();
    }
}
