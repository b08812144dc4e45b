//! What only the door itself can get wrong: callers that go away, watchers, a server that stops, and what is said of bad
//! requests.

mod asking;
mod door;
mod leaving;
mod single;
mod watching;
