//! `memory:`: the engine with nothing kept. For tests and for one process.

use std::sync::Arc;

use async_trait::async_trait;
use fencehold_contract::clock::Clock;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::metrics::StoreMetrics;
use fencehold_contract::operation::{CallHold, StoreBackend, StoreRequest, StoreResponse};
use fencehold_contract::{CallContext, Capabilities, KeepFinished, StoreError};
use fencehold_core::limits::TTL_MS_MIN;

use crate::{Engine, MemoryPersistence, Writer};

/// A store in this process's memory. It is gone with its last handle.
#[derive(Debug)]
pub struct MemoryStore {
    writer: std::sync::Mutex<Option<Writer>>,
    handle: crate::Handle,
    measures: Arc<StoreMetrics>,
    hold_changes: Arc<HoldChanges>,
}

impl MemoryStore {
    /// A fresh store on this clock.
    pub fn open(clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::open_with(clock, KeepFinished::default())
    }

    /// The same, with finished jobs kept for another time than the usual one.
    pub fn open_with(clock: Arc<dyn Clock>, kept: KeepFinished) -> Result<Self, StoreError> {
        let mut engine = Engine::new();
        engine.keep_finished(kept);
        engine.count_into(Arc::default());
        let measures = Arc::clone(&engine.measures);
        let hold_changes = Arc::clone(&engine.hold_changes);
        let writer = Writer::start(
            "fencehold-memory",
            clock,
            engine,
            MemoryPersistence::default(),
            false,
            |_, _, _| {},
        )
        .map_err(|error| StoreError::Unavailable {
            message: format!("no thread could be started: {error}"),
        })?;
        let handle = writer.handle.clone();
        Ok(MemoryStore { writer: std::sync::Mutex::new(Some(writer)), handle, measures, hold_changes })
    }
}

#[async_trait]
impl StoreBackend for MemoryStore {
    async fn execute(&self, call: &CallContext, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        let claim = CallHold::of(call, &ask).map(|claim| claim.after_sending(false));
        let answer = self.handle.ask(call.namespace.clone(), ask, claim, u64::MAX).await;
        answer.unwrap_or_else(|| Err(StoreError::Unavailable { message: "this store was closed".to_owned() }))
    }

    fn metrics(&self) -> Option<&StoreMetrics> {
        Some(&self.measures)
    }

    fn hold_changes(&self) -> Option<&Arc<HoldChanges>> {
        Some(&self.hold_changes)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            store: "memory:",
            supports_fair_waiting: true,
            supports_waiting: true,
            supports_preemption: true,
            supports_jobs: true,
            durable: false,
            min_ttl_ms: TTL_MS_MIN,
        }
    }

    async fn close(&self) {
        let writer = self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        drop(writer);
    }
}
