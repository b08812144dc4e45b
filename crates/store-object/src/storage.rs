//! Storage with a thread of its own, for code that needs no lease store on it: fences, and `store probe`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencehold_contract::{ObjectUrl, StoreError};
use fencehold_net::Actor;

use super::NonceSeed;
use super::cas::{Cas, CasError, ObjectVersion, ReadObject, WriteResult};
use super::cloud::Cloud;
use super::probe::{ProbeReport, once, probe};

/// One of the three clouds, to be used from any executor.
#[derive(Debug)]
pub struct Storage(Actor<Arc<Cloud>>);

impl Storage {
    /// Opens a place, with credentials as that cloud's tools find them. Unless the place says otherwise, it is probed
    /// first; once a process is enough. Waits for answers: not to be called from an executor.
    pub fn open(place: &ObjectUrl) -> Result<Self, StoreError> {
        let storage = Self::start(place)?;
        if place.options.probe {
            let (place, seed) = (place.clone(), NonceSeed::draw()?);
            storage.0.call_blocking(async move |cloud| once(&**cloud, &place, seed).await)?;
        }
        Ok(storage)
    }

    fn start(place: &ObjectUrl) -> Result<Self, StoreError> {
        let cloud = Arc::new(Cloud::open(place)?);
        Ok(Storage(Actor::start("fencehold-object", move |_| Ok(cloud))?))
    }

    async fn run<T: Send + 'static>(&self, act: impl AsyncFnOnce(&Cloud) -> T + Send + 'static) -> Option<T> {
        self.0.call(async move |cloud| Ok(act(cloud).await)).await.ok()
    }
}

/// Probes a place, whatever this process knows of it. Waits for answers: not to be called from an executor.
pub fn probe_place(place: &ObjectUrl) -> Result<ProbeReport, StoreError> {
    let (storage, seed, place) = (Storage::start(place)?, NonceSeed::draw()?, place.clone());
    storage.0.call_blocking(async move |cloud| probe(&**cloud, &place, seed).await)
}

/// What a call says whose thread has ended.
fn broken_off() -> CasError {
    CasError::Unavailable { why: "the storage's thread ended".to_owned() }
}

#[async_trait]
impl Cas for Storage {
    async fn read(&self, name: &str, limit: Duration) -> Result<Option<ReadObject>, CasError> {
        let name = name.to_owned();
        let read = self.run(async move |cloud| cloud.read(&name, limit).await).await;
        read.unwrap_or_else(|| Err(broken_off()))
    }

    async fn create(&self, name: &str, body: Vec<u8>, limit: Duration) -> Result<WriteResult, CasError> {
        let name = name.to_owned();
        let created = self.run(async move |cloud| cloud.create(&name, body, limit).await).await;
        created.unwrap_or_else(|| Ok(WriteResult::Unknown { why: "the storage's thread ended".to_owned() }))
    }

    async fn swap(
        &self,
        name: &str,
        version: &ObjectVersion,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<WriteResult, CasError> {
        let (name, version) = (name.to_owned(), version.clone());
        let swapped = self
            .run(async move |cloud| cloud.swap(&name, &version, body, limit).await)
            .await;
        swapped.unwrap_or_else(|| Ok(WriteResult::Unknown { why: "the storage's thread ended".to_owned() }))
    }

    async fn list(&self, folder: &str, limit: Duration) -> Result<Vec<String>, CasError> {
        let folder = folder.to_owned();
        let list = self.run(async move |cloud| cloud.list(&folder, limit).await).await;
        list.unwrap_or_else(|| Err(broken_off()))
    }

    async fn reach(&self, limit: Duration) -> Result<(), CasError> {
        let reached = self.run(async move |cloud| cloud.reach(limit).await).await;
        reached.unwrap_or_else(|| Err(broken_off()))
    }

    async fn remove(&self, name: &str, limit: Duration) -> Result<(), CasError> {
        let name = name.to_owned();
        let removed = self.run(async move |cloud| cloud.remove(&name, limit).await).await;
        removed.unwrap_or_else(|| Err(broken_off()))
    }
}
