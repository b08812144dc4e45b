//! Whether storage really keeps its conditions: shown on scratch objects, never believed.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fencehold_contract::{ObjectUrl, Scheme, StoreError};
use futures_util::future::join_all;
use serde::Serialize;

use super::NonceSeed;
use super::cas::{Cas, CasError, ObjectVersion, ReadObject, WriteResult};
use super::object_names::PROBES;

/// How many write at once.
const RACERS: usize = 8;
/// How often they do. One round may go well by chance.
const ROUNDS: usize = 3;
const LIMIT: Duration = Duration::from_secs(10);

/// One thing that leases rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProbeCheck {
    /// An object that is there is not created again.
    CreateOnce,
    /// What was written is what is read, at the version that the write returned.
    ReadBack,
    /// The current version can be overwritten.
    Overwrite,
    /// An older version cannot.
    StaleOverwrite,
    /// Of many that create one object at once, one wins.
    RaceToCreate,
    /// Of many that overwrite one version at once, one wins.
    RaceToOverwrite,
    /// A list shows what was just written.
    List,
}

impl ProbeCheck {
    /// Every check, in the order in which they are made.
    pub const ALL: [ProbeCheck; 7] = [
        ProbeCheck::CreateOnce,
        ProbeCheck::ReadBack,
        ProbeCheck::Overwrite,
        ProbeCheck::StaleOverwrite,
        ProbeCheck::RaceToCreate,
        ProbeCheck::RaceToOverwrite,
        ProbeCheck::List,
    ];
}

impl fmt::Display for ProbeCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ProbeCheck::CreateOnce => "an object is created only once",
            ProbeCheck::ReadBack => "what was written is read back",
            ProbeCheck::Overwrite => "the current version can be overwritten",
            ProbeCheck::StaleOverwrite => "an older version cannot be overwritten",
            ProbeCheck::RaceToCreate => "of eight that create at once, one wins",
            ProbeCheck::RaceToOverwrite => "of eight that overwrite at once, one wins",
            ProbeCheck::List => "a list shows what was written",
        })
    }
}

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProbeVerdict {
    /// It holds, as far as can be seen.
    Passed,
    /// It does not.
    Failed(String),
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProbeReport {
    /// What was probed.
    pub place: String,
    /// Each check and its verdict, up to the first that failed.
    pub checks: Vec<(ProbeCheck, ProbeVerdict)>,
}

impl ProbeReport {
    /// The check that failed, and how.
    pub fn failure(&self) -> Option<(ProbeCheck, &str)> {
        self.checks.iter().find_map(|(check, verdict)| match verdict {
            ProbeVerdict::Failed(why) => Some((*check, why.as_str())),
            ProbeVerdict::Passed => None,
        })
    }

    /// The storage, or why it cannot be used.
    pub fn into_result(self) -> Result<(), StoreError> {
        let Some((check, why)) = self.failure() else { return Ok(()) };
        let why = format!("it does not keep its conditions: {check} – {why}; two could hold one lease there");
        Err(StoreError::Unusable { store: self.place, message: why })
    }
}

/// Probes a place, unless this process has done so before.
pub(super) async fn once(cas: &dyn Cas, place: &ObjectUrl, seed: NonceSeed) -> Result<(), StoreError> {
    type Probed = ((Scheme, String, Option<String>), ProbeReport);
    static KNOWN: Mutex<Vec<Probed>> = Mutex::new(Vec::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let storage = place.storage();
    let found = known()
        .iter()
        .find(|(probed, _)| *probed == storage)
        .map(|(_, report)| report.clone());
    if let Some(report) = found {
        return report.into_result();
    }
    let report = probe(cas, place, seed).await?;
    known().push((storage, report.clone()));
    report.into_result()
}

/// Makes every check on scratch objects of its own, and removes them. An error says that the storage could not be
/// reached, and nothing about whether it keeps its conditions.
pub async fn probe(cas: &dyn Cas, place: &ObjectUrl, seed: NonceSeed) -> Result<ProbeReport, StoreError> {
    let scratch = format!("{PROBES}{:032x}", u128::from_be_bytes(seed.0));
    let mut probe = Probe { cas, scratch, names: Vec::new(), writes: 0 };
    let checks = probe.run().await;
    for name in std::mem::take(&mut probe.names) {
        // Without the permission to delete, they stay: small, and harmless.
        let _ = cas.remove(&name, LIMIT).await;
    }
    match checks {
        Ok(checks) => Ok(ProbeReport { place: place.to_string(), checks }),
        Err(error) => Err(error.into_store_error(&place.to_string())),
    }
}

/// Why a check did not pass.
enum CheckError {
    /// Nothing was found out.
    Unreached(CasError),
    /// What leases rely on does not hold.
    Failed(String),
}

impl From<CasError> for CheckError {
    fn from(error: CasError) -> Self {
        CheckError::Unreached(error)
    }
}

fn failed<T>(why: &str) -> Result<T, CheckError> {
    Err(CheckError::Failed(why.to_owned()))
}

const NOT_CREATED: &str = "a new object could not be created";
const NOT_OVERWRITTEN: &str = "the current version was taken for an old one";

struct Probe<'a> {
    cas: &'a dyn Cas,
    scratch: String,
    names: Vec<String>,
    writes: u64,
}

impl Probe<'_> {
    async fn run(&mut self) -> Result<Vec<(ProbeCheck, ProbeVerdict)>, CasError> {
        let mut checks = Vec::new();
        for check in ProbeCheck::ALL {
            let passed = match check {
                ProbeCheck::CreateOnce => self.create_once().await,
                ProbeCheck::ReadBack => self.read_back().await,
                ProbeCheck::Overwrite => self.overwrite().await,
                ProbeCheck::StaleOverwrite => self.stale_overwrite().await,
                ProbeCheck::RaceToCreate => self.race(false).await,
                ProbeCheck::RaceToOverwrite => self.race(true).await,
                ProbeCheck::List => self.list().await,
            };
            match passed {
                Ok(()) => checks.push((check, ProbeVerdict::Passed)),
                Err(CheckError::Unreached(error)) => return Err(error),
                Err(CheckError::Failed(why)) => {
                    checks.push((check, ProbeVerdict::Failed(why)));
                    break;
                }
            }
        }
        Ok(checks)
    }

    fn body(&mut self) -> Vec<u8> {
        self.writes += 1;
        format!("{{\"probe\":{}}}", self.writes).into_bytes()
    }

    fn name(&mut self, suffix: &str) -> String {
        let name = format!("{}-{suffix}", self.scratch);
        if !self.names.contains(&name) {
            self.names.push(name.clone());
        }
        name
    }

    /// Writes, and goes on only with an outcome that is known: the object as it was written, or `None` if it was not.
    async fn write(
        &mut self,
        name: &str,
        version: Option<&ObjectVersion>,
    ) -> Result<Option<ReadObject>, CasError> {
        let body = self.body();
        match self.cas.write(name, version, body.clone(), LIMIT).await? {
            WriteResult::Won(version) => Ok(Some(ReadObject { body, version })),
            WriteResult::Lost => Ok(None),
            WriteResult::Unknown { why } => match self.cas.read(name, LIMIT).await? {
                Some(object) if object.body == body => Ok(Some(object)),
                _ => Err(CasError::Unavailable { why }),
            },
        }
    }

    async fn current(&self, name: &str) -> Result<ObjectVersion, CasError> {
        let object = self.cas.read(name, LIMIT).await?;
        object
            .map(|object| object.version)
            .ok_or_else(|| CasError::Unavailable { why: format!("the scratch object {name} is gone") })
    }

    async fn create_once(&mut self) -> Result<(), CheckError> {
        let name = self.name("a");
        if self.write(&name, None).await?.is_none() {
            return failed(NOT_CREATED);
        }
        if self.write(&name, None).await?.is_some() { failed("it was created twice") } else { Ok(()) }
    }

    async fn read_back(&mut self) -> Result<(), CheckError> {
        let name = self.name("b");
        let Some(written) = self.write(&name, None).await? else { return failed(NOT_CREATED) };
        match self.cas.read(&name, LIMIT).await? {
            Some(object) if object == written => Ok(()),
            Some(object) if object.body == written.body => {
                failed("its version is another than its write returned")
            }
            _ => failed("another body was read than was written"),
        }
    }

    async fn overwrite(&mut self) -> Result<(), CheckError> {
        let name = self.name("a");
        let version = self.current(&name).await?;
        if self.write(&name, Some(&version)).await?.is_none() { failed(NOT_OVERWRITTEN) } else { Ok(()) }
    }

    async fn stale_overwrite(&mut self) -> Result<(), CheckError> {
        let name = self.name("b");
        let version = self.current(&name).await?;
        if self.write(&name, Some(&version)).await?.is_none() {
            return failed(NOT_OVERWRITTEN);
        }
        match self.write(&name, Some(&version)).await? {
            None => Ok(()),
            Some(_) => failed("a version was overwritten that was no longer there"),
        }
    }

    /// Many write one object at once, which is there already or is not.
    async fn race(&mut self, overwrites: bool) -> Result<(), CheckError> {
        for round in 0..ROUNDS {
            let name = self.name(&format!("c{round}"));
            let version = if overwrites { Some(self.current(&name).await?) } else { None };
            let bodies: Vec<_> = (0..RACERS).map(|_| self.body()).collect();
            let writes = bodies
                .into_iter()
                .map(|body| self.cas.write(&name, version.as_ref(), body, LIMIT));
            let mut won = 0;
            for written in join_all(writes).await {
                won += usize::from(matches!(written?, WriteResult::Won(_)));
            }
            // None may have got that answer, where answers got lost; two never.
            if won > 1 {
                return failed(&format!("{won} of {RACERS} won"));
            }
        }
        Ok(())
    }

    async fn list(&mut self) -> Result<(), CheckError> {
        let name = self.name("a");
        let names = self.cas.list(PROBES, LIMIT).await?;
        if names.contains(&name) { Ok(()) } else { failed("what was written is not in the list") }
    }
}
