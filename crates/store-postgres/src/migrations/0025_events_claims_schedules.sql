-- Events of transactions that stay open, what a claim carries, and schedules after the clock was ahead.

-- Events of transactions that stay open keep no other event from being read. A number is drawn when an event is written, and the event is
-- seen once its transaction commits. A number that is missing for a while is passed over; its event, if it comes after all, is *late* and
-- gets another number, so that it is read after all that was read before it.
--
-- Nothing that was ever read changes its number: that is all before `event_next`. What comes after that is put in the order in which numbers
-- were first drawn: of one key, they are drawn in the order in which things happened to it.

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

-- The number that was drawn first, or all of a row, where that is another one now.
ALTER TABLE event ADD COLUMN drawn bigint;
ALTER TABLE job_event ADD COLUMN drawn bigint[];

-- While this is locked, no transaction has a number that is not committed: what is missing does not come any more.
LOCK TABLE event, job_event IN SHARE MODE;
SELECT setval('event_next', greatest((SELECT max(seq) FROM event), (SELECT max(last_seq) FROM job_event), 0) + 1, false);

-- The numbers after this one that are missing: of no event that is seen, and not passed over; up to the newest event.
CREATE FUNCTION events_missing(p_after bigint) RETURNS TABLE (first_seq bigint, last_seq bigint)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT k.known_to + 1, k.first_seq - 1 FROM (
        SELECT n.first_seq,
            coalesce(max(n.last_seq) OVER (ORDER BY n.first_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), p_after) AS known_to
        FROM (
            SELECT e.seq AS first_seq, e.seq AS last_seq FROM event e WHERE e.seq > p_after
            UNION ALL
            SELECT j.seq, j.seq FROM job_event e CROSS JOIN LATERAL unnest(e.seqs) AS j(seq) WHERE e.last_seq > p_after AND j.seq > p_after
            UNION ALL
            SELECT greatest(g.first_seq, p_after + 1), g.last_seq FROM event_gap g WHERE g.last_seq > p_after) AS n) AS k
    WHERE k.first_seq > k.known_to + 1
$$;

-- Gives events other numbers. Those of one row keep their order.
CREATE FUNCTION events_renumber(p_from bigint[], p_to bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    -- By way of negative numbers: a number that one of them has is another's at once.
    UPDATE event e SET seq = -m.new, drawn = coalesce(e.drawn, e.seq) FROM unnest(p_from, p_to) AS m(old, new) WHERE e.seq = m.old AND m.old <> m.new;
    UPDATE event SET seq = -seq WHERE seq < 0;
    UPDATE job_event e SET last_seq = -s.seqs[cardinality(s.seqs)], seqs = s.seqs, drawn = coalesce(e.drawn, e.seqs)
    FROM (
        SELECT o.last_seq, array_agg(coalesce(m.new, n.seq) ORDER BY n.nth) AS seqs
        FROM job_event o CROSS JOIN LATERAL unnest(o.seqs) WITH ORDINALITY AS n(seq, nth)
        LEFT JOIN unnest(p_from, p_to) AS m(old, new) ON m.old = n.seq
        WHERE o.last_seq >= (SELECT min(f) FROM unnest(p_from) AS f)
        GROUP BY o.last_seq HAVING bool_or(m.old <> m.new)) AS s
    WHERE e.last_seq = s.last_seq;
    UPDATE job_event SET last_seq = -last_seq WHERE last_seq < 0;
END $$;

-- Moves on what can be read, one call at a time: up to the first number that is missing. What is missing up to `pass_to` is passed over. What
-- is written here counts from the next call on, when it is committed.
CREATE FUNCTION events_settle(pass_to bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    v_told  bigint;
    v_to    bigint;
    v_ended xid8;
    v_late  bigint[];
    v_from  bigint[];
    v_new   bigint[];
    v_last  bigint;
BEGIN
    -- Once in a transaction: the second time it would take for committed what it wrote the first time.
    IF current_setting('transaction_read_only') = 'on' OR coalesce(current_setting('fencehold.events_settled', true), '') = 'yes'
        OR NOT pg_try_advisory_xact_lock(1179142482, hashtext(current_schema())) THEN
        RETURN;
    END IF;
    PERFORM set_config('fencehold.events_settled', 'yes', true);
    PERFORM job_idle_limit();
    SELECT s.last_value - 1 INTO v_told FROM event_next s;
    -- A dump has the sequences as they were after the events.
    v_told := greatest(least(v_told, (SELECT s.last_value FROM event_seq s)), events_oldest() - 1);
    SELECT coalesce((SELECT min(m.first_seq) - 1 FROM events_missing(v_told) AS m),
            greatest((SELECT max(e.seq) FROM event e), (SELECT max(e.last_seq) FROM job_event e), v_told)),
        pg_snapshot_xmin(pg_current_snapshot())
    INTO v_to, v_ended;
    SELECT max(l.seq) INTO v_last FROM event_late l;
    -- Looked for after what can be seen was counted: of what was seen there, nothing that came before it is late and not found here.
    IF v_last IS NULL AND EXISTS (SELECT FROM event_gap) THEN
        SELECT array_agg(n.seq ORDER BY n.drawn) INTO v_late FROM (
            SELECT e.seq, coalesce(e.drawn, e.seq) AS drawn FROM event_gap g JOIN event e ON e.seq BETWEEN g.first_seq AND g.last_seq
            UNION
            SELECT j.seq, j.drawn FROM event_gap g JOIN job_event e ON e.last_seq BETWEEN g.first_seq AND g.last_seq
            CROSS JOIN LATERAL unnest(e.seqs, coalesce(e.drawn, e.seqs)) AS j(seq, drawn)
            UNION
            -- Not all of its numbers have been passed over.
            SELECT j.seq, j.drawn FROM job_event e CROSS JOIN LATERAL unnest(e.seqs, coalesce(e.drawn, e.seqs)) AS j(seq, drawn)
            WHERE e.last_seq > v_told AND EXISTS (SELECT FROM event_gap g WHERE e.seqs[1] BETWEEN g.first_seq AND g.last_seq)) AS n;
        IF v_late IS NULL THEN
            DELETE FROM event_gap g WHERE g.last_seq <= v_told AND g.below <= v_ended;
        ELSE
            SELECT array_agg(n.seq ORDER BY n.seq) INTO v_new
            FROM (SELECT nextval('event_seq') AS seq FROM generate_series(1, cardinality(v_late)) OFFSET 0) AS n;
            PERFORM events_renumber(v_late, v_new);
            INSERT INTO event_late (seq) SELECT unnest(v_new);
            v_last := v_new[cardinality(v_new)];
        END IF;
    END IF;
    IF v_last IS NULL THEN
        IF v_to <> (SELECT s.last_value - 1 FROM event_next s) THEN
            PERFORM setval('event_next', v_to + 1, false);
        END IF;
    ELSIF NOT EXISTS (SELECT FROM events_missing(v_told) AS m WHERE m.first_seq < v_last) THEN
        -- What was written since the late ones ended has a lower number than theirs, and is here, or a higher one. The same numbers are given
        -- out among all of them, so nothing that is still to come has one in between.
        SELECT array_agg(n.seq ORDER BY n.drawn), array_agg(n.seq ORDER BY n.seq) INTO v_from, v_new FROM (
            SELECT e.seq, coalesce(e.drawn, e.seq) AS drawn FROM event e WHERE e.seq > v_told AND e.seq <= v_last
            UNION ALL
            SELECT j.seq, j.drawn FROM job_event e CROSS JOIN LATERAL unnest(e.seqs, coalesce(e.drawn, e.seqs)) AS j(seq, drawn)
            WHERE e.last_seq > v_told AND j.seq > v_told AND j.seq <= v_last) AS n
        WHERE NOT EXISTS (SELECT FROM event_gap g WHERE n.seq BETWEEN g.first_seq AND g.last_seq);
        PERFORM events_renumber(v_from, v_new);
        DELETE FROM event_late;
    END IF;
    INSERT INTO event_gap (first_seq, last_seq, below)
        SELECT m.first_seq, least(m.last_seq, pass_to), pg_current_xact_id() FROM events_missing(v_told) AS m WHERE m.first_seq <= pass_to;
END $$;

-- Events after a cursor, as far as they can be read now (`told`). What is missing up to `pass_to` is passed over by the next call.
DROP FUNCTION events_read(text, bigint, text, integer, bigint);
CREATE FUNCTION events_read(of_namespace text, after_seq bigint, of_prefix text, most integer, pass_to bigint,
    OUT events jsonb, OUT next bigint, OUT oldest bigint, OUT newest bigint, OUT told bigint, OUT at_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    at_ms := now_ms();
    PERFORM events_settle(pass_to);
    newest := greatest((SELECT max(seq) FROM event), (SELECT max(last_seq) FROM job_event), 0);
    oldest := events_oldest();
    after_seq := coalesce(after_seq, oldest - 1);
    -- Before the statement that reads: that one sees whatever this goes over.
    told := (SELECT s.last_value - 1 FROM event_next s);
    SELECT coalesce(jsonb_agg(jsonb_build_object('seq', seq, 'at_wall_ms', e.at_ms, 'namespace', namespace,
        'key', key, 'fact', fact) ORDER BY seq), '[]'), max(seq)
    INTO events, next FROM (
        SELECT * FROM (
            SELECT o.seq, o.at_ms, o.namespace, o.key, o.fact FROM event o WHERE o.seq > after_seq AND o.seq <= told
            UNION ALL
            SELECT j.seq, j.at_ms, j.namespace COLLATE "C", j.key COLLATE "C", j.fact FROM job_events(after_seq, told) AS j) AS known
        WHERE namespace = of_namespace AND (of_prefix IS NULL OR starts_with(key, of_prefix))
            -- Late ones that have no new number yet.
            AND NOT coalesce((SELECT g.first_seq <= known.seq FROM event_gap g WHERE g.last_seq >= known.seq ORDER BY g.last_seq LIMIT 1), false)
        ORDER BY seq LIMIT most) AS e;
    IF jsonb_array_length(events) < most THEN
        next := greatest(told, after_seq);
    END IF;
    -- Again, for some may have been removed before they were read.
    oldest := events_oldest();
END
$$;

-- What is late has a low number, and is not yet read.
DO $$
DECLARE
    changed text;
BEGIN
    changed := replace(pg_get_functiondef('lease_sweep(integer)'::regprocedure), 'DELETE FROM event WHERE seq <= newest - limit_events();',
        'DELETE FROM event e WHERE e.seq <= newest - limit_events()
            AND NOT EXISTS (SELECT FROM event_gap g WHERE e.seq BETWEEN g.first_seq AND g.last_seq);');
    IF changed !~ 'event_gap' THEN
        RAISE EXCEPTION 'lease_sweep is not the function that this migration knows';
    END IF;
    EXECUTE changed;
    changed := replace(pg_get_functiondef('job_tidy(bigint, integer)'::regprocedure),
        'DELETE FROM job_event e WHERE e.last_seq <= v_last - limit_events();',
        'DELETE FROM job_event e WHERE e.last_seq <= v_last - limit_events()
        AND NOT EXISTS (SELECT FROM event_gap g WHERE e.last_seq BETWEEN g.first_seq AND g.last_seq);');
    IF changed !~ 'event_gap' THEN
        RAISE EXCEPTION 'job_tidy is not the function that this migration knows';
    END IF;
    EXECUTE changed;
END $$;

-- What a job carries beyond its payload when it is claimed: its checkpoint, and its effects with what undoes them.
CREATE FUNCTION job_carries(p_arrival bigint) RETURNS integer
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce((SELECT octet_length(n.bytes) FROM job_note n WHERE n.arrival = p_arrival AND n.what = 0), 0)
        + coalesce((SELECT sum(octet_length(e.effect::text)) FROM job_effect e WHERE e.arrival = p_arrival), 0);
END $$;

-- A claim is bounded by all that it carries. Measured job by job, up to the first that has no room: what a job carries can be large.
DO $$
DECLARE
    c_parts CONSTANT text[] := ARRAY[
        'IF v_bytes + (SELECT sum(b) FROM unnest(v_sizes) AS b) > c_bytes_max THEN',
        'IF true = ANY(v_past) OR v_bytes + (SELECT sum(b) FROM unnest(v_sizes) AS b) > c_bytes_max THEN',
        'EXIT WHEN cardinality(a_key) + v_got > 0 AND',
        'IF v_past[k] THEN
                        v_sizes[k] := v_sizes[k] + job_carries(v_keys[k]);
                    END IF;
                    EXIT WHEN cardinality(a_key) + v_got > 0 AND',
        'v_room := array_fill(0, array[cardinality(p_queues)]);
            ELSE',
        'v_room[v_nth[i]] := v_most - v_got;
                IF v_got < cardinality(v_sizes) THEN
                    v_room := array_fill(0, array[cardinality(p_queues)]);
                END IF;
            ELSE'];
    changed text := pg_get_functiondef('job_claim'::regproc);
BEGIN
    FOR i IN 1 .. 5 BY 2 LOOP
        IF strpos(changed, c_parts[i]) = 0 THEN
            RAISE EXCEPTION 'job_claim is not the function that this migration knows';
        END IF;
        changed := replace(changed, c_parts[i], c_parts[i + 1]);
    END LOOP;
    EXECUTE changed;
END $$;

-- When the next moment of a schedule was looked for. Where that lies ahead, the clock has been set back since, and the next moment may be
-- years away: it is looked for again. So are all that are there now, once.
ALTER TABLE job_schedule ADD COLUMN noted_ms bigint NOT NULL DEFAULT 9223372036854775807;
ALTER TABLE job_schedule ALTER noted_ms SET DEFAULT now_ms();
CREATE INDEX job_schedule_noted ON job_schedule (noted_ms);

DO $$
DECLARE
    c_old CONSTANT text := 'last_ms = excluded.last_ms;';
    changed text := pg_get_functiondef('job_keep(jsonb)'::regprocedure);
BEGIN
    IF strpos(changed, c_old) = 0 THEN
        RAISE EXCEPTION 'job_keep is not the function that this migration knows';
    END IF;
    EXECUTE replace(changed, c_old, 'last_ms = excluded.last_ms, noted_ms = excluded.noted_ms;');
END $$;

-- Schedules that are due, or whose next moment must be looked for again, as JSON. Those who get one hold it until it is kept.
CREATE OR REPLACE FUNCTION job_schedules_due(p_most integer) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object('namespace', s.namespace, 'spec', s.spec, 'next_ms', s.next_ms, 'last_ms', s.last_ms)::text
    FROM job_schedule s WHERE s.ctid = ANY(
        array(SELECT o.ctid FROM job_schedule o WHERE o.next_ms <= (SELECT now_ms()) ORDER BY o.next_ms LIMIT p_most)
        || array(SELECT o.ctid FROM job_schedule o WHERE o.noted_ms > (SELECT now_ms()) + 1000 AND o.next_ms IS NOT NULL
            ORDER BY o.noted_ms DESC LIMIT p_most))
    ORDER BY s.next_ms FOR UPDATE SKIP LOCKED
$$;

-- As `0021_plans.sql` has it: what is made anew has only the settings that it is made with.
DO $$
DECLARE
    ours regprocedure;
BEGIN
    FOREACH ours IN ARRAY ARRAY['events_missing(bigint)', 'events_renumber(bigint[], bigint[])', 'events_settle(bigint)',
        'events_read(text, bigint, text, integer, bigint)', 'job_carries(bigint)', 'job_schedules_due(integer)']::regprocedure[]
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET jit = off SET max_parallel_workers_per_gather = 0', ours);
    END LOOP;
END
$$;
