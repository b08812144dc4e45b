//! Whether storage really keeps its conditions: shown on scratch objects, never believed.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fencehold_contract::{ObjectUrl, Scheme, StoreError};
use serde::Serialize;

use super::NonceSeed;
use super::cas::{Cas, CasError, ObjectVersion, WriteResult};
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
    type Known = HashMap<(u8, String, Option<String>), ProbeReport>;
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let (scheme, bucket, endpoint) = place.storage();
    let number = Scheme::ALL.iter().position(|known| *known == scheme).unwrap_or(0);
    let storage = (u8::try_from(number).unwrap_or(0), bucket, endpoint);
    let known = KNOWN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .and_then(|known| known.get(&storage).cloned());
    if let Some(report) = known {
        return report.into_result();
    }
    let report = probe(cas, place, seed).await?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.get_or_insert_default().insert(storage, report.clone());
    drop(known);
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
            let verdict = match check {
                ProbeCheck::CreateOnce => self.create_once().await?,
                ProbeCheck::ReadBack => self.read_back().await?,
                ProbeCheck::Overwrite => self.overwrite().await?,
                ProbeCheck::StaleOverwrite => self.stale_overwrite().await?,
                ProbeCheck::RaceToCreate => self.race_to_create().await?,
                ProbeCheck::RaceToOverwrite => self.race_to_overwrite().await?,
                ProbeCheck::List => self.list().await?,
            };
            let failed = verdict.is_err();
            checks.push((check, verdict.map_or_else(ProbeVerdict::Failed, |()| ProbeVerdict::Passed)));
            if failed {
                break;
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

    /// Writes, and goes on only with an outcome that is known.
    async fn sure(
        &self,
        name: &str,
        version: Option<&ObjectVersion>,
        body: Vec<u8>,
    ) -> Result<WriteResult, CasError> {
        let written = match version {
            Some(version) => self.cas.swap(name, version, body.clone(), LIMIT).await?,
            None => self.cas.create(name, body.clone(), LIMIT).await?,
        };
        let WriteResult::Unknown { why } = written else { return Ok(written) };
        match self.cas.read(name, LIMIT).await? {
            Some(object) if object.body == body => Ok(WriteResult::Won(object.version)),
            _ => Err(CasError::Unavailable { why }),
        }
    }

    async fn current(&self, name: &str) -> Result<ObjectVersion, CasError> {
        let object = self.cas.read(name, LIMIT).await?;
        object
            .map(|object| object.version)
            .ok_or_else(|| CasError::Unavailable { why: format!("the scratch object {name} is gone") })
    }

    async fn create_once(&mut self) -> Result<Result<(), String>, CasError> {
        let (name, first, second) = (self.name("a"), self.body(), self.body());
        if !matches!(self.sure(&name, None, first).await?, WriteResult::Won(_)) {
            return Ok(Err("a new object could not be created".to_owned()));
        }
        Ok(match self.sure(&name, None, second).await? {
            WriteResult::Lost => Ok(()),
            _ => Err("it was created twice".to_owned()),
        })
    }

    async fn read_back(&mut self) -> Result<Result<(), String>, CasError> {
        let (name, body) = (self.name("b"), self.body());
        let WriteResult::Won(version) = self.sure(&name, None, body.clone()).await? else {
            return Ok(Err("a new object could not be created".to_owned()));
        };
        Ok(match self.cas.read(&name, LIMIT).await? {
            Some(object) if object.body == body && object.version == version => Ok(()),
            Some(object) if object.body == body => {
                Err("its version is another than its write returned".to_owned())
            }
            _ => Err("another body was read than was written".to_owned()),
        })
    }

    async fn overwrite(&mut self) -> Result<Result<(), String>, CasError> {
        let (name, body) = (self.name("a"), self.body());
        let version = self.current(&name).await?;
        Ok(match self.sure(&name, Some(&version), body).await? {
            WriteResult::Won(_) => Ok(()),
            _ => Err("the current version was taken for an old one".to_owned()),
        })
    }

    async fn stale_overwrite(&mut self) -> Result<Result<(), String>, CasError> {
        let (name, first, second) = (self.name("b"), self.body(), self.body());
        let version = self.current(&name).await?;
        if !matches!(self.sure(&name, Some(&version), first).await?, WriteResult::Won(_)) {
            return Ok(Err("the current version was taken for an old one".to_owned()));
        }
        Ok(match self.sure(&name, Some(&version), second).await? {
            WriteResult::Lost => Ok(()),
            _ => Err("a version was overwritten that was no longer there".to_owned()),
        })
    }

    async fn race_to_create(&mut self) -> Result<Result<(), String>, CasError> {
        for round in 0..ROUNDS {
            let name = self.name(&format!("c{round}"));
            if let Err(why) = self.race(&name, None).await? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    }

    async fn race_to_overwrite(&mut self) -> Result<Result<(), String>, CasError> {
        for round in 0..ROUNDS {
            let name = self.name(&format!("c{round}"));
            let version = self.current(&name).await?;
            if let Err(why) = self.race(&name, Some(version)).await? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    }

    async fn race(
        &mut self,
        name: &str,
        version: Option<ObjectVersion>,
    ) -> Result<Result<(), String>, CasError> {
        let mut writes = Vec::with_capacity(RACERS);
        for _ in 0..RACERS {
            let body = self.body();
            let (cas, version) = (self.cas, version.as_ref());
            writes.push(Box::pin(async move {
                match version {
                    Some(version) => cas.swap(name, version, body, LIMIT).await,
                    None => cas.create(name, body, LIMIT).await,
                }
            }));
        }
        let mut won = 0;
        for written in all(writes).await {
            won += usize::from(matches!(written?, WriteResult::Won(_)));
        }
        // None may have got that answer, where answers got lost; two never.
        Ok(if won > 1 { Err(format!("{won} of {RACERS} won")) } else { Ok(()) })
    }

    async fn list(&mut self) -> Result<Result<(), String>, CasError> {
        let name = self.name("a");
        let names = self.cas.list(PROBES, LIMIT).await?;
        Ok(if names.contains(&name) { Ok(()) } else { Err("what was written is not in the list".to_owned()) })
    }
}

/// Drives many futures together to their ends.
async fn all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let std::task::Poll::Ready(done) = std::pin::Pin::new(future).poll(context)
            {
                *output = Some(done);
            }
        }
        if outputs.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
