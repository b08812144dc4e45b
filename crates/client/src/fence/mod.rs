//! Fences: ready-made for what a lease protects.
//!
//! Nouns: a *fence* stands in front of something that holders write to. It remembers, for every key (or job), the
//! highest token that it was shown, the key's [`Mark`]. A holder shows its [`KeyToken`]: key and token. A token below the
//! mark is *stale* and refused; one above it *raises* the mark. Check, raise and write are one step.
//!
//! A fence knows only what it was shown. Raise it as the first thing under a new lease, so that the holder before is
//! refused even if the new one has not written yet.
//!
//! - [`FencedFile`]: a file that is replaced, or appended to exactly once.
//! - `FencedObject` (feature `object`): an object in a bucket, which carries the token itself.
//! - `fence::http` (feature `tower`): a `tower` layer that checks the requests of a service, and one that sends them.
//! - [`Lease::fence_in`](crate::Lease::fence_in): one call inside the caller's own [transaction](crate::transaction) in PostgreSQL. It asks
//!   the lease's store, which is in the same transaction.
//!
//! Deliberately absent from the others: asking the lease's store. A fence must hold when the store cannot be reached, and a holder that
//! was live when the store was asked may not be when it writes.

mod error;
pub mod file;
#[cfg(feature = "tower")]
pub mod http;
mod key_token;
mod mark;
#[cfg(feature = "object")]
mod object;

pub use error::FenceError;
pub use file::FencedFile;
pub use key_token::KeyToken;
pub use mark::Mark;
#[cfg(feature = "object")]
pub use object::FencedObject;
