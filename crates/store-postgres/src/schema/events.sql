-- What happened, for people, metrics and audit.
--
-- Events of transactions that stay open keep no other event from being read. A number is drawn when an event is written, and the event is
-- seen once its transaction commits. A number that is missing for a while is passed over; its event, if it comes after all, is *late* and
-- gets another number, so that it is read after all that was read before it.
--
-- Nothing that was ever read changes its number: that is all before `event_next`. What comes after that is put in the order in which numbers
-- were first drawn: of one key, they are drawn in the order in which things happened to it.

-- Writes an event, and notifies a holder of what it would learn only by its next renewal (`concerns_holder`): that another caller ended its
-- hold, or asks it to end it.
CREATE OR REPLACE FUNCTION note(of_namespace text, of_key text, what jsonb, at bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO event (at_ms, namespace, key, fact) VALUES (at, of_namespace, of_key, what);
    -- Only for these: transactions that notify commit one at a time.
    IF what ?| ARRAY['yield_asked', 'job_cancel_requested', 'job_cancelled'] OR what->'lease_ended'->>'how' IN ('revoked', 'advanced')
        OR (what->'job_deleted'->>'forced')::boolean THEN
        PERFORM tell('hold' || chr(10) || of_namespace || chr(10) || of_key);
    END IF;
END $$;

-- Texts that are all the same, as one.
CREATE OR REPLACE FUNCTION job_same(p_texts text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_texts[1] = ALL(p_texts) THEN p_texts[1:1] ELSE p_texts END
$$;

-- The events of one row.
CREATE OR REPLACE FUNCTION job_event_told(e job_event) RETURNS TABLE (seq bigint, at_ms bigint, namespace text, key text, fact jsonb)
LANGUAGE sql STABLE AS $$
    SELECT j.seq, e.at_ms, e.namespace, 'job/' || j.id, CASE e.what
        WHEN 1 THEN jsonb_build_object('job_enqueued', jsonb_build_object('queue', coalesce(e.names[j.nth], e.names[1]),
            'kind', coalesce(e.kinds[j.nth], e.kinds[1]), 'state', CASE WHEN e.flags[j.nth] THEN 'scheduled' ELSE 'queued' END))
        WHEN 2 THEN jsonb_build_object('job_claimed', jsonb_build_object('token', e.tokens[j.nth],
            'owner', coalesce(e.names[j.nth], e.names[1]), 'attempt', coalesce(e.attempts[j.nth], e.attempts[1])))
        ELSE jsonb_build_object('job_attempt_ended', jsonb_build_object('token', e.tokens[j.nth],
            'owner', coalesce(e.names[j.nth], e.names[1]),
            'how', CASE WHEN e.flags[j.nth] THEN 'completed_late' ELSE 'completed' END, 'state', 'completed', 'again_in_ms', NULL))
        END
    FROM unnest(e.seqs, e.ids) WITH ORDINALITY AS j(seq, id, nth)
$$;

-- The events of jobs between two numbers, as `event` has them; of rows whose last number is above `p_low`.
CREATE OR REPLACE FUNCTION job_events(p_after bigint, p_to bigint, p_low bigint)
RETURNS TABLE (seq bigint, at_ms bigint, namespace text, key text, fact jsonb)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT j.* FROM job_event e CROSS JOIN LATERAL job_event_told(e) AS j
    WHERE e.last_seq > greatest(p_after, p_low) AND j.seq > p_after AND j.seq <= p_to
$$;

-- The number of the newest event. All that were removed have lower numbers than these: none of them is read on the way.
CREATE OR REPLACE FUNCTION events_newest() RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT greatest((SELECT max(e.seq) FROM event e WHERE e.seq > s.events_removed_to),
        (SELECT max(e.last_seq) FROM job_event e WHERE e.last_seq > s.events_removed_to), 0) FROM store_state s
$$;

-- The number of the oldest event that is surely kept.
CREATE OR REPLACE FUNCTION events_oldest() RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (SELECT greatest(o.events_removed_to,
        events_newest() - limit_events()) + 1 FROM store_state o);
END $$;

-- The number of the oldest event that a namespace surely keeps.
CREATE OR REPLACE FUNCTION events_oldest(p_namespace text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (SELECT greatest(s.events_lost, (SELECT l.until_seq FROM event_lost l WHERE l.namespace = p_namespace)) + 1 FROM store_state s);
END $$;

-- The numbers after this one that are missing: of no event that is seen, and not passed over; up to the newest event.
CREATE OR REPLACE FUNCTION events_missing(p_after bigint) RETURNS TABLE (first_seq bigint, last_seq bigint)
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

-- The newest event, where all with lower numbers are seen, too: what is counted in the same statement is what a replay up to it gives. None where
-- an event with a lower number is still to come, or has come late. `p_told`: what could be read before the statement began (`events_told`).
CREATE OR REPLACE FUNCTION events_seen_to(p_told bigint) RETURNS bigint
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT events_newest()
    WHERE NOT EXISTS (SELECT FROM event_gap) AND NOT EXISTS (SELECT FROM event_late) AND NOT EXISTS (SELECT FROM events_missing(p_told))
$$;

-- Gives events other numbers. Those of one row keep their order.
CREATE OR REPLACE FUNCTION events_renumber(p_from bigint[], p_to bigint[]) RETURNS void
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
CREATE OR REPLACE FUNCTION events_settle(pass_to bigint) RETURNS void
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
            greatest(events_newest(), v_told)),
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

-- The number up to which events can be read. It is not of a snapshot: for the statement that comes after it.
CREATE OR REPLACE FUNCTION events_told() RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM events_settle(0);
    RETURN (SELECT least(n.last_value - 1, s.last_value) FROM event_next n, event_seq s);
END $$;

-- The task that an event names, as `EventData::task` of the core says.
CREATE OR REPLACE FUNCTION event_task(fact jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(fact #>> '{lease_acquired,task}', fact #>> '{lease_ended,task}', fact #>> '{yield_asked,task}')
$$;

-- Events after a cursor, as far as they can be read now (`told`). What is missing up to `pass_to` is passed over by the next call.
CREATE OR REPLACE FUNCTION events_page(of_namespace text, after_seq bigint, of_prefix text, most integer, pass_to bigint,
    of_task_prefix text DEFAULT NULL, OUT events jsonb, OUT next bigint, OUT oldest bigint, OUT newest bigint, OUT told bigint, OUT at_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    at_ms := now_ms();
    PERFORM events_settle(pass_to);
    newest := events_newest();
    oldest := events_oldest(of_namespace);
    after_seq := coalesce(after_seq, oldest - 1);
    -- Before the statement that reads: that one sees whatever this goes over.
    told := (SELECT s.last_value - 1 FROM event_next s);
    SELECT coalesce(jsonb_agg(jsonb_build_object('seq', seq, 'at_wall_ms', e.at_ms, 'namespace', namespace,
        'key', key, 'fact', fact) ORDER BY seq), '[]'), max(seq)
    INTO events, next FROM (
        SELECT * FROM (
            SELECT o.seq, o.at_ms, o.namespace, o.key, o.fact FROM event o
            WHERE o.seq > greatest(after_seq, (SELECT s.events_removed_to FROM store_state s)) AND o.seq <= told
            UNION ALL
            SELECT o.seq, o.at_ms, o.namespace, o.key, o.fact FROM event_old o
            WHERE o.namespace = of_namespace AND o.seq > after_seq AND o.seq <= told
            UNION ALL
            SELECT j.seq, j.at_ms, j.namespace COLLATE "C", j.key COLLATE "C", j.fact 
            FROM job_events(after_seq, told, (SELECT s.events_removed_to FROM store_state s)) AS j) AS known
        WHERE namespace = of_namespace AND (of_prefix IS NULL OR starts_with(key, of_prefix))
            AND (of_task_prefix IS NULL OR task_covers(of_task_prefix, event_task(fact)))
            -- Late ones that have no new number yet.
            AND NOT coalesce((SELECT range_agg(int8range(g.first_seq, g.last_seq, '[]')) FROM event_gap g WHERE g.last_seq > after_seq)
                @> known.seq, false)
        ORDER BY seq LIMIT most) AS e;
    IF jsonb_array_length(events) < most THEN
        next := greatest(told, after_seq);
    END IF;
    -- Again, for some may have been removed before they were read.
    oldest := events_oldest(of_namespace);
END $$;

-- The same for programs before schema 32. They do not know that a write past a fence can be refused, which is shown as an effect to them, nor
-- that a job can be ended by force.
CREATE OR REPLACE FUNCTION events_read(of_namespace text, after_seq bigint, of_prefix text, most integer, pass_to bigint,
    OUT events jsonb, OUT next bigint, OUT oldest bigint, OUT newest bigint, OUT told bigint, OUT at_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    SELECT p.* INTO events, next, oldest, newest, told, at_ms FROM events_page(of_namespace, after_seq, of_prefix, most, pass_to) AS p;
    SELECT coalesce(jsonb_agg(CASE
            WHEN e.event #>> '{fact,stale_write_blocked,attempted}' = 'write'
                THEN jsonb_set(e.event, '{fact,stale_write_blocked,attempted}', '"outcome"')
            WHEN e.event->'fact' ? 'job_ended_by_force'
                THEN jsonb_set(e.event, '{fact}', '{"row_set_aside": {"problem": "a newer program knows this event"}}')
            ELSE e.event END ORDER BY e.nth), '[]')
    INTO events FROM jsonb_array_elements(events) WITH ORDINALITY AS e(event, nth);
END $$;

-- Takes events out of `event` and `job_event` that are not among the newest. Where all namespaces together have more than
-- `limit_events()`, those that have most lose their oldest, down to one number for all of them. For the sweep, which is one at a time.
CREATE OR REPLACE FUNCTION events_remove() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    v_at     CONSTANT timestamptz := clock_timestamp();
    v_to     CONSTANT bigint := events_newest() - limit_events();
    v_done   bigint;
    v_last   timestamptz;
    v_full   boolean;  -- reads what was removed before, too, for what was committed late
    v_low    bigint;
    v_read   bigint;
    v_late   int8multirange;
    v_most   bigint;   -- how many events a namespace may have
    v_spaces text[];
    v_keep   bigint[]; -- by namespace: how many of those that are not among the newest
    v_none   text[];   -- the namespaces that keep none of those
BEGIN
    SELECT s.events_removed_to, s.events_removed_at INTO v_done, v_last FROM store_state s;
    -- In larger steps than every time: to count them is to read them all.
    IF v_to <= v_done OR v_to < v_done + limit_events() / 4 AND v_last BETWEEN v_at - interval '2 seconds' AND v_at THEN
        RETURN;
    END IF;
    v_full := NOT EXISTS (SELECT FROM tidied t WHERE t.part = 'events' AND t.full_at > v_at - interval '10 minutes');
    v_low := CASE WHEN v_full THEN 0 ELSE v_done END;
    v_read := pg_stat_get_xact_tuples_returned('event_pkey'::regclass) + pg_stat_get_xact_tuples_returned('job_event_pkey'::regclass);
    -- What is late has a low number, and is not yet read.
    v_late := coalesce((SELECT range_agg(int8range(g.first_seq, g.last_seq, '[]')) FROM event_gap g), '{}');
    WITH counted AS MATERIALIZED (
        SELECT n.namespace, sum(n.events) AS events, coalesce(sum(n.events) FILTER (WHERE n.seq > v_to), 0) AS newest FROM (
            SELECT e.namespace, e.seq, 1 AS events FROM event e WHERE e.seq > v_low
            UNION ALL
            SELECT e.namespace, e.last_seq, cardinality(e.seqs) FROM job_event e WHERE e.last_seq > v_low
            UNION ALL
            SELECT o.namespace, o.seq, 1 FROM event_old o) AS n
        GROUP BY n.namespace
    ), most AS (
        -- Each has as much as all that have more can have, after those that have less have theirs.
        SELECT max(floor((limit_events() - n.less) / (n.spaces - n.nth + 1)))::bigint AS events FROM (
            SELECT coalesce(sum(c.events) OVER (ORDER BY c.events, c.namespace ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS less,
                row_number() OVER (ORDER BY c.events, c.namespace) AS nth, count(*) OVER () AS spaces
            FROM counted c) AS n
    )
    SELECT m.events, array_agg(c.namespace), array_agg(greatest(m.events - c.newest, 0)::bigint) INTO v_most, v_spaces, v_keep
        FROM counted c, most m GROUP BY m.events;
    v_none := array(SELECT s.namespace FROM unnest(v_spaces, v_keep) AS s(namespace, keep) WHERE s.keep = 0);
    WITH due AS (
        DELETE FROM event e WHERE e.seq > v_low AND e.seq <= v_to AND NOT v_late @> e.seq
        RETURNING e.namespace, e.seq, e.at_ms, e.key, e.fact
    ), due_of_jobs AS (
        DELETE FROM job_event e WHERE e.last_seq > v_low AND e.last_seq <= v_to AND NOT v_late @> e.last_seq
        RETURNING e.namespace, e.last_seq, e AS of_jobs
    ), share AS (
        SELECT s.namespace COLLATE "C" AS namespace, s.keep FROM unnest(v_spaces, v_keep) AS s(namespace, keep)
    ), ranked AS MATERIALIZED (
        -- Those of a namespace that was seen only now are kept: it has few.
        SELECT n.*, row_number() OVER (PARTITION BY n.namespace ORDER BY n.seq DESC) <= coalesce(s.keep, v_most) AS kept FROM (
            SELECT d.namespace, d.seq, d.at_ms, d.key, d.fact, false AS old FROM due d WHERE d.namespace <> ALL(v_none)
            UNION ALL
            SELECT d.namespace, j.seq, j.at_ms, j.key, j.fact, false FROM due_of_jobs d CROSS JOIN LATERAL job_event_told(d.of_jobs) AS j
            WHERE d.namespace <> ALL(v_none)
            UNION ALL
            SELECT o.namespace, o.seq, o.at_ms, o.key, o.fact, true FROM event_old o) AS n
        LEFT JOIN share s ON s.namespace = n.namespace
    ), kinds AS MATERIALIZED (
        SELECT d.namespace, d.at_ms, k.kind, 1 AS count FROM due d CROSS JOIN LATERAL unnest(event_kinds(d.fact)) AS k(kind)
        UNION ALL
        SELECT d.namespace, 0, k.kind, k.count FROM due_of_jobs d CROSS JOIN LATERAL job_event_kinds(d.of_jobs) AS k
    ), counted_in_all AS (
        INSERT INTO event_total AS t (kind, count)
            SELECT k.kind, sum(k.count) FROM kinds k GROUP BY k.kind HAVING sum(k.count) > 0 ORDER BY k.kind
            ON CONFLICT (kind) DO UPDATE SET count = t.count + excluded.count
    ), counted_by_minute AS (
        INSERT INTO lease_ended_count AS c (namespace, minute_ms, how, count)
            SELECT k.namespace, k.at_ms / 60000 * 60000, split_part(k.kind, '/', 2), sum(k.count) FROM kinds k
            WHERE starts_with(k.kind, 'lease_ended/') AND k.at_ms > now_ms() - limit_stats_ms() - 60000 GROUP BY 1, 2, 3
            ON CONFLICT (namespace, minute_ms, how) DO UPDATE SET count = c.count + excluded.count
    ), kept AS (
        INSERT INTO event_old (namespace, seq, at_ms, key, fact)
            SELECT r.namespace, r.seq, r.at_ms, r.key, r.fact FROM ranked r WHERE r.kept AND NOT r.old
    ), forgotten AS (
        DELETE FROM event_old o USING ranked r WHERE r.old AND NOT r.kept AND o.namespace = r.namespace AND o.seq = r.seq
    )
    INSERT INTO event_lost AS l (namespace, until_seq)
        SELECT n.namespace, max(n.seq) FROM (
            SELECT r.namespace, r.seq FROM ranked r WHERE NOT r.kept
            UNION ALL
            SELECT d.namespace, d.seq FROM due d WHERE d.namespace = ANY(v_none)
            UNION ALL
            SELECT d.namespace, d.last_seq FROM due_of_jobs d WHERE d.namespace = ANY(v_none)) AS n
        GROUP BY n.namespace
        ON CONFLICT (namespace) DO UPDATE SET until_seq = greatest(l.until_seq, excluded.until_seq);
    DELETE FROM lease_ended_count c WHERE c.minute_ms < now_ms() - limit_stats_ms() - 60000;
    IF v_most = 0 THEN
        -- More namespaces than events are kept: none has a share, and no list of them is kept.
        DELETE FROM event_lost;
        UPDATE store_state SET events_lost = greatest(events_lost, v_to);
    END IF;
    IF v_full THEN
        PERFORM looked_through('events', now_ms(), pg_stat_get_xact_tuples_returned('event_pkey'::regclass)
            + pg_stat_get_xact_tuples_returned('job_event_pkey'::regclass) - v_read);
    END IF;
    UPDATE store_state SET events_removed_to = v_to, events_removed_at = v_at;
END $$;
