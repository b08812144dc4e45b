-- What is stored of the whole store, of namespaces, and of events.

-- One row for each version that this schema was brought to.
CREATE TABLE migration (
    version         integer PRIMARY KEY,
    name            text NOT NULL,
    carried_out_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    compatible_from integer -- the oldest program that can use the schema since; null: none that is older than the version
);

-- One row: what holds for the whole store.
CREATE TABLE store_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Nothing is granted before this moment in a namespace that is not in `namespace_closed` (see `store advance`).
    closed_until_ms bigint NOT NULL DEFAULT 0,
    -- The longest ttl that is not in `namespace_ttl`: it counts in each namespace.
    longest_ttl_ms bigint NOT NULL DEFAULT 0,
    -- The floor of namespaces while there are none: a restore may have lost them.
    floor bigint NOT NULL DEFAULT 0,
    -- When a client last found that the clock had jumped ahead. What was held then does not expire for one ttl.
    suspended_from_ms bigint NOT NULL DEFAULT 0,
    -- The server's timeline. Another one means that another server has taken over.
    timeline bigint,
    -- Up to where events were removed from `event` and `job_event`.
    events_removed_to bigint NOT NULL DEFAULT 0,
    -- How many suspensions of expiry followed each other without a pause.
    suspensions smallint NOT NULL DEFAULT 0,
    -- Up to where events were lost in a namespace that is not in `event_lost`.
    events_lost bigint NOT NULL DEFAULT 0,
    -- When events were last removed.
    events_removed_at timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO store_state DEFAULT VALUES;

-- Every token given from now on is larger than its namespace's floor.
CREATE TABLE namespace (
    name text COLLATE "C" PRIMARY KEY,
    floor bigint NOT NULL
);

-- Handles that have a waiting request. Each must say that it is alive: by real time, not by the store's, for it is about processes. The
-- requests of one that does not are removed.
CREATE TABLE party (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    alive_until timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Whose turn the background work is, by part: the handle, until when by real time, and when the next handle asks (`maintenance_turn`). In
-- sequences, which leave no dead rows while another session holds a snapshot.
CREATE SEQUENCE upkeep_handle AS bigint;
CREATE SEQUENCE leases_turn_handle AS bigint;
CREATE SEQUENCE leases_turn_until AS bigint;
CREATE SEQUENCE leases_turn_asked AS bigint;
CREATE SEQUENCE jobs_turn_handle AS bigint;
CREATE SEQUENCE jobs_turn_until AS bigint;
CREATE SEQUENCE jobs_turn_asked AS bigint;

-- The numbers of events grow; those of transactions that were rolled back are missing.
CREATE SEQUENCE event_seq;

CREATE TABLE event (
    seq       bigint PRIMARY KEY DEFAULT next_event(),
    at_ms     bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    fact      jsonb NOT NULL, -- as `fencehold_core::Fact` is written in JSON
    drawn     bigint          -- the number that was drawn first, where that is another one now
);

-- The events of jobs that were enqueued, claimed or completed by one call, in one row: an event for each of them would be a third of what
-- their lives cost. Each has a number of its own, as in `event`, and is returned by `events_read` as if it had a row there. Arrays go by job.
CREATE TABLE job_event (
    last_seq  bigint PRIMARY KEY,
    at_ms     bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    what      smallint NOT NULL, -- 1 enqueued, 2 claimed, 3 completed
    seqs      bigint[] NOT NULL, -- they grow
    ids       uuid[] NOT NULL,
    names     text[] NOT NULL,   -- 1: queues; otherwise owners. One: of all of them
    kinds     text[],            -- 1. One: of all of them
    tokens    bigint[],          -- 2 and 3
    attempts  bigint[],          -- 2
    flags     boolean[],         -- 1: delayed; 3: late. None: no job is
    drawn     bigint[]           -- the numbers that were drawn first, where those are others now
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- Most are removed before they are read: compressing them is not worth the time.
ALTER TABLE job_event ALTER seqs SET STORAGE EXTERNAL, ALTER ids SET STORAGE EXTERNAL, ALTER tokens SET STORAGE EXTERNAL,
    ALTER attempts SET STORAGE EXTERNAL;
