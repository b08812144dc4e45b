//! The contract of jobs, case by case.

use crate::arena::PostgresArena;

fencehold_store::job_conformance!(PostgresArena::new);
