-- Tables that schema 21 did not have: a new schema has them from here, and so has one that is brought up to date from 21. So a migration that
-- changes one of them says IF NOT EXISTS: a schema that comes from 21 has the change already.

-- Maintenance that fails at present, one row a part. A part that works again has none.
CREATE TABLE maintenance_error (
    part     text COLLATE "C" PRIMARY KEY,
    since_ms bigint NOT NULL,
    at_ms    bigint NOT NULL,
    times    bigint NOT NULL,
    why      text NOT NULL
);

-- By part of the maintenance: what it removes lies above this.
CREATE TABLE tidied (
    part    text COLLATE "C" PRIMARY KEY,
    low     bigint NOT NULL,
    done_to bigint NOT NULL,
    at      timestamptz NOT NULL,
    full_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The limits that were set; namespace '': for every one. Null: as the next wider setting has it.
CREATE TABLE namespace_limit (
    namespace text COLLATE "C" PRIMARY KEY,
    queues    bigint,
    keys      bigint,
    jobs      bigint,
    bytes     bigint,
    schedules bigint,
    ttl_ms    bigint
);

-- What the maintenance has counted.
CREATE TABLE namespace_use (
    namespace text COLLATE "C" PRIMARY KEY,
    queues    bigint NOT NULL,
    keys      bigint NOT NULL,
    jobs      bigint NOT NULL,
    bytes     bigint NOT NULL,
    at        timestamptz NOT NULL,
    took      interval NOT NULL
) WITH (fillfactor = 50);

-- The longest ttl that was granted in a namespace. A row is added when it grows, and never changed: a grant in an open transaction keeps no
-- other grant waiting. The largest counts.
CREATE TABLE namespace_ttl (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    ttl_ms    bigint NOT NULL
);
CREATE INDEX namespace_ttl_of ON namespace_ttl (namespace, ttl_ms);
CREATE INDEX namespace_ttl_longest ON namespace_ttl (ttl_ms);

-- Until when an advance has closed a namespace. One that is not here was unknown then, and is closed for as long as any
-- (`store_state.closed_until_ms`).
CREATE TABLE namespace_closed (
    namespace text COLLATE "C" PRIMARY KEY,
    until_ms  bigint NOT NULL
);

-- The first number that cannot be read yet. Not a row: every move would leave a dead version of it behind. It moves at once and is not
-- rolled back, so it moves only over what is committed.
CREATE SEQUENCE event_next;

-- Numbers that were passed over.
CREATE TABLE event_gap (
    last_seq  bigint PRIMARY KEY,
    first_seq bigint NOT NULL,
    below     xid8 NOT NULL -- the transactions that may still fill it have lower numbers
);

-- The new numbers of late events, until they are put in order.
CREATE TABLE event_late (
    seq bigint PRIMARY KEY
);

-- The newest `limit_events()` numbers are in `event` and `job_event`, whose namespaces they are. Of what is older, each namespace keeps what
-- its share has room for, here.
CREATE TABLE event_old (
    namespace text COLLATE "C" NOT NULL,
    seq       bigint NOT NULL,
    at_ms     bigint NOT NULL,
    key       text COLLATE "C" NOT NULL,
    fact      jsonb NOT NULL,
    PRIMARY KEY (namespace, seq)
);

-- Up to which event a namespace has lost some. One that is not here has lost those up to `store_state.events_lost`, and no other.
CREATE TABLE event_lost (
    namespace text COLLATE "C" PRIMARY KEY,
    until_seq bigint NOT NULL
);

-- The lanes of removed queues. A transaction that read such a lane before it was removed may still put jobs into it: the sweep moves them
-- to the queue of that name.
CREATE TABLE job_lane_gone (
    lane      integer PRIMARY KEY,
    namespace text NOT NULL,
    queue     text NOT NULL,
    priority  smallint NOT NULL,
    gone_ms   bigint NOT NULL,
    look_ms   bigint NOT NULL
);
CREATE INDEX job_lane_gone_look ON job_lane_gone (look_ms);

-- By lane in which claims wait: jobs up to here are taken, but for those that came back. 0 where the lane is soon searched.
CREATE TABLE job_head (
    lane     integer PRIMARY KEY,
    head     bigint NOT NULL,
    newest   bigint NOT NULL,      -- the newest place when that was noted: the next note goes no further
    at       timestamptz NOT NULL, -- when that was
    entries  bigint NOT NULL,      -- of its index, that were read when all of the lane was last searched
    full_at  timestamptz NOT NULL, -- when that was
    back_low bigint NOT NULL DEFAULT 0 -- jobs that came back are above this
) WITH (fillfactor = 50);

-- How many events there were of each kind that are not in `event` and `job_event` any more: see `counts`.
CREATE TABLE event_total (
    kind  text COLLATE "C" PRIMARY KEY,
    count bigint NOT NULL
) WITH (fillfactor = 50);

-- How leases ended of which those say no more, by the minute: for a day.
CREATE TABLE lease_ended_count (
    namespace text COLLATE "C" NOT NULL,
    minute_ms bigint NOT NULL,
    how       text NOT NULL,
    count     bigint NOT NULL,
    PRIMARY KEY (namespace, minute_ms, how)
);
CREATE INDEX lease_ended_count_at ON lease_ended_count (minute_ms);

-- For which keys callers contend: gathered by each process, and added here now and then. See `contention`.
CREATE TABLE lease_contention (
    namespace        text COLLATE "C" NOT NULL,
    key              text COLLATE "C" NOT NULL,
    begins_ms        bigint NOT NULL, -- the first refusal or waiter that is remembered
    last_ms          bigint NOT NULL, -- the last one
    refused_count    bigint NOT NULL,
    refused_owner    text, -- whose request was refused last
    refused_task     text,
    refused_ms       bigint,
    max_waiter_count bigint NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX lease_contention_last ON lease_contention (last_ms);
