-- What one namespace does to others: `store advance` closes each for its own longest ttl, and each has its share of the history. And
-- whoever changes a hold by a function of this schema has its holder told.

-- The longest ttl that was granted in a namespace since this migration. A row is added when it grows, and never changed: a grant in an open
-- transaction keeps no other grant waiting. The largest counts.
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

-- Notes a ttl that is granted in a namespace, where it is the longest.
CREATE FUNCTION namespace_note_ttl(p_namespace text, p_ttl_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF EXISTS (SELECT FROM namespace_ttl t WHERE t.namespace = p_namespace AND t.ttl_ms >= p_ttl_ms) THEN
        RETURN;
    END IF;
    INSERT INTO namespace_ttl (namespace, ttl_ms) VALUES (p_namespace, p_ttl_ms);
    -- Rows that another transaction is removing are left to it.
    DELETE FROM namespace_ttl t WHERE t.id = ANY(array(
        SELECT o.id FROM namespace_ttl o WHERE o.namespace = p_namespace AND o.ttl_ms < p_ttl_ms FOR UPDATE SKIP LOCKED));
END $$;

-- The longest ttl that was granted anywhere. `store_state` has what was on record at this migration, when it was not known in which
-- namespace: it counts in each.
CREATE FUNCTION longest_ttl() RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT greatest(s.longest_ttl_ms, (SELECT max(t.ttl_ms) FROM namespace_ttl t)) FROM store_state s
$$;

CREATE OR REPLACE FUNCTION lease_note_longest(ids bigint[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM namespace_note_ttl(g.namespace, g.longest) FROM (
        SELECT k.namespace, max(h.ttl_ms) AS longest FROM unnest(ids) AS n(id)
        CROSS JOIN LATERAL (SELECT o.ttl_ms FROM lease_hold o WHERE o.key_id = n.id OFFSET 0) AS h
        CROSS JOIN LATERAL (SELECT o.namespace FROM lease_key o WHERE o.id = n.id OFFSET 0) AS k
        GROUP BY k.namespace) AS g;
END $$;
DROP FUNCTION job_note_ttl(bigint);

-- Until when nothing is granted in a namespace after `store advance`.
CREATE FUNCTION namespace_closed_until(p_namespace text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT c.until_ms FROM namespace_closed c WHERE c.namespace = p_namespace), (SELECT s.closed_until_ms FROM store_state s))
$$;

CREATE OR REPLACE FUNCTION store_closed_ms(p_namespace text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN greatest(namespace_closed_until(p_namespace) - now_ms(), 0);
END $$;

CREATE OR REPLACE FUNCTION store_open_now() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE store_state SET closed_until_ms = 0;
    DELETE FROM namespace_closed;
$$;

-- As before, and says what a holder would learn only by its next renewal (`concerns_holder`): that another caller ended its hold, or
-- asks it to end it.
CREATE OR REPLACE FUNCTION note(of_namespace text, of_key text, what jsonb, at bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO event (at_ms, namespace, key, fact) VALUES (at, of_namespace, of_key, what);
    -- Only for these: transactions that notify commit one at a time.
    IF what ?| ARRAY['yield_asked', 'job_cancel_requested', 'job_cancelled'] OR what->'lease_ended'->>'how' IN ('revoked', 'advanced')
        OR (what->'job_deleted'->>'forced')::boolean THEN
        PERFORM tell('hold' || chr(10) || of_namespace || chr(10) || of_key);
    END IF;
END $$;

-- The history. The newest `limit_events()` numbers are in `event` and `job_event`, whose namespaces they are. Of what is older, each
-- namespace keeps what its share has room for, here.
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

ALTER TABLE store_state ADD COLUMN events_lost bigint NOT NULL DEFAULT 0,
    -- When events were last removed.
    ADD COLUMN events_removed_at timestamptz NOT NULL DEFAULT '-infinity';
UPDATE store_state SET events_lost = greatest(events_oldest() - 1, 0);

-- The events of one row.
CREATE FUNCTION job_event_told(e job_event) RETURNS TABLE (seq bigint, at_ms bigint, namespace text, key text, fact jsonb)
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
DROP FUNCTION job_events(bigint, bigint);
CREATE FUNCTION job_events(p_after bigint, p_to bigint, p_low bigint)
RETURNS TABLE (seq bigint, at_ms bigint, namespace text, key text, fact jsonb)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT j.* FROM job_event e CROSS JOIN LATERAL job_event_told(e) AS j
    WHERE e.last_seq > greatest(p_after, p_low) AND j.seq > p_after AND j.seq <= p_to
$$;

-- The number of the newest event. All that were removed have lower numbers than these: none of them is read on the way.
CREATE FUNCTION events_newest() RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT greatest((SELECT max(e.seq) FROM event e WHERE e.seq > s.events_removed_to),
        (SELECT max(e.last_seq) FROM job_event e WHERE e.last_seq > s.events_removed_to), 0) FROM store_state s
$$;

-- The number of the oldest event that a namespace surely keeps.
CREATE FUNCTION events_oldest(p_namespace text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (SELECT greatest(s.events_lost, (SELECT l.until_seq FROM event_lost l WHERE l.namespace = p_namespace)) + 1 FROM store_state s);
END $$;

-- Takes events out of `event` and `job_event` that are not among the newest. Where all namespaces together have more than
-- `limit_events()`, those that have most lose their oldest, down to one number for all of them. For the sweep, which is one at a time.
CREATE FUNCTION events_remove() RETURNS void
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

DO $$
DECLARE
    -- The function, what is in it, and what is to be there.
    c_changes CONSTANT text[] := ARRAY[
        ARRAY['lease_acquire', 'SELECT closed_until_ms - now INTO closed FROM store_state;', 'closed := namespace_closed_until(of_namespace) - now;'],
        ARRAY['job_claim', 'SELECT greatest(o.closed_until_ms - v_now, 0), o.longest_ttl_ms < p_ttl_ms INTO v_closed, v_longer FROM store_state o;',
            'SELECT greatest(coalesce((SELECT c.until_ms FROM namespace_closed c WHERE c.namespace = p_namespace), o.closed_until_ms) - v_now, 0),
        NOT EXISTS (SELECT FROM namespace_ttl t WHERE t.namespace = p_namespace AND t.ttl_ms >= p_ttl_ms)
        INTO v_closed, v_longer FROM store_state o;'],
        ARRAY['job_claim', 'PERFORM job_note_ttl(p_ttl_ms);', 'PERFORM namespace_note_ttl(p_namespace, p_ttl_ms);'],
        ARRAY['job_place', 'PERFORM job_note_ttl((v_claim->>''ttl_ms'')::bigint);', 'PERFORM namespace_note_ttl(q.namespace, (v_claim->>''ttl_ms'')::bigint)
            FROM job_lane l JOIN job_queue q ON q.number = l.queue WHERE l.lane = v_body.lane;'],
        ARRAY['job_rows', '''closed_ms'', job_closed_ms(),', '''closed_ms'', store_closed_ms(p_namespace),'],
        ARRAY['job_honour_suspension', 'SELECT suspended_from_ms, suspended_from_ms + longest_ttl_ms INTO v_from, v_till FROM store_state;',
            'SELECT s.suspended_from_ms, CASE WHEN s.suspended_from_ms > 0 THEN s.suspended_from_ms + longest_ttl() END
        INTO v_from, v_till FROM store_state s;'],
        ARRAY['lease_suspend', 's.suspended_from_ms + s.longest_ttl_ms + 60000', 's.suspended_from_ms + longest_ttl() + 60000'],
        ARRAY['lease_advance', 'OUT exhausted text)', 'OUT exhausted text, OUT namespaces jsonb)'],
        ARRAY['lease_advance', 'greatest(closed_until_ms, now + longest_ttl_ms)', 'greatest(closed_until_ms, now + longest_ttl())'],
        ARRAY['lease_advance', '    closed_for_ms := until - now;', '    closed_for_ms := until - now;
    INSERT INTO namespace_closed (namespace, until_ms)
        SELECT t.namespace, now + greatest(max(t.ttl_ms), (SELECT s.longest_ttl_ms FROM store_state s)) FROM namespace_ttl t GROUP BY t.namespace
        ON CONFLICT (namespace) DO UPDATE SET until_ms = excluded.until_ms;
    -- As many as one answer names.
    SELECT coalesce(jsonb_agg(jsonb_build_object(''namespace'', c.namespace, ''closed_for_ms'', c.until_ms - now)
            ORDER BY c.until_ms DESC, c.namespace), ''[]'')
        INTO namespaces FROM (SELECT * FROM namespace_closed o ORDER BY o.until_ms DESC, o.namespace LIMIT 1000) AS c;'],
        -- Queues are counted in their namespace (`namespace_room`), and not in the store.
        ARRAY['job_enqueue', '
            WHERE (SELECT count(*) FROM job_queue) < 100000', ''],
        ARRAY['events_oldest()', 'greatest((SELECT max(seq) FROM event), (SELECT max(last_seq) FROM job_event), 0)', 'events_newest()'],
        ARRAY['events_settle', 'greatest((SELECT max(e.seq) FROM event e), (SELECT max(e.last_seq) FROM job_event e), v_told)',
            'greatest(events_newest(), v_told)'],
        ARRAY['lease_status', 'greatest((SELECT max(seq) FROM event), (SELECT max(last_seq) FROM job_event), 0)', 'events_newest()'],
        ARRAY['events_read', 'greatest((SELECT max(seq) FROM event), (SELECT max(last_seq) FROM job_event), 0)', 'events_newest()'],
        ARRAY['events_read', 'oldest := events_oldest();', 'oldest := events_oldest(of_namespace);'],
        ARRAY['events_read', 'FROM event o WHERE o.seq > after_seq AND o.seq <= told',
            'FROM event o
            WHERE o.seq > greatest(after_seq, (SELECT s.events_removed_to FROM store_state s)) AND o.seq <= told
            UNION ALL
            SELECT o.seq, o.at_ms, o.namespace, o.key, o.fact FROM event_old o
            WHERE o.namespace = of_namespace AND o.seq > after_seq AND o.seq <= told'],
        ARRAY['events_read', 'FROM job_events(after_seq, told) AS j)', '
            FROM job_events(after_seq, told, (SELECT s.events_removed_to FROM store_state s)) AS j)'],
        ARRAY['lease_sweep', '    SELECT max(seq) INTO newest FROM event;
    -- In larger steps than every time, for the row is everybody''s.
    IF newest - limit_events() > (SELECT events_removed_to + 1000 FROM store_state) THEN
        -- What was removed before is not read again. Every ten minutes it is, for what was committed late.
        low := (SELECT s.events_removed_to FROM store_state s, tidied t
            WHERE t.part = ''events'' AND t.full_at > clock_timestamp() - interval ''10 minutes'');
        read := pg_stat_get_xact_tuples_returned(''event_pkey''::regclass);
        DELETE FROM event e WHERE e.seq > coalesce(low, 0) AND e.seq <= newest - limit_events()
            AND NOT coalesce((SELECT range_agg(int8range(g.first_seq, g.last_seq, ''[]'')) FROM event_gap g) @> e.seq, false);
        IF low IS NULL THEN
            PERFORM looked_through(''events'', now, pg_stat_get_xact_tuples_returned(''event_pkey''::regclass) - read);
        END IF;
        UPDATE store_state SET events_removed_to = newest - limit_events();
    END IF;', '    PERFORM events_remove();'],
        ARRAY['lease_sweep', '    newest bigint;
', ''],
        ARRAY['job_tidy', '    SELECT max(last_seq) INTO v_last FROM job_event;
    v_low := tidied_low(''events of jobs'');
    DELETE FROM job_event e WHERE e.last_seq > v_low AND e.last_seq <= v_last - limit_events()
        AND NOT coalesce((SELECT range_agg(int8range(g.first_seq, g.last_seq, ''[]'')) FROM event_gap g) @> e.last_seq, false);
    GET DIAGNOSTICS v_at = ROW_COUNT;
    PERFORM tidied_to(''events of jobs'', v_low, v_last - limit_events(), v_at);
', ''],
        ARRAY['job_tidy', '    v_last   bigint;
', '']];
    changed text;
    made    text;
BEGIN
    FOR i IN 1 .. array_length(c_changes, 1) LOOP
        IF c_changes[i][1] IS DISTINCT FROM c_changes[i - 1][1] THEN
            -- Of two with one name it says which.
            changed := pg_get_functiondef(CASE WHEN c_changes[i][1] ~ '[)]' THEN c_changes[i][1]::regprocedure ELSE c_changes[i][1]::regproc END);
        END IF;
        made := changed;
        changed := replace(made, c_changes[i][2], c_changes[i][3]);
        IF changed = made THEN
            RAISE EXCEPTION '% is not the function that this migration knows: %', c_changes[i][1], c_changes[i][2];
        END IF;
        IF c_changes[i][1] IS DISTINCT FROM c_changes[i + 1][1] THEN
            IF c_changes[i][1] = 'lease_advance' THEN
                -- It answers more than before, which only a new function can.
                DROP FUNCTION lease_advance(bigint, text, bigint);
            END IF;
            EXECUTE changed;
        END IF;
    END LOOP;
END $$;
DROP FUNCTION job_closed_ms();

-- As all functions before are planned.
DO $$
DECLARE
    ours regprocedure;
BEGIN
    FOREACH ours IN ARRAY ARRAY['store_closed_ms(text)', 'store_open_now()', 'job_events(bigint, bigint, bigint)', 'events_oldest(text)',
        'events_remove()']::regprocedure[]
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET jit = off SET max_parallel_workers_per_gather = 0', ours);
    END LOOP;
END
$$;
