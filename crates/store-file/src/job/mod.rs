//! Jobs in the database.
//!
//! A job's body is written once and never touched again. What changes about a job that has not come to its end is in a
//! narrow table, which is all that a new owner reads; what has come to its end is in another, and is found by its id.
//! Renewals have a table of their own, as those of leases do; a row there counts only for the token that it names.

mod archive;
mod body_cache;
mod check;
mod codec;
#[cfg(test)]
mod fuzz;
mod load;
mod write;

pub(super) use body_cache::BodyCache;
pub(super) use check::examine;
pub(super) use load::load;
#[cfg(feature = "sim")]
pub use load::rebase;
pub(super) use write::JobStatements;

/// What the third version of the schema adds: for how long finished jobs are kept, if that was set.
pub(super) const VERSION_3: &str = "ALTER TABLE meta ADD COLUMN keep_finished_ms INTEGER;";

/// What the second version of the schema adds. A row of `events` holds all events of a batch from then on, under the number
/// of the last one; before, it held one.
pub(super) const VERSION_2: &str = "
ALTER TABLE meta ADD COLUMN token_ceiling INTEGER NOT NULL DEFAULT 0;
CREATE TABLE queues (
    number INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    mode INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    cancelled INTEGER NOT NULL
);
CREATE TABLE jobs (arrival INTEGER PRIMARY KEY, id BLOB NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX job_ids ON jobs (id);
CREATE TABLE job_live (
    arrival INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    queue INTEGER NOT NULL,
    deadline_ms INTEGER NOT NULL,
    record BLOB NOT NULL
);
CREATE TABLE job_terms (arrival INTEGER PRIMARY KEY, token INTEGER NOT NULL, deadline_ms INTEGER NOT NULL);
CREATE TABLE job_finished (arrival INTEGER PRIMARY KEY, queue INTEGER NOT NULL, record BLOB NOT NULL);
CREATE TABLE job_notes (
    arrival INTEGER NOT NULL,
    what INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (arrival, what)
) WITHOUT ROWID;
CREATE TABLE effects (
    arrival INTEGER NOT NULL,
    name TEXT NOT NULL,
    effect BLOB NOT NULL,
    PRIMARY KEY (arrival, name)
) WITHOUT ROWID;
CREATE TABLE uniques (
    namespace TEXT NOT NULL,
    key BLOB NOT NULL,
    job BLOB NOT NULL,
    payload BLOB NOT NULL,
    until_wall_ms INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
CREATE TABLE schedules (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    spec BLOB NOT NULL,
    next_wall_ms INTEGER,
    last_wall_ms INTEGER,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
UPDATE events SET event = x'01' || event;
CREATE TABLE job_aside (id INTEGER PRIMARY KEY, problem TEXT NOT NULL, arrival, job, queue, deadline_ms, record);
";
