-- What is stored of jobs. A job's body never changes. The state of a job is the one table of four in which it has a row: job_ready,
-- job_scheduled, job_running, job_settled. A change of state deletes that row and inserts another, in one transaction: so the row is the
-- job's lock. Attempts that ended, and counts, are in job_past, which a job that was never tried does not have.
--
-- Lock order: rows of job_unique by key, then jobs by id; within one job, running, ready, scheduled, settled.

-- The tokens of all jobs of this store: each names one attempt of one job.
CREATE SEQUENCE job_token AS bigint MINVALUE 1 MAXVALUE 9007199254740991;
-- A job's place among all jobs. It never changes.
CREATE SEQUENCE job_arrival AS bigint;

CREATE TABLE job_queue (
    number    integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text NOT NULL,
    name      text NOT NULL,
    mode      smallint NOT NULL DEFAULT 0, -- 0 open, 1 paused, 2 draining
    UNIQUE (namespace, name)
);

-- The jobs of one priority in one queue: first come, first served.
CREATE TABLE job_lane (
    lane     integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue    integer NOT NULL REFERENCES job_queue,
    priority smallint NOT NULL,
    UNIQUE (queue, priority)
);

CREATE TABLE job_body (
    arrival     bigint PRIMARY KEY,
    id          uuid NOT NULL UNIQUE,
    lane        integer NOT NULL,
    enqueued_ms bigint NOT NULL,
    kind        text NOT NULL,
    payload     text NOT NULL,
    terms       jsonb, -- null: the usual ones
    extra       jsonb  -- labels, trace, unique key, whom it asks to yield, whose effect it compensates
);
-- Lists by kind. In indexes that serve lists alone the arrival stands as `arrival + 0`, which a search for one arrival does not match: to a planner that takes
-- the table for empty, any index that has the column seems as good as the primary key, and it would read all of this one.
CREATE INDEX job_body_kind ON job_body (lane, kind COLLATE "C", (arrival + 0));
CREATE TRIGGER job_labels_added AFTER INSERT ON job_body FOR EACH ROW WHEN (NEW.extra ? 'labels') EXECUTE FUNCTION job_labelled();
CREATE TRIGGER job_labels_removed AFTER DELETE ON job_body FOR EACH ROW WHEN (OLD.extra ? 'labels') EXECUTE FUNCTION job_labelled();

-- Narrow: a claim reads and deletes here, and nothing else of the jobs that it passes over.
CREATE TABLE job_ready (
    lane    integer NOT NULL,
    arrival bigint NOT NULL,
    bytes   integer NOT NULL, -- of the payload
    back    boolean NOT NULL, -- it came here later than its place says
    past    boolean NOT NULL, -- it has more than a body
    urgent  boolean NOT NULL, -- it asks others to yield
    PRIMARY KEY (lane, arrival)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX job_ready_back ON job_ready (lane, arrival) WHERE back;
CREATE INDEX job_ready_urgent ON job_ready (lane) WHERE urgent;
CREATE TRIGGER job_came_back AFTER INSERT OR UPDATE ON job_ready FOR EACH ROW WHEN (NEW.back) EXECUTE FUNCTION job_came_back();

CREATE TABLE job_scheduled (
    arrival bigint PRIMARY KEY,
    lane    integer NOT NULL,
    due_ms  bigint NOT NULL,
    bytes   integer NOT NULL,
    past    boolean NOT NULL,
    urgent  boolean NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX job_scheduled_due ON job_scheduled (lane, due_ms);
CREATE INDEX job_scheduled_at ON job_scheduled (due_ms);
-- Lists of delayed jobs.
CREATE INDEX job_scheduled_place ON job_scheduled (lane, (arrival + 0));

-- The claims. A renewal moves the deadline and nothing that is indexed, within its page: no index grows by it. A sweep reads all of them:
-- there are as many as are worked on, and it must find those whose deadline is too far away as well.
CREATE TABLE job_running (
    id          uuid PRIMARY KEY,
    arrival     bigint NOT NULL,
    lane        integer NOT NULL,
    token       bigint NOT NULL,
    hash        uuid NOT NULL,   -- recognises the hold id
    owner       text NOT NULL,
    ttl_ms      bigint NOT NULL,
    since_ms    bigint NOT NULL,
    deadline_ms bigint NOT NULL,
    limit_ms    bigint,          -- when the time limit of the attempt is over
    plain       boolean NOT NULL, -- its end concerns no other job
    -- Nothing needs to be kept after its completion: no unique key names it, and it has no earlier attempt.
    light       boolean NOT NULL DEFAULT false,
    -- The worker knows of it: the same claim, sent again, was answered with the job, or it was renewed. From then on only the worker
    -- returns it, or it expires.
    taken_up    boolean NOT NULL DEFAULT false,
    asked       jsonb            -- who cancelled it, who asks it to yield
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_running_hash ON job_running (hash);
CREATE INDEX job_running_asked ON job_running (lane) WHERE asked IS NOT NULL;

-- Jobs that have ended, and those that wait for a person.
CREATE TABLE job_settled (
    arrival  bigint PRIMARY KEY,
    lane     integer NOT NULL,
    state    smallint NOT NULL, -- 3 completed, 4 failed, 5 cancelled, 6 quarantined, 7 indeterminate
    since_ms bigint NOT NULL,
    keeps    boolean NOT NULL,  -- it is not removed: it waits for a person, or its effects are being compensated
    put_off_ms bigint,          -- in place of since_ms where its unique key is taken for longer than a finished job is kept
    -- The attempt that completed it, where job_past has not got it.
    token    bigint,
    hash     uuid,
    owner    text,
    began_ms bigint,
    late     boolean NOT NULL DEFAULT false, -- its claim had expired, and the sweep had not noted it yet
    result   text
);
CREATE INDEX job_settled_since ON job_settled (coalesce(put_off_ms, since_ms)) WHERE NOT keeps;
-- Lists by state, and jobs that wait for a person: they count as not done.
CREATE INDEX job_settled_state ON job_settled (lane, state, (arrival + 0));

-- Completions of which nothing else is kept, for as long as the same report may come again.
CREATE TABLE job_dropped (
    at_ms  bigint NOT NULL,
    hash   uuid NOT NULL,
    tokens bigint[] NOT NULL
);
-- Removed after two minutes: compressing them is not worth the time.
ALTER TABLE job_dropped ALTER tokens SET STORAGE EXTERNAL;
-- Without a primary key, no row of a published table can be deleted.
ALTER TABLE job_dropped REPLICA IDENTITY FULL;
CREATE INDEX job_dropped_at ON job_dropped (at_ms);
CREATE INDEX job_dropped_hash ON job_dropped (hash);

CREATE TABLE job_past (
    arrival  bigint PRIMARY KEY,
    token    bigint NOT NULL,
    failures integer NOT NULL,
    crashes  integer NOT NULL,
    attempts bigint NOT NULL,
    undo     smallint NOT NULL,
    since_ms bigint NOT NULL,
    trail    jsonb
);

-- 0: a checkpoint, 1: progress.
CREATE TABLE job_note (
    arrival bigint NOT NULL,
    what    smallint NOT NULL,
    bytes   bytea NOT NULL,
    PRIMARY KEY (arrival, what)
);

CREATE TABLE job_effect (
    arrival bigint NOT NULL,
    name    text NOT NULL,
    effect  jsonb NOT NULL,
    PRIMARY KEY (arrival, name)
);

CREATE TABLE job_unique (
    namespace text NOT NULL,
    key       uuid NOT NULL, -- the first half of the SHA-256 of the key
    job       uuid NOT NULL,
    payload   uuid NOT NULL, -- likewise of the payload
    until_ms  bigint NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX job_unique_until ON job_unique (until_ms);
CREATE INDEX job_unique_job ON job_unique (job);

CREATE TABLE job_schedule (
    namespace text NOT NULL,
    name      text NOT NULL,
    spec      jsonb NOT NULL,
    next_ms   bigint,
    last_ms   bigint,
    -- When the next moment was computed. Where that lies ahead, the clock has been set back since, and the next moment may be years away: it
    -- is computed again.
    noted_ms  bigint NOT NULL DEFAULT now_ms(),
    PRIMARY KEY (namespace, name)
);
CREATE INDEX job_schedule_next ON job_schedule (next_ms);
CREATE INDEX job_schedule_noted ON job_schedule (noted_ms);

-- Claims that wait. Each must say that it is alive: `beat`, by the server's own clock.
CREATE TABLE job_waiter (
    namespace text NOT NULL,
    queue     text NOT NULL,
    hash      uuid NOT NULL,
    sending   uuid NOT NULL, -- which sending of this claim: the latest one waits
    wants     integer NOT NULL, -- how many jobs it would take
    since_ms  bigint NOT NULL,
    place     bigint GENERATED ALWAYS AS IDENTITY,
    until_ms  bigint NOT NULL,
    beat      timestamptz NOT NULL,
    PRIMARY KEY (namespace, queue, hash)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX job_waiter_sending ON job_waiter (sending);

-- Jobs whose end a caller waits for.
CREATE TABLE job_awaited (
    id    uuid PRIMARY KEY,
    until timestamptz NOT NULL
);

-- How many jobs of a queue stand in each state, and how that changes. No call updates a count: it adds a row here, so no producer waits for
-- the open transaction of another. The maintenance adds the rows to `job_count` and removes them in one statement: see `job_counts`.
CREATE TABLE job_change (
    xact    xid8 NOT NULL DEFAULT pg_current_xact_id(),
    lane    integer NOT NULL,
    was     smallint, -- null: these jobs are new
    becomes smallint, -- null: they are gone
    count   integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
ALTER TABLE job_change REPLICA IDENTITY FULL;
CREATE INDEX job_change_xact ON job_change (xact);

CREATE TABLE job_count (
    queue integer NOT NULL,
    state smallint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (queue, state)
) WITH (fillfactor = 50);

-- One row: rows of `job_change` are left only of transactions that this snapshot does not see.
CREATE TABLE job_counted (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    seen       pg_snapshot NOT NULL DEFAULT '1:1:',
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    recount_at timestamptz NOT NULL DEFAULT clock_timestamp() + interval '10 minutes'
) WITH (fillfactor = 50);
INSERT INTO job_counted DEFAULT VALUES;

-- The labels of jobs, to find jobs by them.
CREATE TABLE job_label (
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    value     text COLLATE "C" NOT NULL,
    arrival   bigint NOT NULL,
    PRIMARY KEY (namespace, name, value, arrival)
);
