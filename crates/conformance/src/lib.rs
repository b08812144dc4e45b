//! The suite that every store passes.
//!
//! Nouns: a [`TestStore`] is one fresh store together with power over its time; a [`TestStoreFactory`] makes them; a case is one
//! promise, named as it reads, checked on a test store of its own. A change of the contract starts here.
//!
//! A new store is a test file of a few lines:
//!
//! ```no_run
//! use fencehold_conformance::ClockedTestStore;
//! use fencehold_engine::MemoryStore;
//!
//! fencehold_conformance::lease_conformance!(|| ClockedTestStore::new(|clock| MemoryStore::open(clock)));
//! fencehold_conformance::job_conformance!(|| ClockedTestStore::new(|clock| MemoryStore::open(clock)));
//! # fn main() {}
//! ```
//!
//! What a test store cannot show (see [`TestCapability`]), and what a store says that it cannot do, is reported by name as not
//! applicable; nothing passes in silence. Order comes from barriers, from the test store's clock and from what the store
//! itself shows of its line; no case sleeps.

/// Fails with the value, unless it has this shape. Behind `=>` stands what is wanted of it, last what is said of it.
#[macro_export]
macro_rules! assert_matches {
    ($value:expr, $pattern:pat $(if $guard:expr)? $(, $($what:tt)+)?) => {
        $crate::assert_matches!($value, $pattern $(if $guard)? => {} $(, $($what)+)?)
    };
    ($value:expr, $pattern:pat $(if $guard:expr)? => $wanted:expr $(, $($what:tt)+)?) => {
        match $value {
            $pattern $(if $guard)? => $wanted,
            ref other => panic!("{}{other:?}", String::new() $(+ &format!($($what)+) + ": ")?),
        }
    };
}

mod concurrent;
mod fixture;
pub mod golden;
mod job;
mod lease;
mod need;

use std::io::Write as _;

use fixture::Fixture;
use need::Need;

pub use fencehold_test_store::{ClockedTestStore, TestCapability, TestStore, TestStoreFactory, block_on};

/// One promise and how it is checked.
struct Case {
    theme: &'static str,
    name: &'static str,
    needs: &'static [&'static dyn Need],
    check: fn(&Fixture),
}

/// What became of the cases of one store. A case that fails panics and is in no list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConformanceReport {
    /// Cases that passed, as `theme::name`.
    pub passed: Vec<String>,
    /// Cases that this store or its arena cannot show, as `theme::name`.
    pub not_applicable: Vec<String>,
}

/// Runs every case of the lease contract, each in a fresh arena, one after the other.
///
/// [`lease_conformance!`](crate::lease_conformance) makes a test of each; this is for a caller that wants the report, for
/// example to pin down what is not applicable to a store.
///
/// # Panics
///
/// When the store breaks a promise.
pub fn exercise(factory: &impl TestStoreFactory) -> ConformanceReport {
    exercise_all(factory, lease::CASES)
}

/// The same for every case of the job contract; [`job_conformance!`](crate::job_conformance) makes a test of each.
///
/// # Panics
///
/// When the store breaks a promise.
pub fn exercise_jobs(factory: &impl TestStoreFactory) -> ConformanceReport {
    exercise_all(factory, job::CASES)
}

fn exercise_all(factory: &impl TestStoreFactory, cases: &[Case]) -> ConformanceReport {
    let mut report = ConformanceReport::default();
    for case in cases {
        let name = format!("{}::{}", case.theme, case.name);
        let list = if run(factory, case) { &mut report.passed } else { &mut report.not_applicable };
        list.push(name);
    }
    report
}

/// Runs one case of the lease contract by its name.
///
/// # Panics
///
/// When the store breaks the promise, and when there is no such case.
pub fn check(factory: &impl TestStoreFactory, theme: &str, name: &str) {
    check_one(factory, lease::CASES, theme, name);
}

/// Runs one case of the job contract by its name.
///
/// # Panics
///
/// When the store breaks the promise, and when there is no such case.
pub fn check_job(factory: &impl TestStoreFactory, theme: &str, name: &str) {
    check_one(factory, job::CASES, theme, name);
}

fn check_one(factory: &impl TestStoreFactory, cases: &[Case], theme: &str, name: &str) {
    let case = cases.iter().find(|case| case.theme == theme && case.name == name);
    run(factory, case.unwrap_or_else(|| panic!("there is no case {theme}::{name}")));
}

/// False: not applicable.
fn run(factory: &impl TestStoreFactory, case: &Case) -> bool {
    let fixture = Fixture::new(factory.test_store());
    let Some(lacking) = case.needs.iter().find_map(|need| need.lacking(&fixture)) else {
        (case.check)(&fixture);
        return true;
    };
    let store = fixture.capabilities().store;
    let line = format!("not applicable to {store} {}::{} ({lacking})\n", case.theme, case.name);
    // Straight to the stream, and in one piece: what goes through the print macros is swallowed for a test that passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
    false
}
