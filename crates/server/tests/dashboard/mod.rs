//! The dashboard as a browser without JavaScript sees it: pages, forms, log-in, and what it refuses.

mod actions;
mod browser;
#[cfg(feature = "installed")]
mod chromium;
mod live;
mod pages;
mod sessions;
