//! What only the door itself can get wrong: callers that go away, watchers, a server that stops, and what is said of bad
//! requests.

mod disconnects;
mod event_streams;
pub(crate) mod local_server;
mod requests;
mod single_item;
