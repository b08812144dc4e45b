//! An object in a bucket that lets no stale holder write: the token travels in the object itself.
//!
//! Nouns: the *object* is one name in S3, Google Cloud Storage or Azure Blob Storage; its first line is the *seal*, JSON
//! that says for which key it is fenced, the highest token shown, and a nonce; the rest is the *content*. Raising and
//! writing swap the whole object on the condition that it is still the one that was read, so that check, raise and write
//! are one step.
//!
//! Deliberately absent: objects that other programs write. A write past the fence breaks it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::{ObjectUrl, StoreUrl};
use fencehold_core::{BadInput, Key, Namespace, Owner, Token};
use fencehold_store_object::{Cas, CasError, ReadObject, Storage, WriteResult};
use futures_channel::oneshot;
use serde::{Deserialize, Serialize};

use super::error::FenceError;
use super::key_token::KeyToken;
use super::mark::Mark;
use crate::random;

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How often others may come first, or answers be lost.
const ROUNDS_MAX: usize = 16;

/// An object that is written only under tokens that are not older than the highest it has been shown.
///
/// ```no_run
/// use fencehold::fence::FencedObject;
/// use fencehold::Fencehold;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let fh = Fencehold::connect("s3://my-bucket/leases").await?;
/// let report = FencedObject::open("s3://my-bucket/reports/daily").await?;
///
/// let lease = fh.lease("reports/daily").acquire().await?;
/// report.raise(&lease).await?; // from here on every older holder is refused
/// report.write(&lease, "all is well\n").await?;
/// assert_eq!(report.read().await?.as_deref(), Some(&b"all is well\n"[..]));
/// # Ok(())
/// # }
/// ```
///
/// **One key.** An object is fenced for the key under which it was first raised or written; a pass for another key is
/// refused. **Reading** is for anybody: [`read`](Self::read), or any program that skips the first line.
///
/// **What it costs.** A raise and a write are a read and a write each (on Google Cloud Storage a conditional write is two
/// requests). The whole object is read and written: it is meant for states and manifests, not for gigabytes.
#[derive(Clone)]
pub struct FencedObject {
    storage: Arc<dyn Cas>,
    name: String,
    place: String,
}

/// The first line of a fenced object.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ObjectHeader {
    /// The version of this format.
    fencehold_fence: u8,
    namespace: Namespace,
    key: Key,
    token: Token,
    raised_by: Option<Owner>,
    /// Whether anything was ever written under the fence, or it was only raised.
    written: bool,
    /// Recognises one's own write when its answer is lost.
    nonce: String,
}

const VERSION: u8 = 1;

impl FencedObject {
    /// Opens the object that a URL names: `s3://BUCKET/NAME`, `gs://…` or `az://…`, with the options and credentials of
    /// a store's URL. It need not be there.
    pub async fn open(url: &str) -> Result<Self, FenceError> {
        let StoreUrl::Object(place) = url.parse()? else {
            return Err(BadInput::new("object URL", "names no bucket; it looks like s3://BUCKET/NAME").into());
        };
        Self::open_with(*place).await
    }

    /// The same for a place: its prefix, up to the last slash, is a folder, and the rest is the object's name.
    pub async fn open_with(mut place: ObjectUrl) -> Result<Self, FenceError> {
        let shown = place.to_string();
        let (folder, name) = place.prefix.rsplit_once('/').unwrap_or(("", &place.prefix));
        let (folder, name) = (folder.to_owned(), name.to_owned());
        if name.is_empty() {
            return Err(BadInput::new("object URL", "names no object in the bucket").into());
        }
        place.prefix = folder;
        let (sender, opened) = oneshot::channel();
        let unusable = |message: String| FenceError::unusable(&shown, message);
        // It waits for answers, and the caller's executor must not.
        let thread = std::thread::Builder::new().name("fencehold-open".to_owned());
        let started = thread.spawn(move || sender.send(Storage::open(&place)));
        started.map_err(|error| unusable(format!("no thread could be started: {error}")))?;
        let opened = opened.await.map_err(|_| unusable("opening it broke off".to_owned()))?;
        let storage = opened.map_err(|error| unusable(error.to_string()))?;
        Ok(FencedObject { storage: Arc::new(storage), name, place: shown })
    }

    /// Raises the fence to this token, so that every older holder of the key is refused from now on. The content stays
    /// as it is. Do it as the first thing under a new lease: a fence knows only what it was shown.
    pub async fn raise(&self, pass: impl Into<KeyToken>) -> Result<(), FenceError> {
        let pass = pass.into();
        pass.recorded(self.change(&pass, None).await).await
    }

    /// Puts another content in the place of what is there, and raises the fence, in one step.
    pub async fn write(
        &self,
        pass: impl Into<KeyToken>,
        content: impl Into<Vec<u8>>,
    ) -> Result<(), FenceError> {
        let pass = pass.into();
        pass.recorded(self.change(&pass, Some(content.into())).await).await
    }

    /// The content. `None`: nothing was ever written.
    pub async fn read(&self) -> Result<Option<Vec<u8>>, FenceError> {
        let Some(object) = self.look().await? else { return Ok(None) };
        let (seal, content) = self.unseal(&object)?;
        Ok(seal.written.then(|| content.to_vec()))
    }

    /// How high the fence stands, and for which key. `None`: it was never shown a token.
    pub async fn mark(&self) -> Result<Option<(Key, Mark)>, FenceError> {
        let Some(object) = self.look().await? else { return Ok(None) };
        let (seal, _) = self.unseal(&object)?;
        Ok(Some((seal.key.clone(), seal.mark())))
    }

    async fn change(&self, pass: &KeyToken, content: Option<Vec<u8>>) -> Result<(), FenceError> {
        pass.check()?;
        let mut nonces: Vec<String> = Vec::new();
        let mut why = "others have written it again and again".to_owned();
        for _ in 0..ROUNDS_MAX {
            let object = match self.look().await {
                Ok(object) => object,
                Err(FenceError::Unknown { message: unread, .. }) if !nonces.is_empty() => {
                    why = unread;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let known = object.as_ref().map(|object| self.unseal(object)).transpose()?;
            if let Some((seal, old)) = &known {
                if nonces.contains(&seal.nonce) {
                    return Ok(());
                }
                if (&seal.namespace, &seal.key) != (&pass.namespace, &pass.key) {
                    let why = format_args!("it is fenced for the key {}, not for {}", seal.key, pass.key);
                    return Err(FenceError::unusable(&self.place, why));
                }
                if pass.token < seal.token {
                    return Err(FenceError::stale(&self.place, pass, &seal.mark()));
                }
                let as_it_is = content.as_deref().is_none_or(|content| seal.written && content == *old);
                if pass.token == seal.token && as_it_is {
                    return Ok(());
                }
            }
            let nonce = random::nonce().map_err(|error| FenceError::unknown(&self.place, error))?;
            let (written, body) = match (&content, &known) {
                (Some(content), _) => (true, content.as_slice()),
                (None, Some((seal, old))) => (seal.written, *old),
                (None, None) => (false, &[][..]),
            };
            let raised_by = match &known {
                Some((seal, _)) if seal.token == pass.token => seal.raised_by.clone(),
                _ => pass.owner.clone(),
            };
            let seal = ObjectHeader {
                fencehold_fence: VERSION,
                namespace: pass.namespace.clone(),
                key: pass.key.clone(),
                token: pass.token,
                raised_by,
                written,
                nonce: nonce.clone(),
            };
            let bytes = seal.onto(body);
            let version = object.as_ref().map(|object| &object.version);
            match self.storage.write(&self.name, version, bytes, LIMIT).await {
                Ok(WriteResult::Won(_)) => return Ok(()),
                // Another came first: what it has shown is looked at anew.
                Ok(WriteResult::Lost) => {}
                Ok(WriteResult::Unknown { why: lost }) => {
                    nonces.push(nonce);
                    why = lost;
                }
                Ok(_) => nonces.push(nonce),
                Err(error) if nonces.is_empty() => return Err(self.refused(error)),
                Err(CasError::Unavailable { why: said } | CasError::Refused { why: said }) => why = said,
                Err(_) => {}
            }
        }
        Err(FenceError::unknown(&self.place, why))
    }

    async fn look(&self) -> Result<Option<ReadObject>, FenceError> {
        self.storage.read(&self.name, LIMIT).await.map_err(|error| self.refused(error))
    }

    fn refused(&self, error: CasError) -> FenceError {
        match error {
            CasError::Refused { why } => FenceError::unusable(&self.place, why),
            CasError::Unavailable { why } => FenceError::unknown(&self.place, why),
            other => FenceError::unknown(&self.place, format_args!("{other:?}")),
        }
    }

    fn unseal<'a>(&self, object: &'a ReadObject) -> Result<(ObjectHeader, &'a [u8]), FenceError> {
        let unusable = |why| FenceError::unusable(&self.place, why);
        let end = object.body.iter().position(|byte| *byte == b'\n');
        let (line, content) = object.body.split_at(end.unwrap_or(object.body.len()));
        let seal: ObjectHeader =
            serde_json::from_slice(line).map_err(|_| unusable("it was not written through a fence"))?;
        if seal.fencehold_fence != VERSION {
            return Err(unusable("its seal has a version that is not known here"));
        }
        Ok((seal, content.get(1..).unwrap_or_default()))
    }
}

impl ObjectHeader {
    fn mark(&self) -> Mark {
        Mark { token: self.token, raised_by: self.raised_by.clone() }
    }

    /// The object's bytes: this seal, and the content under it.
    fn onto(&self, content: &[u8]) -> Vec<u8> {
        // Plain data with text for keys: serialising it into memory cannot fail.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend_from_slice(content);
        bytes
    }
}

impl fmt::Debug for FencedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedObject")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects of earlier versions must stay readable: this is what version 1 looks like.
    #[test]
    fn the_bytes_of_version_1_never_change_and_are_read_back() {
        let line = br#"{"fencehold_fence":1,"namespace":"default","key":"gpu/3","token":9,"raised_by":"ada","written":true,"nonce":"n-1"}"#;
        let seal = ObjectHeader {
            fencehold_fence: VERSION,
            namespace: Namespace::default(),
            key: Key::new("gpu/3").unwrap(),
            token: Token::new(9),
            raised_by: Owner::new("ada").ok(),
            written: true,
            nonce: "n-1".to_owned(),
        };
        let bytes = seal.onto(b"content");
        assert_eq!(bytes, [&line[..], b"\ncontent"].concat());
        let read: ObjectHeader = serde_json::from_slice(line).unwrap();
        assert_eq!(read.onto(b"content"), bytes);
    }
}
