//! A worker runs jobs, says what came of them, and knows when they are no longer its own.

mod handlers;
mod run;
mod stop;
mod store;
