-- Jobs. A job's body never changes and lies apart. How a job stands is told by the one table of four in which it has a row:
-- job_ready, job_scheduled, job_running, job_settled. Whoever moves a job deletes that row and inserts another, in one
-- transaction: so the row is the job's lock. What a job has behind it (attempts that ended, counts) is in job_past, which a
-- job that was never tried does not have.
--
-- Lock order: rows of job_unique by key, then jobs by id; within one job, running, ready, scheduled, settled.

-- The tokens of all jobs of this store: each names one attempt of one job.
create sequence job_token as bigint minvalue 1 maxvalue 9007199254740991;
-- A job's place among all jobs, for life.
create sequence job_arrival as bigint;

create table job_queue (
    number    integer generated always as identity primary key,
    namespace text not null,
    name      text not null,
    mode      smallint not null default 0, -- 0 open, 1 paused, 2 draining
    unique (namespace, name)
);

-- The jobs of one priority in one queue: first come, first served.
create table job_lane (
    lane     integer generated always as identity primary key,
    queue    integer not null references job_queue,
    priority smallint not null,
    unique (queue, priority)
);

create table job_body (
    arrival     bigint primary key,
    id          uuid not null unique,
    lane        integer not null,
    enqueued_ms bigint not null,
    kind        text not null,
    payload     text not null,
    terms       jsonb, -- null: the usual ones
    extra       jsonb  -- labels, trace, unique key, whom it asks to yield, whose effect it undoes
);

-- Narrow: a claim reads and deletes here, and nothing else of the jobs that it passes over.
create table job_ready (
    lane    integer not null,
    arrival bigint not null,
    bytes   integer not null, -- of the payload
    back    boolean not null, -- it came here later than its place says
    past    boolean not null, -- it has more than a body
    urgent  boolean not null, -- it asks others to yield
    primary key (lane, arrival)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index job_ready_back on job_ready (lane, arrival) where back;
create index job_ready_urgent on job_ready (lane) where urgent;

create table job_scheduled (
    arrival bigint primary key,
    lane    integer not null,
    due_ms  bigint not null,
    bytes   integer not null,
    past    boolean not null,
    urgent  boolean not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index job_scheduled_due on job_scheduled (lane, due_ms);

-- The claims. A renewal moves the deadline and nothing that is indexed, within its page: no index grows by it. A sweep goes by
-- look_ms, which follows the deadline only when a sweep has looked.
create table job_running (
    id          uuid primary key,
    arrival     bigint not null,
    lane        integer not null,
    token       bigint not null,
    hash        uuid not null,   -- recognises the hold id
    owner       text not null,
    ttl_ms      bigint not null,
    since_ms    bigint not null,
    deadline_ms bigint not null,
    look_ms     bigint not null,
    limit_ms    bigint,          -- when the time limit of the attempt is over
    plain       boolean not null, -- its end concerns no other job
    asked       jsonb            -- who called it off, who asks it to yield
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
create index job_running_hash on job_running (hash);
create index job_running_look on job_running (look_ms);
create index job_running_asked on job_running (lane) where asked is not null;

-- Jobs that have come to their end, and those that wait for a person.
create table job_settled (
    arrival  bigint primary key,
    lane     integer not null,
    state    smallint not null, -- 3 completed, 4 failed, 5 cancelled, 6 quarantined, 7 indeterminate
    since_ms bigint not null,
    keeps    boolean not null,  -- it is not forgotten: it waits for a person, or its effects are being undone
    -- The attempt that completed it, where job_past has not got it.
    token    bigint,
    hash     uuid,
    owner    text,
    began_ms bigint,
    late     boolean not null default false, -- its claim had run out, and nobody had noted it yet
    result   text
);
create index job_settled_since on job_settled (since_ms) where not keeps;

create table job_past (
    arrival  bigint primary key,
    token    bigint not null,
    failures integer not null,
    crashes  integer not null,
    attempts bigint not null,
    undo     smallint not null,
    since_ms bigint not null,
    trail    jsonb
);

-- 0: a checkpoint, 1: progress.
create table job_note (
    arrival bigint not null,
    what    smallint not null,
    bytes   bytea not null,
    primary key (arrival, what)
);

create table job_effect (
    arrival bigint not null,
    name    text not null,
    effect  jsonb not null,
    primary key (arrival, name)
);

create table job_unique (
    namespace text not null,
    key       uuid not null, -- the first half of the SHA-256 of the key
    job       uuid not null,
    payload   uuid not null, -- likewise of the payload
    until_ms  bigint not null,
    primary key (namespace, key)
);
create index job_unique_until on job_unique (until_ms);
create index job_unique_job on job_unique (job);

create table job_schedule (
    namespace text not null,
    name      text not null,
    spec      jsonb not null,
    next_ms   bigint,
    last_ms   bigint,
    primary key (namespace, name)
);
create index job_schedule_next on job_schedule (next_ms);

-- Claims that wait. Whoever stands here says again and again that it is still there: beat is the server's own clock.
create table job_waiter (
    namespace text not null,
    queue     text not null,
    hash      uuid not null,
    sending   uuid not null, -- which sending of this claim: the latest one stands in line
    since_ms  bigint not null,
    place     bigint generated always as identity,
    until_ms  bigint not null,
    beat      timestamptz not null,
    primary key (namespace, queue, hash)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Jobs whose end somebody waits for.
create table job_awaited (
    id    uuid primary key,
    until timestamptz not null
);
