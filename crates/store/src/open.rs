//! Opens the store that a URL names.

use std::sync::Arc;

use fencehold_contract::clock::Clock;
use fencehold_contract::{LeaseStore, StoreError, StoreUrl};

/// Opens the store that a URL names.
pub fn open(url: &StoreUrl, clock: Arc<dyn Clock>) -> Result<Arc<dyn LeaseStore>, StoreError> {
    match url {
        StoreUrl::Memory(kept) => Ok(Arc::new(fencehold_engine::MemoryStore::open_with(clock, *kept)?)),
        StoreUrl::File(url) => {
            let options = crate::file::FileOptions::of_url(url);
            Ok(Arc::new(crate::file::FileStore::open_with(&url.directory, clock, options)?))
        }
        #[cfg(not(feature = "file"))]
        StoreUrl::File(..) => Err(StoreError::Unsupported {
            store: "file:".to_owned(),
            what: "be used: this build lacks the feature `file`".to_owned(),
        }),
        StoreUrl::Etcd(url) => Ok(Arc::new(crate::etcd::EtcdStore::open(url, clock)?)),
        #[cfg(not(feature = "etcd"))]
        StoreUrl::Etcd(_) => Err(StoreError::Unsupported {
            store: "etcd:".to_owned(),
            what: "be used: this build lacks the feature `etcd`".to_owned(),
        }),
        StoreUrl::Postgres(url) => Ok(Arc::new(crate::postgres::PostgresStore::open(url, clock)?)),
        #[cfg(not(feature = "postgres"))]
        StoreUrl::Postgres(_) => Err(StoreError::Unsupported {
            store: "postgres:".to_owned(),
            what: "be used: this build lacks the feature `postgres`".to_owned(),
        }),
        StoreUrl::Remote(url) => Ok(Arc::new(crate::remote::RemoteStore::open(url, clock)?)),
        #[cfg(not(feature = "remote"))]
        StoreUrl::Remote(_) => Err(StoreError::Unsupported {
            store: "http:".to_owned(),
            what: "be used: this build lacks the feature `remote`".to_owned(),
        }),
        StoreUrl::Object(place) => {
            Ok(Arc::new(crate::object::ObjectStore::open(place, clock, crate::object::Seed::draw()?)?))
        }
    }
}
