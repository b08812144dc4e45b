//! What stores over a network share.
//!
//! - A [`CallBudget`] is the time that one call has, over all of its attempts; it decides whether a [`AttemptError`] is retried, and
//!   what the caller hears when it is not.
//! - An [`Actor`] is the thread that owns the connections of a handle. Callers may be on any executor, or on none. A response that
//!   its caller did not take is undone there.
//! - [`HoldFeeds`] hear what others do to the holds of a handle. A [`RetryDelay`] grows from one pause to the next.
//!
//! Deliberately absent: what an error of a protocol means. Each store says that in its own `Fault`.

mod actor;
mod budget;
mod feeds;

pub use actor::{Actor, Closing, PendingCall};
pub use budget::{AttemptError, CallBudget, ResendPolicy, RetryDelay, sleep};
pub use feeds::{FeedEnd, HoldFeeds};
