-- What happened, for people, metrics and audit. The newest are kept; numbers grow, and those of transactions that were rolled back
-- are missing.

CREATE SEQUENCE event_seq;

-- A transaction has its own number before it takes one for an event: so whoever finds a gap knows which transactions
-- may still fill it.
CREATE FUNCTION next_event() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_current_xact_id();
    RETURN nextval('event_seq');
END
$$;

CREATE TABLE event (
    seq bigint PRIMARY KEY DEFAULT next_event(),
    at_ms bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    -- As `fencehold_core::Fact` is written in JSON.
    fact jsonb NOT NULL
);

CREATE FUNCTION note(of_namespace text, of_key text, what jsonb, at bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO event (at_ms, namespace, key, fact) VALUES (at, of_namespace, of_key, what);
END $$;

-- What happens to many jobs at once is told in one row: an event for each of them would be a third of what their lives cost. Those
-- of one call: of jobs that were enqueued, claimed or completed together. Each has a number of its own, as in `event`, and is told by
-- `events_read` as if it had a row there. Arrays go by job; what is the same for all is told once.
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
    flags     boolean[]          -- 1: put off; 3: late. None: no job is
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- They are gone again before anybody reads most of them: packing them is not worth its while.
ALTER TABLE job_event ALTER seqs SET STORAGE EXTERNAL, ALTER ids SET STORAGE EXTERNAL, ALTER tokens SET STORAGE EXTERNAL,
    ALTER attempts SET STORAGE EXTERNAL;

-- Texts that are all the same, as one.
CREATE FUNCTION job_same(p_texts text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_texts[1] = ALL(p_texts) THEN p_texts[1:1] ELSE p_texts END
$$;

-- The events of jobs between two numbers, as `event` has them.
CREATE FUNCTION job_events(p_after bigint, p_to bigint)
RETURNS TABLE (seq bigint, at_ms bigint, namespace text, key text, fact jsonb)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT j.seq, e.at_ms, e.namespace, 'job/' || j.id, CASE e.what
        WHEN 1 THEN jsonb_build_object('job_enqueued', jsonb_build_object('queue', coalesce(e.names[j.nth], e.names[1]),
            'kind', coalesce(e.kinds[j.nth], e.kinds[1]), 'state', CASE WHEN e.flags[j.nth] THEN 'scheduled' ELSE 'queued' END))
        WHEN 2 THEN jsonb_build_object('job_claimed', jsonb_build_object('token', e.tokens[j.nth],
            'owner', coalesce(e.names[j.nth], e.names[1]), 'attempt', coalesce(e.attempts[j.nth], e.attempts[1])))
        ELSE jsonb_build_object('job_attempt_ended', jsonb_build_object('token', e.tokens[j.nth],
            'owner', coalesce(e.names[j.nth], e.names[1]),
            'how', CASE WHEN e.flags[j.nth] THEN 'completed_late' ELSE 'completed' END, 'state', 'completed', 'again_in_ms', NULL))
        END
    FROM job_event e CROSS JOIN LATERAL unnest(e.seqs, e.ids) WITH ORDINALITY AS j(seq, id, nth)
    WHERE e.last_seq > p_after AND j.seq > p_after AND j.seq <= p_to
$$;

-- The number of the oldest event that is surely kept.
CREATE FUNCTION events_oldest() RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (SELECT greatest(o.events_removed_to,
        greatest((SELECT max(seq) FROM event), (SELECT max(last_seq) FROM job_event), 0) - limit_events()) + 1 FROM store_state o);
END $$;

-- Events after a cursor, up to the first number that is missing and may still come. What is up to `settled` is known not
-- to come any more. Where one is missing, whoever may still fill the gap has a number below `assigned_to`: once all of those have ended, so
-- that `running_from` is not below it, all up to `newest` is settled. (The end of a snapshot does not tell that: it is after the last
-- transaction that has *ended*, and some with higher numbers may run.)
CREATE FUNCTION events_read(of_namespace text, after_seq bigint, of_prefix text, most integer, settled bigint,
    OUT events jsonb, OUT next bigint, OUT oldest bigint, OUT newest bigint,
    OUT assigned_to bigint, OUT running_from bigint, OUT complete boolean, OUT at_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    safe bigint;
    start bigint;
BEGIN
    at_ms := now_ms();
    SELECT greatest((SELECT max(seq) FROM event), (SELECT max(last_seq) FROM job_event), 0),
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    INTO newest, running_from;
    oldest := events_oldest();
    after_seq := coalesce(after_seq, oldest - 1);
    start := greatest(after_seq, settled);
    SELECT previous INTO safe FROM (
        SELECT seq, lag(seq, 1, start) OVER (ORDER BY seq) AS previous FROM (
            SELECT seq FROM event WHERE seq > start AND seq <= newest
            UNION ALL
            SELECT j.seq FROM job_event e CROSS JOIN LATERAL unnest(e.seqs) AS j(seq)
            WHERE e.last_seq > start AND j.seq > start AND j.seq <= newest) AS known) AS numbered
    WHERE seq <> previous + 1 ORDER BY seq LIMIT 1;
    complete := safe IS NULL;
    IF NOT complete THEN
        assigned_to := pg_current_xact_id()::text::bigint;
    END IF;
    safe := coalesce(safe, newest);
    SELECT coalesce(jsonb_agg(jsonb_build_object('seq', seq, 'at_wall_ms', e.at_ms, 'namespace', namespace,
        'key', key, 'fact', fact) ORDER BY seq), '[]'), max(seq)
    INTO events, next FROM (
        SELECT * FROM (
            SELECT * FROM event WHERE seq > after_seq AND seq <= safe
            UNION ALL
            SELECT j.seq, j.at_ms, j.namespace COLLATE "C", j.key COLLATE "C", j.fact FROM job_events(after_seq, safe) AS j) AS known
        WHERE namespace = of_namespace AND (of_prefix IS NULL OR starts_with(key, of_prefix))
        ORDER BY seq LIMIT most) AS e;
    IF jsonb_array_length(events) < most THEN
        next := greatest(safe, after_seq);
    END IF;
    -- Again, for some may have been removed before they were read.
    oldest := events_oldest();
END
$$;

DO $$
BEGIN
    CALL permit('fencehold_reader', 'SELECT ON event, job_event');
    CALL permit('fencehold_reader', 'EXECUTE ON FUNCTION events_read(text, bigint, text, integer, bigint)');
END
$$;
