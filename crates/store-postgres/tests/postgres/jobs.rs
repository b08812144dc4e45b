//! The contract of jobs, case by case.

use crate::arena::PostgresArena;

fencehold_conformance::job_conformance!(PostgresArena::new);
