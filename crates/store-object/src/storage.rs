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

/// What a call says whose thread has ended.
const ENDED: &str = "the storage's thread ended";

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

    async fn run<T: Send + 'static>(
        &self,
        act: impl AsyncFnOnce(&Cloud) -> Result<T, CasError> + Send + 'static,
    ) -> Result<T, CasError> {
        let done = self.0.call(async move |cloud| Ok(act(cloud).await)).await;
        done.unwrap_or_else(|_| Err(CasError::Unavailable { why: ENDED.to_owned() }))
    }
}

/// Probes a place, whatever this process knows of it. Waits for answers: not to be called from an executor.
pub fn probe_place(place: &ObjectUrl) -> Result<ProbeReport, StoreError> {
    let (storage, seed, place) = (Storage::start(place)?, NonceSeed::draw()?, place.clone());
    storage.0.call_blocking(async move |cloud| probe(&**cloud, &place, seed).await)
}

#[async_trait]
impl Cas for Storage {
    async fn read(&self, name: &str, limit: Duration) -> Result<Option<ReadObject>, CasError> {
        let name = name.to_owned();
        self.run(async move |cloud| cloud.read(&name, limit).await).await
    }

    async fn write(
        &self,
        name: &str,
        version: Option<&ObjectVersion>,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<WriteResult, CasError> {
        let (name, version) = (name.to_owned(), version.cloned());
        let write =
            async move |cloud: &Arc<Cloud>| Ok(cloud.write(&name, version.as_ref(), body, limit).await);
        let written = self.0.call(write).await;
        written.unwrap_or_else(|_| Ok(WriteResult::Unknown { why: ENDED.to_owned() }))
    }

    async fn list(&self, folder: &str, limit: Duration) -> Result<Vec<String>, CasError> {
        let folder = folder.to_owned();
        self.run(async move |cloud| cloud.list(&folder, limit).await).await
    }

    async fn reach(&self, limit: Duration) -> Result<(), CasError> {
        self.run(async move |cloud| cloud.reach(limit).await).await
    }

    async fn remove(&self, name: &str, limit: Duration) -> Result<(), CasError> {
        let name = name.to_owned();
        self.run(async move |cloud| cloud.remove(&name, limit).await).await
    }
}
