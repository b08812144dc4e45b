//! Every store that this build has: [`open`] gives the one that a [`StoreUrl`] names.

use std::sync::Arc;

use fencehold_contract::clock::Clock;
use fencehold_contract::{LeaseStore, StoreError, StoreUrl};

/// Opens the store that a URL names.
pub fn open(url: &StoreUrl, clock: Arc<dyn Clock>) -> Result<Arc<dyn LeaseStore>, StoreError> {
    match url {
        #[cfg(feature = "remote")]
        StoreUrl::Remote(url) => Ok(Arc::new(fencehold_store_remote::RemoteStore::open(url, clock)?)),
        url => open_within(url, clock, 0),
    }
}

/// The same with a timeout of the caller's, for a store that must be reached to be opened: for how long to retry while it cannot
/// be. The others open at once, and are reached by their first call.
pub fn open_within(
    url: &StoreUrl,
    clock: Arc<dyn Clock>,
    #[cfg_attr(
        not(feature = "remote"),
        expect(unused_variables, reason = "no store of this build needs it")
    )]
    timeout_ms: u64,
) -> Result<Arc<dyn LeaseStore>, StoreError> {
    match url {
        StoreUrl::Memory(kept) => Ok(Arc::new(fencehold_engine::MemoryStore::open_with(clock, *kept)?)),
        #[cfg(feature = "file")]
        StoreUrl::File(url) => {
            let options = fencehold_store_file::FileOptions::of_url(url);
            Ok(Arc::new(fencehold_store_file::FileStore::open_with(&url.directory, clock, options)?))
        }
        #[cfg(not(feature = "file"))]
        StoreUrl::File(_) => Err(lacks("file:", "file")),
        #[cfg(feature = "etcd")]
        StoreUrl::Etcd(url) => Ok(Arc::new(fencehold_store_etcd::EtcdStore::open(url, clock)?)),
        #[cfg(not(feature = "etcd"))]
        StoreUrl::Etcd(_) => Err(lacks("etcd:", "etcd")),
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => Ok(Arc::new(fencehold_store_postgres::PostgresStore::open(url, clock)?)),
        #[cfg(not(feature = "postgres"))]
        StoreUrl::Postgres(_) => Err(lacks("postgres:", "postgres")),
        #[cfg(feature = "remote")]
        StoreUrl::Remote(url) => {
            use fencehold_store_remote::RemoteStore;
            Ok(Arc::new(RemoteStore::open_within(url, clock, timeout_ms)?))
        }
        #[cfg(not(feature = "remote"))]
        StoreUrl::Remote(_) => Err(lacks("http:", "remote")),
        #[cfg(feature = "object")]
        StoreUrl::Object(place) => Ok(Arc::new(fencehold_store_object::ObjectStore::open(
            place,
            clock,
            fencehold_store_object::NonceSeed::draw()?,
        )?)),
        #[cfg(not(feature = "object"))]
        StoreUrl::Object(place) => Err(lacks(place.scheme.name(), "object")),
        other => {
            let message = "be used: this build does not know it".to_owned();
            Err(StoreError::Unsupported { store: other.to_string(), message })
        }
    }
}

#[cfg(not(all(
    feature = "etcd",
    feature = "file",
    feature = "object",
    feature = "postgres",
    feature = "remote"
)))]
fn lacks(store: &str, feature: &str) -> StoreError {
    let what = format!("be used: this build lacks the feature `{feature}`");
    StoreError::Unsupported { store: store.to_owned(), message: what }
}
