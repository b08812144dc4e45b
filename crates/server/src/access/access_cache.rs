//! The thread beside a server that has the access book: it knows the tokens, sees within a quarter of a second that one
//! was made or revoked, and writes the audit.
//!
//! Requests are checked against what it last read, without touching the disk. If the book cannot be read any more,
//! every caller is refused: a revocation might be in it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use fencehold_contract::clock::Clock;
use fencehold_contract::metrics::Counter;
use thiserror::Error;
use tokio::sync::{Semaphore, oneshot, watch};

use super::caller::{Caller, CallerIdentity};
use super::secret::{Bearer, SecretHash, TokenId};
use super::token_db::{ApiToken, TokenDb, TokenDbError, unusable};
use crate::audit::{AuditOutcome, AuditRecord};
use crate::locked;

/// How often the book is looked at for changes.
const LOOK_EVERY_MS: u64 = 250;
const LOOK_EVERY: Duration = Duration::from_millis(LOOK_EVERY_MS);
/// How soon one who waits learns that its token has expired.
const EXPIRY_SEEN_WITHIN: Duration = Duration::from_secs(1);
/// How many looks pass between two notes of when tokens were used.
const LOOKS_PER_NOTE: u32 = 40;
/// How many entries may wait to be written.
const ENTRIES_WAITING_MAX: usize = 1_024;
/// And how many of them denials: a caller that tries every token must not keep an operator's act from being written down.
const DENIALS_WAITING_MAX: usize = 64;

/// Why a caller is not let in. What is said of a token is said only to a caller that has shown its secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AccessDenied {
    /// No token came with the request.
    #[error("a token is needed: send it as `Authorization: Bearer fencehold_…`")]
    NoToken,
    /// What came is not known here.
    #[error("the token is not known here")]
    Unknown,
    /// Its time is over.
    #[error("the token {id} ({name}) has expired; make a new one with `fencehold access-token create`")]
    Expired {
        /// Which.
        id: TokenId,
        /// What people call it.
        name: String,
    },
    /// It was revoked.
    #[error("the token {id} ({name}) was revoked")]
    Revoked {
        /// Which.
        id: TokenId,
        /// What people call it.
        name: String,
    },
    /// Every caller is refused at the moment.
    #[error("tokens cannot be checked at the moment; the server's log says why")]
    Closed,
}

/// The door: who is let in, and the book in which the rest is written.
#[derive(Debug)]
pub struct AccessCache {
    known: Arc<CachedTokens>,
    clock: Arc<dyn Clock>,
    /// Room for denials that wait to be written.
    denials: Arc<Semaphore>,
    /// Denials that were left out because there were too many.
    left_out: Counter,
    sender: Mutex<Option<SyncSender<CacheWork>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What was last read.
#[derive(Debug, Default)]
struct CachedTokens {
    tokens: RwLock<Arc<HashMap<TokenId, CachedToken>>>,
    /// A server that has asked for tokens goes on doing so, whatever becomes of its file.
    had_tokens: AtomicBool,
    trouble: AtomicBool,
    /// Tells those who wait that the book was read again.
    read_again: watch::Sender<()>,
}

#[derive(Debug)]
struct CachedToken {
    token: ApiToken,
    used_wall_ms: AtomicU64,
}

impl CachedToken {
    /// Whether it was neither revoked nor has come to its end.
    fn lives(&self, now_wall_ms: u64) -> Result<(), AccessDenied> {
        let is_revoked = self.token.revoked_wall_ms.is_some();
        if !is_revoked && self.token.expires_wall_ms.is_none_or(|end| end > now_wall_ms) {
            return Ok(());
        }
        let (id, name) = (self.token.id, self.token.name.clone());
        Err(if is_revoked { AccessDenied::Revoked { id, name } } else { AccessDenied::Expired { id, name } })
    }
}

/// Something that the thread is to do, at this moment in wall time.
type CacheWork = Box<dyn FnOnce(&mut CacheThread, u64) + Send>;

/// Said once the thread has ended.
const CLOSED: &str = "the access file is closed";

impl AccessCache {
    /// Opens the book and starts the thread.
    pub fn start(path: PathBuf, clock: Arc<dyn Clock>) -> Result<AccessCache, TokenDbError> {
        let token_db = TokenDb::open(&path)?;
        let known = Arc::new(CachedTokens::default());
        let version = token_db.version()?;
        known.learn(&token_db)?;
        let (sender, receiver) = mpsc::sync_channel(ENTRIES_WAITING_MAX);
        let work = CacheThread {
            token_db,
            version,
            path: path.clone(),
            known: Arc::clone(&known),
            clock: Arc::clone(&clock),
        };
        let thread = std::thread::Builder::new()
            .name("fencehold-access".to_owned())
            .spawn(move || work.run(&receiver))
            .map_err(|error| unusable(&path, &error))?;
        Ok(AccessCache {
            known,
            clock,
            denials: Arc::new(Semaphore::new(DENIALS_WAITING_MAX)),
            left_out: Counter::default(),
            sender: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Whether there is a token, or was one since this keeper started.
    pub fn has_tokens(&self) -> bool {
        self.known.had_tokens.load(Ordering::Acquire)
    }

    pub(super) fn read_again(&self) -> watch::Receiver<()> {
        self.known.read_again.subscribe()
    }

    /// How many denials are missing from the audit because there were too many at once.
    pub fn denials_left_out(&self) -> u64 {
        self.left_out.get()
    }

    /// The namespaces that tokens were made for.
    pub fn namespaces(&self) -> Vec<fencehold_core::Namespace> {
        self.known
            .tokens()
            .values()
            .filter_map(|entry| entry.token.namespace.clone())
            .collect()
    }

    /// Who comes with this text after `Bearer`.
    pub fn admit(&self, text: Option<&str>, from: Option<IpAddr>) -> Result<Caller, AccessDenied> {
        self.can_check()?;
        let text = text.ok_or(AccessDenied::NoToken)?;
        let shown = Bearer::parse(text.trim()).ok_or(AccessDenied::Unknown)?;
        let tokens = self.known.tokens();
        let found = tokens.get(&shown.id);
        let kept = found.map_or(SecretHash::NOBODYS, |entry| entry.token.hash);
        let (true, Some(entry)) = (kept.is(&shown.hash()), found) else { return Err(AccessDenied::Unknown) };
        let now_wall_ms = self.clock.now().wall_ms;
        entry.lives(now_wall_ms)?;
        let (id, name) = (entry.token.id, entry.token.name.clone());
        entry.used_wall_ms.fetch_max(now_wall_ms, Ordering::Relaxed);
        Ok(Caller {
            who: CallerIdentity::Token { id, name },
            from,
            world: entry.token.namespace.clone(),
            scopes: entry.token.scopes,
        })
    }

    /// Whether a token that was shown before is still good.
    pub fn still_admits(&self, id: TokenId) -> Result<(), AccessDenied> {
        self.can_check()?;
        let tokens = self.known.tokens();
        let entry = tokens.get(&id).ok_or(AccessDenied::Unknown)?;
        entry.lives(self.clock.now().wall_ms)
    }

    /// Waits until a token that was shown before is good no more.
    pub async fn until_refused(&self, id: TokenId) -> AccessDenied {
        let mut read_again = self.known.read_again.subscribe();
        loop {
            if let Err(stranger) = self.still_admits(id) {
                return stranger;
            }
            let _ = tokio::time::timeout(EXPIRY_SEEN_WITHIN, read_again.changed()).await;
        }
    }

    /// Whether anybody can be let in.
    pub(super) fn can_check(&self) -> Result<(), AccessDenied> {
        if self.known.trouble.load(Ordering::Acquire) { Err(AccessDenied::Closed) } else { Ok(()) }
    }

    /// Has the thread do something. `Err`: why it does not.
    fn post(&self, work: impl FnOnce(&mut CacheThread, u64) + Send + 'static) -> Result<(), &'static str> {
        let sender = locked(&self.sender).clone().ok_or(CLOSED)?;
        sender
            .try_send(Box::new(work))
            .map_err(|_| "too much is being written to the audit")
    }

    /// Enters an act that is about to be done. It must not be done if this fails.
    pub async fn enter(&self, entry: AuditRecord) -> Result<i64, String> {
        let (reply, answer) = oneshot::channel();
        self.post(move |thread, now_wall_ms| {
            drop(reply.send(thread.token_db.enter(&entry, AuditOutcome::Pending, now_wall_ms)));
        })?;
        answer.await.map_err(|_| CLOSED)?.map_err(|error| error.to_string())
    }

    /// Reads the book, and changes nothing.
    pub(crate) async fn read_audit<T: Send + 'static>(
        &self,
        read: impl FnOnce(&TokenDb) -> Result<T, TokenDbError> + Send + 'static,
    ) -> Result<T, String> {
        let (reply, answer) = oneshot::channel();
        self.post(move |thread, _| drop(reply.send(read(&thread.token_db))))?;
        answer.await.map_err(|_| CLOSED)?.map_err(|error| error.to_string())
    }

    /// Does something with the book. What it changes is in force when this returns.
    pub(crate) async fn with_token_db<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut TokenDb, u64) -> Result<T, TokenDbError> + Send + 'static,
    ) -> Result<T, TokenDbError> {
        let gone = || TokenDbError::Unusable { path: String::new(), why: "it is closed".to_owned() };
        let (reply, answer) = oneshot::channel();
        let work = move |thread: &mut CacheThread, now_wall_ms| {
            let done = act(&mut thread.token_db, now_wall_ms);
            // The book's own connection does not see its changes as another's.
            if let Err(error) = thread.known.learn(&thread.token_db) {
                tracing::error!(%error, "tokens cannot be read");
                thread.known.trouble.store(true, Ordering::Release);
            }
            drop(reply.send(done));
        };
        self.post(work).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Notes what came of it. Where that cannot be written, the act stays pending, which is true.
    pub fn settle(&self, seq: i64, outcome: AuditOutcome) {
        let _ = self.post(move |thread, _| thread.complain(|token_db| token_db.settle(seq, outcome)));
    }

    /// Notes that a caller tried what it may not.
    pub fn denied(&self, entry: AuditRecord) {
        let room = Arc::clone(&self.denials).try_acquire_owned().ok();
        let posted = room.map(|room| {
            self.post(move |thread, now_wall_ms| {
                thread
                    .complain(|token_db| token_db.enter(&entry, AuditOutcome::Denied, now_wall_ms).map(drop));
                drop(room);
            })
        });
        if !matches!(posted, Some(Ok(()))) {
            self.left_out.add_one();
        }
    }

    /// Writes what is left to write, and closes the book.
    pub fn close(&self) {
        drop(locked(&self.sender).take());
        if let Some(thread) = locked(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Drop for AccessCache {
    fn drop(&mut self) {
        self.close();
    }
}

impl CachedTokens {
    fn tokens(&self) -> Arc<HashMap<TokenId, CachedToken>> {
        Arc::clone(&self.tokens.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn learn(&self, token_db: &TokenDb) -> Result<(), TokenDbError> {
        let before = self.tokens();
        let tokens = token_db.tokens()?.into_iter().map(|token| {
            let used = before
                .get(&token.id)
                .map_or(0, |entry| entry.used_wall_ms.load(Ordering::Relaxed));
            (token.id, CachedToken { token, used_wall_ms: AtomicU64::new(used) })
        });
        let tokens: HashMap<TokenId, CachedToken> = tokens.collect();
        self.had_tokens.fetch_or(!tokens.is_empty(), Ordering::AcqRel);
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
        self.read_again.send_replace(());
        Ok(())
    }
}

struct CacheThread {
    token_db: TokenDb,
    version: i64,
    path: PathBuf,
    known: Arc<CachedTokens>,
    clock: Arc<dyn Clock>,
}

impl CacheThread {
    fn run(mut self, receiver: &Receiver<CacheWork>) {
        let mut looks = 0;
        let mut looked_ms = 0;
        loop {
            match receiver.recv_timeout(LOOK_EVERY) {
                Ok(work) => {
                    let now_wall_ms = self.clock.now().wall_ms;
                    work(&mut self, now_wall_ms);
                    // Entries that keep coming must not keep a revocation from being seen.
                    if self.clock.now().store_ms.saturating_sub(looked_ms) < LOOK_EVERY_MS {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break self.note_uses(),
            }
            looked_ms = self.clock.now().store_ms;
            let seen = self.look();
            let had_trouble = self.known.trouble.swap(seen.is_err(), Ordering::AcqRel);
            match seen {
                Err(error) if !had_trouble => {
                    tracing::error!(%error, "every request is refused: tokens cannot be checked");
                }
                Ok(()) if had_trouble => tracing::info!("tokens can be checked again"),
                _ => {}
            }
            looks += 1;
            if looks % LOOKS_PER_NOTE == 0 {
                self.note_uses();
            }
        }
    }

    /// Reads the tokens again if they were changed, or there is another file in the book's place.
    fn look(&mut self) -> Result<(), TokenDbError> {
        if !self.token_db.is_in_place().map_err(|error| unusable(&self.path, &error))? {
            self.token_db = TokenDb::open(&self.path)?;
            self.version = 0;
        }
        let version = self.token_db.version()?;
        if version != self.version {
            self.known.learn(&self.token_db)?;
            self.version = version;
        }
        Ok(())
    }

    fn note_uses(&mut self) {
        let uses: Vec<(TokenId, u64)> = self
            .known
            .tokens()
            .iter()
            .map(|(id, entry)| (*id, entry.used_wall_ms.load(Ordering::Relaxed)))
            .filter(|(_, used)| *used > 0)
            .collect();
        if !uses.is_empty() {
            self.complain(|token_db| token_db.note_uses(&uses));
        }
    }

    fn complain(&mut self, write: impl FnOnce(&mut TokenDb) -> Result<(), TokenDbError>) {
        if let Err(error) = write(&mut self.token_db) {
            tracing::warn!(%error, "the access file could not be written");
        }
    }
}
