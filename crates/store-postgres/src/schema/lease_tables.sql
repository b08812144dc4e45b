-- What is stored of leases.
--
-- The order of locks: keys by id, then holds by key id, then waiters; a transaction that has a waiter's row takes further rows only if they
-- are not locked. The clock is read when the locks are held.

-- A key and its newest token. A renewal does not touch this row; a fence locks it, so that the key cannot be granted meanwhile.
CREATE TABLE lease_key (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    counter bigint NOT NULL DEFAULT 0,
    -- When the newest ending that had to be forgotten was.
    forgotten_at_ms bigint,
    -- Since when it is free.
    freed_at_ms bigint,
    -- When the sweep reads it. Only then does the sweep learn whether the key is held.
    look_at_ms bigint NOT NULL,
    UNIQUE (namespace, key)
) WITH (fillfactor = 80);
CREATE INDEX lease_key_look ON lease_key (look_at_ms);

-- Who holds what, and until when: a small table, in which a renewal updates one row in its place.
CREATE TABLE lease_hold (
    key_id bigint PRIMARY KEY,
    token bigint NOT NULL,
    hash bytea NOT NULL,
    owner text NOT NULL,
    task text,
    ttl_ms bigint NOT NULL,
    max_age_ms bigint,
    since_ms bigint NOT NULL,
    priority smallint NOT NULL,
    deadline_ms bigint NOT NULL,
    -- How long the last grant or renewal lasts: it came that long before the deadline.
    lasts_ms bigint NOT NULL,
    -- A waiter of this number asks the holder to yield. Once it is gone, this counts for nothing.
    notice_contender text,
    notice_task text,
    notice_priority smallint,
    notice_yield_at_ms bigint,
    notice_waiter bigint,
    -- When the sweep reads it. Not the deadline, which every renewal moves: if it were indexed, no update would be made in place.
    look_at_ms bigint NOT NULL,
    -- The holder knows of it: the same request, sent again, was answered with the lease, or it was renewed. From then on only its holder
    -- releases it, or it expires.
    taken_up boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lease_hold_look ON lease_hold (look_at_ms);

-- How the last holds of a key ended.
CREATE TABLE lease_ending (
    key_id bigint NOT NULL,
    token bigint NOT NULL,
    hash bytea NOT NULL,
    owner text NOT NULL,
    task text,
    how text NOT NULL,
    at_ms bigint NOT NULL,
    ended_by text,
    reason text,
    PRIMARY KEY (key_id, token)
);

-- Requests that wait. An answer is left here until it is read.
CREATE TABLE lease_waiter (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    party bigint,
    namespace text COLLATE "C" NOT NULL,
    keys text[] COLLATE "C" NOT NULL,
    hash bytea NOT NULL,
    owner text NOT NULL,
    task text,
    ttl_ms bigint NOT NULL,
    max_age_ms bigint,
    priority smallint NOT NULL,
    yield_within_ms bigint,
    -- The largest token that was ever seen of the first key.
    seen_token bigint,
    arrived_ms bigint NOT NULL,
    -- How long it had waited before it came here.
    waited_before_ms bigint NOT NULL,
    -- From then on it is never granted anything.
    until_ms bigint NOT NULL,
    answer jsonb
);
CREATE UNIQUE INDEX lease_waiter_hash ON lease_waiter (namespace, hash) WHERE answer IS NULL;
CREATE INDEX lease_waiter_party ON lease_waiter (party);

-- The order in which requests wait: one row for each key that a waiter waits for, deleted with its answer. In the order of the primary key:
-- rank, then how long it has waited in all, then order of arrival.
CREATE TABLE lease_line (
    key_id bigint NOT NULL,
    rank integer NOT NULL,
    since_ms bigint NOT NULL,
    waiter bigint NOT NULL,
    until_ms bigint NOT NULL,
    PRIMARY KEY (key_id, rank, since_ms, waiter)
);
CREATE INDEX lease_line_until ON lease_line (key_id, until_ms);
CREATE INDEX lease_line_waiter ON lease_line (waiter);

-- The highest token that was shown for a resource that lives in this database.
CREATE TABLE fence_mark (
    namespace text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL CHECK (octet_length(resource) BETWEEN 1 AND 512),
    token bigint NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
    PRIMARY KEY (namespace, resource)
) WITH (fillfactor = 80);
