//! A fence in front of an HTTP service, as `tower` layers.
//!
//! Nouns: a client *shows* its [`KeyToken`](super::KeyToken) in headers, which [`FenceClientLayer`] adds to its requests. The server has a
//! [`FenceMarks`] of the highest token of every key, in memory or in a file. [`FenceLayer`] checks each request against it
//! before the handler runs; [`RaiseService`] answers requests that raise the fence and do nothing else.
//!
//! | header | |
//! |---|---|
//! | `Fencing-Key` | the key, percent-encoded where it is not visible ASCII |
//! | `Fencing-Token` | the token, in decimal digits |
//! | `Fencing-Namespace` | the key's namespace, if it is not `default` |
//! | `Fencing-Owner` | who shows it, percent-encoded; for people, and left out at will |
//!
//! What is refused is answered with `application/problem+json` (see [`FenceProblem`]): 412 for a stale token, which is never to be
//! tried again; 428 without a token; 400 for headers that make no sense; 503 while the marks cannot be used.
//!
//! **What the layer promises.** The check and the raise are one step: two requests cannot both find themselves the newest.
//! A handler under a newer token does not start before those under older tokens *of this process* have ended, and neither is
//! a raise answered before: so once a raise is answered, nothing older is still at work here. Let a timeout stand between
//! this layer and handlers that may hang.
//!
//! **What it cannot.** The handler runs after the check. If it hands work to others (a task, a queue, a database), or if
//! several processes serve behind one address, something older may still be at work elsewhere when something newer is let
//! through. The final write must then check: the handler finds the [`KeyToken`](super::KeyToken) in the request's extensions, and takes
//! it to its own write, to a [`FencedFile`](super::FencedFile) or into its SQL statement.
//!
//! Deliberately absent: authentication. Anyone who may send requests may show any token, and shut others out with a large one.

mod headers;
mod layer;
mod marks;
mod problem;

pub use headers::{KEY, NAMESPACE, OWNER, TOKEN, set_headers};
pub use layer::{FenceClientLayer, FenceClientService, FenceLayer, FenceService, RaiseService};
pub use marks::FenceMarks;
pub use problem::FenceProblem;
