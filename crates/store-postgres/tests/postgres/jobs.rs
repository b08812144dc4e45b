//! The contract of jobs, case by case.

use crate::test_store::PostgresTestStore;

fencehold_conformance::job_conformance!(PostgresTestStore::comparing_counts);
