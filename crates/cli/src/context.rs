//! What a verb works with: the store that was named, in the namespace that was named.

use std::ffi::OsString;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use fencehold::Fencehold;
use fencehold_contract::clock::SystemClock;
use fencehold_contract::{CallContext, JobStore, LeaseStore, StoreError, StoreUrl};
use fencehold_core::Namespace;

use crate::args::Global;
use crate::duration::parse_ms;
use crate::failure::{ErrorKind, Failure};
use crate::output::{self, Output, note};
#[cfg(feature = "server")]
use crate::store_choice::ChosenBy;
use crate::store_choice::StoreChoice;

/// How often a request whose outcome is unknown is sent.
const SENDINGS_MAX: u32 = 3;
const NAMESPACE_VARIABLE: &str = "FENCEHOLD_NAMESPACE";
const TIMEOUT_VARIABLE: &str = "FENCEHOLD_TIMEOUT";

/// A variable of the environment that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn text_variable(name: &str) -> Result<Option<String>, Failure> {
    let text = |value: OsString| value.into_string().map_err(|_| bad(name, "it is not UTF-8"));
    variable(name).map(text).transpose()
}

fn bad(name: &str, problem: impl Display) -> Failure {
    Failure::usage(format!("{name}: {problem}"))
}

/// Reads page after page: each call gets a cursor, and returns that of the next page.
pub(crate) async fn pages<C>(
    mut page: impl AsyncFnMut(Option<C>) -> Result<Option<C>, Failure>,
) -> Result<(), Failure> {
    let mut cursor = None;
    loop {
        cursor = page(cursor).await?;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// Whether a verb that changes something creates the store.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct CreateStore {
    /// Create the store that was named, if there is none
    #[arg(long)]
    pub(crate) create: bool,
}

/// What was said once for all verbs.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) namespace: Namespace,
    pub(crate) output: Output,
    /// How many `-v`.
    #[cfg_attr(not(feature = "server"), expect(dead_code, reason = "only a server starts its logs late"))]
    pub(crate) verbose: u8,
    store_flag: Option<String>,
    /// For how long to retry while the store is unreachable, where it was said.
    timeout_ms: Option<u64>,
    /// Whether `--timeout` said so.
    pub(crate) has_timeout_flag: bool,
}

impl Context {
    pub(crate) fn new(global: Global) -> Result<Self, Failure> {
        output::speak(global.output, global.quiet);
        let namespace = match (global.namespace, text_variable(NAMESPACE_VARIABLE)?) {
            (Some(name), _) => Namespace::new(name)?,
            (None, Some(name)) => Namespace::new(name).map_err(|error| bad(NAMESPACE_VARIABLE, error))?,
            (None, None) => Namespace::default(),
        };
        let timeout_ms = match (global.timeout, text_variable(TIMEOUT_VARIABLE)?) {
            (Some(ms), _) => Some(ms),
            (None, Some(text)) => Some(parse_ms(&text).map_err(|error| bad(TIMEOUT_VARIABLE, error))?),
            (None, None) => None,
        };
        Ok(Context {
            namespace,
            output: Output::new(global.output),
            verbose: global.verbose,
            store_flag: global.store,
            timeout_ms,
            has_timeout_flag: global.timeout.is_some(),
        })
    }

    /// What every call to the store carries.
    pub(crate) fn call(&self) -> CallContext {
        self.call_in(self.namespace.clone())
    }

    /// The same in another namespace.
    pub(crate) fn call_in(&self, namespace: Namespace) -> CallContext {
        let call = CallContext::new(namespace);
        CallContext { timeout_ms: self.timeout_ms.unwrap_or(call.timeout_ms), ..call }
    }

    /// Which store was named.
    pub(crate) fn place(&self) -> Result<StoreChoice, Failure> {
        StoreChoice::choose(self.store_flag.as_deref())
    }

    /// Which store was named; where neither a flag nor the environment did, the one that the settings name.
    #[cfg(feature = "server")]
    pub(crate) fn place_or(&self, settings: Option<&str>) -> Result<StoreChoice, Failure> {
        match (self.place(), settings) {
            (Ok(place), Some(url)) if place.chosen == ChosenBy::Default => StoreChoice::named(url),
            (Err(_), Some(url)) if self.store_flag.is_none() => StoreChoice::named(url),
            (place, _) => place,
        }
    }

    /// The store that `--store` named, if it did.
    pub(crate) fn store_named(&self) -> Option<&str> {
        self.store_flag.as_deref()
    }

    /// Opens the store that was named, for a verb that changes something. The caller closes it.
    pub(crate) fn open(&self, create: CreateStore) -> Result<OpenStore, Failure> {
        self.output.refuse_env()?;
        self.open_in_any_format(create)
    }

    /// The same for a verb that can print lines for `eval`.
    pub(crate) fn open_in_any_format(&self, create: CreateStore) -> Result<OpenStore, Failure> {
        self.open_at(&self.place()?.for_acting(create.create)?)
    }

    /// Does something with the store that was named, as [`Self::open_to_look`] opens it, and closes it.
    pub(crate) async fn look<T>(
        &self,
        act: impl AsyncFnOnce(&OpenStore) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.open_to_look()?.closing(act).await
    }

    /// Asks the jobs of that store one thing.
    pub(crate) async fn ask<T>(
        &self,
        request: impl AsyncFn(&dyn JobStore, &CallContext) -> Result<T, StoreError>,
    ) -> Result<T, Failure> {
        self.open_to_look()?.ask_and_close(request).await
    }

    /// Opens the store that was named, for a verb that looks at what is there. It is never created: while the store that creates itself
    /// is not there yet, an empty one answers.
    pub(crate) fn open_to_look(&self) -> Result<OpenStore, Failure> {
        self.output.refuse_env()?;
        let place = self.place()?;
        self.open_existing_at(&place)?.or_else(|missing| {
            note(&format!("{missing}: nothing was ever kept there"));
            let empty = fencehold_stores::open(&StoreUrl::memory(), Arc::new(SystemClock));
            self.opened(empty, place.url.to_string())
        })
    }

    /// Opens the store that was named, for a verb that waits for what happens in it. It is never created.
    pub(crate) fn open_to_wait(&self) -> Result<OpenStore, Failure> {
        self.output.refuse_env()?;
        let missing = |what| {
            Failure::of_kind(ErrorKind::NoStore, what)
                .with_next("The first command that changes something creates it.")
        };
        self.open_existing_at(&self.place()?)?.map_err(missing)
    }

    /// Opens a store that must be there. What is said of it where it is yet to come is the inner error.
    pub(crate) fn open_existing_at(&self, place: &StoreChoice) -> Result<Result<OpenStore, String>, Failure> {
        let name = place.url.to_string();
        match self.open_url(&place.clone().for_looking().url) {
            Err(error) if place.is_yet_to_come(&error) => Ok(Err(format!("there is no store in {name} yet"))),
            opened => self.opened(opened, name).map(Ok),
        }
    }

    /// Opens the store that was named, also where it has lost what was acknowledged from it. It must be there.
    pub(crate) fn open_rewound(&self) -> Result<OpenStore, Failure> {
        self.output.refuse_env()?;
        let place = self.place()?.for_looking();
        #[cfg(feature = "file")]
        if let StoreUrl::File(url) = &place.url {
            use fencehold_store_file::{FileOptions, FileStore};
            let options = FileOptions::of_url(url).accepting_rewound();
            let opened = FileStore::open_with(&url.directory, Arc::new(SystemClock), options);
            return self.opened(opened.map(|store| Arc::new(store) as _), place.url.to_string());
        }
        self.open_at(&place)
    }

    /// Opens a store as its URL says.
    pub(crate) fn open_at(&self, place: &StoreChoice) -> Result<OpenStore, Failure> {
        self.opened(self.open_url(&place.url), place.url.to_string())
    }

    fn open_url(&self, url: &StoreUrl) -> Result<Arc<dyn LeaseStore>, StoreError> {
        fencehold_stores::open_within(url, Arc::new(SystemClock), self.call().timeout_ms)
    }

    fn opened(
        &self,
        opened: Result<Arc<dyn LeaseStore>, StoreError>,
        name: String,
    ) -> Result<OpenStore, Failure> {
        let leases = opened.map_err(|error| Failure::of_store(error, &name))?;
        Ok(OpenStore { leases, call: self.call(), name })
    }
}

/// An open store.
#[derive(Debug)]
pub(crate) struct OpenStore {
    pub(crate) leases: Arc<dyn LeaseStore>,
    pub(crate) call: CallContext,
    /// Its URL, for messages.
    pub(crate) name: String,
}

impl OpenStore {
    /// The jobs of this store.
    pub(crate) fn jobs(&self) -> Result<&dyn JobStore, Failure> {
        self.leases.jobs().ok_or_else(|| {
            let store = self.leases.capabilities().store.to_owned();
            self.explain(StoreError::Unsupported { store, message: "keep jobs".to_owned() })
                .with_next("Jobs live in file:, postgres: and memory: stores, and in servers on them.")
        })
    }

    /// The library, on this store. It asks nothing yet: waits and timeouts count from the first call on.
    pub(crate) async fn library(&self) -> Result<Fencehold, Failure> {
        Fencehold::builder()
            .store(Arc::clone(&self.leases))
            .namespace(self.call.namespace.as_str())
            .timeout(Duration::from_millis(self.call.timeout_ms))
            .connect_lazy()
            .await
            .map_err(|error| Failure::of_library(error, &self.name))
    }

    /// Asks the store of jobs something, again if the outcome is unknown: the same request gets the same answer.
    pub(crate) async fn ask<T>(
        &self,
        request: impl AsyncFn(&dyn JobStore, &CallContext) -> Result<T, StoreError>,
    ) -> Result<T, Failure> {
        let jobs = self.jobs()?;
        let mut sendings = 1;
        loop {
            match request(jobs, &self.call).await {
                Ok(answer) => return Ok(answer),
                Err(StoreError::OutcomeUnknown { .. }) if sendings < SENDINGS_MAX => sendings += 1,
                Err(error) => return Err(self.explain(error)),
            }
        }
    }

    /// Asks it one thing, and closes it.
    pub(crate) async fn ask_and_close<T>(
        self,
        request: impl AsyncFn(&dyn JobStore, &CallContext) -> Result<T, StoreError>,
    ) -> Result<T, Failure> {
        self.closing(async |store| store.ask(request).await).await
    }

    /// What the store answers, its error in people's words.
    pub(crate) async fn explained<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Failure> {
        answer.await.map_err(|error| self.explain(error))
    }

    /// What a store's error means to people.
    pub(crate) fn explain(&self, error: StoreError) -> Failure {
        Failure::of_store(error, &self.name)
    }

    /// Does something with the store and closes it in good order, whatever comes of it.
    pub(crate) async fn closing<T>(
        self,
        act: impl AsyncFnOnce(&OpenStore) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let outcome = act(&self).await;
        self.leases.close().await;
        outcome
    }
}
