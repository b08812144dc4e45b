-- The usual life of a job with fewer steps: what was two passes over the same rows is one, events are told by the call, and
-- completed jobs need not be kept.

-- Its completion leaves nothing to be told: no unique key that would name it, no earlier attempt.
ALTER TABLE job_running ADD COLUMN light boolean NOT NULL DEFAULT false;

-- Completions that left nothing else behind, for as long as the same word may come again.
CREATE TABLE job_dropped (
    at_ms  bigint NOT NULL,
    hash   uuid NOT NULL,
    tokens bigint[] NOT NULL
);
CREATE INDEX job_dropped_at ON job_dropped (at_ms);
CREATE INDEX job_dropped_hash ON job_dropped (hash);

-- Tells whoever is first in the lines of these queues that something has happened there. Nobody waits, as nearly always while
-- there is work: nobody is told.
CREATE OR REPLACE FUNCTION job_stir(p_namespace text, p_queues text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF EXISTS (SELECT FROM job_waiter w WHERE w.namespace = p_namespace AND w.queue = ANY(p_queues)) THEN
        PERFORM tell('line/' || f.hash) FROM (
            SELECT DISTINCT w.hash FROM (SELECT DISTINCT name FROM unnest(p_queues) AS n(name)) n CROSS JOIN LATERAL (
                SELECT o.hash FROM job_waiter o
                WHERE o.namespace = p_namespace AND o.queue = n.name AND o.beat > clock_timestamp() - interval '5 seconds'
                    AND o.until_ms > now_ms()
                ORDER BY o.since_ms, o.place LIMIT 1) w) f;
    END IF;
END $$;

-- Tells those who wait for the end of these jobs.
CREATE OR REPLACE FUNCTION job_tell_end(p_ids uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF EXISTS (SELECT FROM job_awaited) THEN
        PERFORM tell('job/' || a.id) FROM job_awaited a WHERE a.id = ANY(p_ids);
    END IF;
END $$;

-- Puts jobs into their queues, and returns the numbers (from 1) of those that are new. One whose id is being enqueued at the same
-- moment by somebody else is a unique violation: tried again, it is found.
CREATE OR REPLACE FUNCTION job_enqueue(
    p_namespace text, p_ids uuid[], p_queues text[], p_priorities smallint[], p_kinds text[], p_payloads text[],
    p_terms jsonb[], p_extras jsonb[], p_at_ms bigint[], p_after_ms bigint[], p_urgent boolean[],
    p_keys uuid[], p_digests uuid[], p_windows bigint[]
) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now     bigint;
    v_won     uuid[];
    v_lane    integer;
    v_mode    smallint;
    v_due     bigint;
    v_arrival bigint;
BEGIN
    IF cardinality(p_ids) = 1 AND p_keys IS NULL THEN
        -- The same as below for the usual one, without what it takes to do it for many.
        SELECT l.lane, q.mode INTO v_lane, v_mode FROM job_queue q JOIN job_lane l ON l.queue = q.number
            WHERE q.namespace = p_namespace AND q.name = p_queues[1] AND l.priority = p_priorities[1];
        IF v_mode <> 2 THEN
            v_now := now_ms();
            INSERT INTO job_body (arrival, id, lane, enqueued_ms, kind, payload, terms, extra)
                VALUES (nextval('job_arrival'), p_ids[1], v_lane, v_now, p_kinds[1], p_payloads[1], p_terms[1], p_extras[1])
                ON CONFLICT (id) DO NOTHING RETURNING arrival INTO v_arrival;
            IF v_arrival IS NULL THEN
                RETURN;
            END IF;
            v_due := coalesce(p_at_ms[1], v_now + p_after_ms[1], 0);
            IF v_due <= v_now THEN
                INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
                    VALUES (v_lane, v_arrival, octet_length(p_payloads[1]), false, false, p_urgent[1]);
            ELSE
                INSERT INTO job_scheduled (arrival, lane, due_ms, bytes, past, urgent)
                    VALUES (v_arrival, v_lane, v_due, octet_length(p_payloads[1]), false, p_urgent[1]);
            END IF;
            INSERT INTO job_event (last_seq, at_ms, namespace, what, seqs, ids, names, kinds, flags)
                SELECT e, v_now, p_namespace, 1, array[e], p_ids, p_queues, p_kinds, array[v_due > v_now]
                FROM nextval('event_seq') AS e;
            IF EXISTS (SELECT FROM job_waiter w WHERE w.namespace = p_namespace AND w.queue = p_queues[1]) THEN
                PERFORM job_stir(p_namespace, p_queues);
            END IF;
            RETURN NEXT 1::bigint;
            RETURN;
        END IF;
    END IF;
    IF EXISTS (
        SELECT FROM unnest(p_queues, p_priorities) AS n(name, priority)
        LEFT JOIN job_queue q ON q.namespace = p_namespace AND q.name = n.name
        LEFT JOIN job_lane l ON l.queue = q.number AND l.priority = n.priority
        WHERE l.lane IS NULL
    ) THEN
        INSERT INTO job_queue (namespace, name)
            SELECT DISTINCT p_namespace, n.name FROM unnest(p_queues) AS n(name)
            WHERE (SELECT count(*) FROM job_queue) < 100000
            ORDER BY 2
            ON CONFLICT DO NOTHING;
        INSERT INTO job_lane (queue, priority)
            SELECT DISTINCT q.number, n.priority FROM unnest(p_queues, p_priorities) AS n(name, priority)
            JOIN job_queue q ON q.namespace = p_namespace AND q.name = n.name
            ORDER BY 1, 2
            ON CONFLICT DO NOTHING;
    END IF;
    -- As `next_event` has it: first the number of the transaction, then those of its events.
    PERFORM pg_current_xact_id();
    v_now := now_ms();
    IF p_keys IS NOT NULL THEN
        -- A job with a unique key is made only by whoever got the key; of two in one call, by the first.
        WITH won AS (
            INSERT INTO job_unique AS u (namespace, key, job, payload, until_ms)
                SELECT DISTINCT ON (n.key) p_namespace, n.key, n.id, n.digest, v_now + n.span
                FROM unnest(p_ids, p_queues, p_keys, p_digests, p_windows)
                    WITH ORDINALITY AS n(id, name, key, digest, span, nth)
                JOIN job_queue q ON q.namespace = p_namespace AND q.name = n.name AND q.mode <> 2
                WHERE n.key IS NOT NULL AND NOT EXISTS (SELECT FROM job_body b WHERE b.id = n.id)
                ORDER BY n.key, n.nth
                ON CONFLICT (namespace, key) DO UPDATE SET job = excluded.job, payload = excluded.payload,
                    until_ms = excluded.until_ms
                    WHERE u.until_ms <= v_now AND job_is_over(u.job)
                RETURNING job
        )
        SELECT coalesce(array_agg(job), '{}') INTO v_won FROM won;
    END IF;
    RETURN QUERY
    WITH fresh AS (
        -- The same id twice in one call: the first is the one.
        SELECT DISTINCT ON (n.id) n.*, l.lane, coalesce(n.at_ms, v_now + n.after_ms, 0) AS due_ms
        FROM unnest(p_ids, p_queues, p_priorities, p_kinds, p_payloads, p_terms, p_extras, p_at_ms, p_after_ms, p_urgent, p_keys)
            WITH ORDINALITY AS n(id, name, priority, kind, payload, terms, extra, at_ms, after_ms, urgent, key, nth)
        JOIN job_queue q ON q.namespace = p_namespace AND q.name = n.name AND q.mode <> 2
        JOIN job_lane l ON l.queue = q.number AND l.priority = n.priority
        WHERE (n.key IS NULL OR n.id = ANY(v_won)) AND NOT EXISTS (SELECT FROM job_body b WHERE b.id = n.id)
        ORDER BY n.id, n.nth
    ), new AS MATERIALIZED (
        SELECT f.*, nextval('job_arrival') AS arrival FROM (SELECT * FROM fresh ORDER BY nth) f
    ), body AS (
        INSERT INTO job_body (arrival, id, lane, enqueued_ms, kind, payload, terms, extra)
            SELECT n.arrival, n.id, n.lane, v_now, n.kind, n.payload, n.terms, n.extra FROM new n
    ), ready AS (
        INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
            SELECT n.lane, n.arrival, octet_length(n.payload), false, false, n.urgent FROM new n WHERE n.due_ms <= v_now
    ), later AS (
        INSERT INTO job_scheduled (arrival, lane, due_ms, bytes, past, urgent)
            SELECT n.arrival, n.lane, n.due_ms, octet_length(n.payload), false, n.urgent FROM new n WHERE n.due_ms > v_now
    ), told AS (
        INSERT INTO job_event (last_seq, at_ms, namespace, what, seqs, ids, names, kinds, flags)
            SELECT max(e.seq), v_now, p_namespace, 1, array_agg(e.seq), array_agg(e.id), job_same(array_agg(e.name)),
                job_same(array_agg(e.kind)), CASE WHEN bool_or(e.later) THEN array_agg(e.later) END
            FROM (SELECT nextval('event_seq') AS seq, n.id, n.name, n.kind, n.due_ms > v_now AS later FROM new n OFFSET 0) e
            HAVING count(*) > 0
    )
    SELECT n.nth FROM new n;
    PERFORM job_stir(p_namespace, p_queues);
END $$;

-- Takes jobs. Rows without an id tell the moment, in queue what became of the claim itself (0: it was served; 1: it has these
-- jobs already; -1: the store is
-- closed for so long; -2: its time in line is up; -3: it does not stand in line any more; -4: others come first where there is
-- something), and last the turns of its queues.
--
-- p_heads are positions up to which the asker found a lane's jobs taken a moment ago: below them only jobs that came back
-- are looked for, so that a claim does not wade through what the server has not cleared away yet. p_pushes: past everybody in line.
CREATE OR REPLACE FUNCTION job_claim(
    p_namespace text, p_queues text[], p_weights integer[], p_turns bigint[], p_limit integer,
    p_hash uuid, p_owner text, p_ttl_ms bigint, p_lanes integer[], p_heads bigint[], p_sending uuid, p_pushes boolean
) RETURNS TABLE (
    id uuid, token bigint, queue integer, lane integer, arrival bigint, priority smallint, kind text, payload text,
    attempt bigint, remaining_ms bigint, terms jsonb, extra jsonb, urgent boolean, failures integer, crashes integer,
    checkpoint bytea, effects jsonb
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    c_bytes_max CONSTANT bigint := 8388608; -- beyond the first job
    c_stride    CONSTANT bigint := 1048576;
    v_now     bigint;
    v_closed  bigint;
    v_longer  boolean;
    v_until   bigint;
    v_since   bigint;
    v_place   bigint;
    v_nth     integer[];  -- by lane: which of the queues
    v_lane    integer[];
    v_rank    smallint[]; -- by lane: its priority
    v_head    bigint[];
    v_room    integer[];  -- by queue: how many to take from it
    v_turns   bigint[] := p_turns;
    v_clock   bigint := 0;
    v_pick    integer;
    v_order   integer[] := '{}'; -- the queues in the order of their turns
    v_behind  integer[];
    v_woken   bigint := 0;
    v_bytes   bigint := 0;
    v_ctids   tid[];
    v_sizes   integer[];
    v_keys    bigint[];
    v_past    boolean[];
    v_urgent  boolean[];
    v_got     integer;
    v_most    integer;
    a_nth     integer[] := '{}';
    a_rank    smallint[] := '{}';
    a_pos     bigint[];
    a_key     bigint[] := '{}';
    a_past    boolean[] := '{}';
    a_urgent  boolean[] := '{}';
BEGIN
    -- The same claim sent twice waits for itself.
    PERFORM pg_advisory_xact_lock(hashtextextended(p_hash::text, 7461));
    v_now := now_ms();
    SELECT greatest(o.closed_until_ms - v_now, 0), o.longest_ttl_ms < p_ttl_ms INTO v_closed, v_longer FROM store_state o;
    IF v_longer THEN
        PERFORM job_note_ttl(p_ttl_ms);
    END IF;
    IF v_closed > 0 THEN
        RETURN QUERY SELECT NULL::uuid, v_now, -1, NULL::integer, NULL::bigint, NULL::smallint, NULL::text, NULL::text, NULL::bigint,
            v_closed, NULL::jsonb, NULL::jsonb, false, 0, 0, NULL::bytea, NULL::jsonb;
        RETURN;
    END IF;
    RETURN QUERY SELECT NULL::uuid, v_now, 0, NULL::integer, NULL::bigint, NULL::smallint, NULL::text, NULL::text, NULL::bigint,
        0::bigint, NULL::jsonb, NULL::jsonb, false, 0, 0, NULL::bytea, NULL::jsonb;
    IF EXISTS (
        SELECT FROM job_running r JOIN job_lane l ON l.lane = r.lane JOIN job_queue q ON q.number = l.queue
        WHERE r.hash = p_hash AND r.deadline_ms > v_now AND q.namespace = p_namespace
    ) THEN
        RETURN QUERY
            SELECT r.id, r.token, array_position(p_queues, q.name), r.lane, r.arrival, l.priority, b.kind, b.payload,
                coalesce(p.attempts, 0) + 1, r.deadline_ms - v_now, b.terms, b.extra, false,
                coalesce(p.failures, 0), coalesce(p.crashes, 0),
                (SELECT n.bytes FROM job_note n WHERE n.arrival = r.arrival AND n.what = 0),
                (SELECT jsonb_agg(e.effect) FROM job_effect e WHERE e.arrival = r.arrival)
            FROM job_running r
            JOIN job_body b ON b.arrival = r.arrival
            JOIN job_lane l ON l.lane = r.lane
            JOIN job_queue q ON q.number = l.queue AND q.namespace = p_namespace
            LEFT JOIN job_past p ON p.arrival = r.arrival
            WHERE r.hash = p_hash AND r.deadline_ms > v_now
            ORDER BY r.token;
        RETURN QUERY SELECT NULL::uuid, v_now, 1, NULL::integer, NULL::bigint, NULL::smallint, NULL::text, NULL::text,
            NULL::bigint, 0::bigint, NULL::jsonb, NULL::jsonb, false, 0, 0, NULL::bytea, NULL::jsonb;
        RETURN;
    END IF;
    IF p_sending IS NOT NULL THEN
        -- Whoever stands in line is given nothing once its time is up, or once a later sending has taken its place.
        SELECT max(w.until_ms), min(w.since_ms), min(w.place) INTO v_until, v_since, v_place FROM job_waiter w
            WHERE w.namespace = p_namespace AND w.queue = ANY(p_queues) AND w.hash = p_hash AND w.sending = p_sending;
        IF v_until IS NULL OR v_until <= v_now THEN
            RETURN QUERY SELECT NULL::uuid, v_now, CASE WHEN v_until IS NULL THEN -3 ELSE -2 END, NULL::integer, NULL::bigint,
                NULL::smallint, NULL::text, NULL::text, NULL::bigint, 0::bigint, NULL::jsonb, NULL::jsonb, false, 0, 0,
                NULL::bytea, NULL::jsonb;
            RETURN;
        END IF;
    END IF;
    SELECT array_agg(s.nth ORDER BY s.nth, s.priority DESC) FILTER (WHERE NOT s.behind),
        array_agg(s.lane ORDER BY s.nth, s.priority DESC) FILTER (WHERE NOT s.behind),
        array_agg(s.priority ORDER BY s.nth, s.priority DESC) FILTER (WHERE NOT s.behind),
        array_agg(s.head ORDER BY s.nth, s.priority DESC) FILTER (WHERE NOT s.behind),
        array_agg(s.lane) FILTER (WHERE s.behind)
        INTO v_nth, v_lane, v_rank, v_head, v_behind
        FROM (
            SELECT n.nth::integer, l.lane, l.priority, coalesce(h.head, 0) AS head, EXISTS (
                SELECT FROM job_waiter w
                WHERE w.namespace = p_namespace AND w.queue = n.name AND w.hash <> p_hash AND w.until_ms > v_now
                    AND w.beat > clock_timestamp() - interval '5 seconds'
                    AND (v_place IS NULL OR (w.since_ms, w.place) < (v_since, v_place))) AND NOT p_pushes AS behind
            FROM unnest(p_queues) WITH ORDINALITY AS n(name, nth)
            JOIN job_queue q ON q.namespace = p_namespace AND q.name = n.name AND q.mode <> 1
            JOIN job_lane l ON l.queue = q.number
            LEFT JOIN unnest(p_lanes, p_heads) AS h(lane, head) ON h.lane = l.lane
        ) s;
    IF v_behind IS NOT NULL AND (EXISTS (SELECT FROM job_ready r WHERE r.lane = ANY(v_behind))
        OR EXISTS (SELECT FROM job_scheduled s WHERE s.lane = ANY(v_behind) AND s.due_ms <= v_now)) THEN
        RETURN QUERY SELECT NULL::uuid, v_now, -4, NULL::integer, NULL::bigint, NULL::smallint, NULL::text, NULL::text,
            NULL::bigint, 0::bigint, NULL::jsonb, NULL::jsonb, false, 0, 0, NULL::bytea, NULL::jsonb;
    END IF;
    IF v_lane IS NULL THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM job_scheduled s WHERE s.lane = ANY(v_lane) AND s.due_ms <= v_now) THEN
        v_woken := job_wake(v_lane, greatest(p_limit, 1000));
    END IF;
    v_room := array_fill(p_limit, array[cardinality(p_queues)]);
    IF cardinality(p_queues) > 1 THEN
        -- Whose turn it is: the queue whose own clock is furthest behind; a turn moves it on by the less the more it weighs.
        v_room := array_fill(0, array[cardinality(p_queues)]);
        DECLARE
            v_offers integer[] := v_room;
            v_left   integer;
        BEGIN
            FOR i IN 1 .. cardinality(v_lane) LOOP
                v_left := p_limit - v_offers[v_nth[i]];
                IF v_left > 0 THEN
                    v_offers[v_nth[i]] := v_offers[v_nth[i]]
                        + (SELECT count(*) FROM (SELECT FROM job_ready r
                            WHERE r.lane = v_lane[i] AND r.arrival > v_head[i] LIMIT v_left) s)
                        + CASE WHEN v_head[i] = 0 THEN 0 ELSE (SELECT count(*) FROM (SELECT FROM job_ready r
                            WHERE r.lane = v_lane[i] AND r.back AND r.arrival <= v_head[i] LIMIT v_left) s) END;
                END IF;
            END LOOP;
            FOR i IN 1 .. p_limit LOOP
                v_pick := NULL;
                FOR j IN 1 .. cardinality(p_queues) LOOP
                    IF v_offers[j] > v_room[j]
                        AND (v_pick IS NULL OR greatest(v_turns[j], v_clock) < greatest(v_turns[v_pick], v_clock)) THEN
                        v_pick := j;
                    END IF;
                END LOOP;
                EXIT WHEN v_pick IS NULL;
                v_clock := greatest(v_turns[v_pick], v_clock);
                v_turns[v_pick] := v_clock + c_stride / least(greatest(p_weights[v_pick], 1), c_stride);
                v_room[v_pick] := v_room[v_pick] + 1;
                v_order := v_order || v_pick;
            END LOOP;
        END;
    END IF;
    <<lanes>>
    FOR i IN 1 .. cardinality(v_lane) LOOP
        FOR below IN 0 .. 1 LOOP
            v_most := v_room[v_nth[i]];
            CONTINUE lanes WHEN v_most <= 0;
            CONTINUE WHEN below = 0 AND v_head[i] = 0;
            IF below = 0 THEN
                SELECT array_agg(s.ctid), array_agg(s.bytes), array_agg(s.arrival), array_agg(s.past), array_agg(s.urgent)
                    INTO v_ctids, v_sizes, v_keys, v_past, v_urgent
                    FROM (SELECT r.ctid, r.* FROM job_ready r WHERE r.lane = v_lane[i] AND r.back AND r.arrival <= v_head[i]
                        ORDER BY r.arrival LIMIT v_most FOR UPDATE SKIP LOCKED) s;
            ELSE
                SELECT array_agg(s.ctid), array_agg(s.bytes), array_agg(s.arrival), array_agg(s.past), array_agg(s.urgent)
                    INTO v_ctids, v_sizes, v_keys, v_past, v_urgent
                    FROM (SELECT r.ctid, r.* FROM job_ready r WHERE r.lane = v_lane[i] AND r.arrival > v_head[i]
                        ORDER BY r.arrival LIMIT v_most FOR UPDATE SKIP LOCKED) s;
            END IF;
            CONTINUE WHEN v_ctids IS NULL;
            v_got := cardinality(v_ctids);
            IF v_bytes + (SELECT sum(b) FROM unnest(v_sizes) AS b) > c_bytes_max THEN
                v_got := 0;
                FOR k IN 1 .. cardinality(v_sizes) LOOP
                    EXIT WHEN cardinality(a_key) + v_got > 0 AND v_bytes + v_sizes[k] > c_bytes_max;
                    v_bytes := v_bytes + v_sizes[k];
                    v_got := v_got + 1;
                END LOOP;
                v_room := array_fill(0, array[cardinality(p_queues)]);
            ELSE
                v_bytes := v_bytes + (SELECT sum(b) FROM unnest(v_sizes) AS b);
                v_room[v_nth[i]] := v_most - v_got;
            END IF;
            DELETE FROM job_ready r WHERE r.ctid = ANY(v_ctids[1:v_got]);
            a_nth := a_nth || array_fill(v_nth[i], array[v_got]);
            a_rank := a_rank || array_fill(v_rank[i], array[v_got]);
            a_key := a_key || v_keys[1:v_got];
            a_past := a_past || v_past[1:v_got];
            a_urgent := a_urgent || v_urgent[1:v_got];
        END LOOP;
    END LOOP;
    IF cardinality(a_key) = 0 THEN
        IF EXISTS (SELECT FROM job_ready r WHERE r.lane = ANY(v_lane)) THEN
            -- Somebody is about to take it, or to give it back.
            RETURN QUERY SELECT NULL::uuid, v_now, -4, NULL::integer, NULL::bigint, NULL::smallint, NULL::text, NULL::text,
                NULL::bigint, 0::bigint, NULL::jsonb, NULL::jsonb, false, 0, 0, NULL::bytea, NULL::jsonb;
        END IF;
        RETURN;
    END IF;
    -- The jobs are ours: now the moment counts.
    v_now := now_ms();
    IF cardinality(p_queues) > 1 THEN
        -- Queues take turns; within one, first come, first served.
        SELECT array_agg(coalesce(turn.nth, a.pos) ORDER BY a.pos) INTO a_pos
            FROM (SELECT u.*, row_number() OVER (PARTITION BY u.nth ORDER BY u.pos) AS rank
                FROM unnest(a_nth) WITH ORDINALITY AS u(nth, pos)) a
            LEFT JOIN (SELECT t.queue, row_number() OVER (PARTITION BY t.queue ORDER BY t.nth) AS rank, t.nth
                FROM unnest(v_order) WITH ORDINALITY AS t(queue, nth)) turn ON turn.queue = a.nth AND turn.rank = a.rank;
    END IF;
    PERFORM pg_current_xact_id();
    RETURN QUERY
    WITH picked AS (
        SELECT u.nth, u.rank, u.arrival, u.past, u.urgent, coalesce(u.place, u.pos) AS pos
        FROM unnest(a_nth, a_rank, a_key, a_past, a_urgent, a_pos)
            WITH ORDINALITY AS u(nth, rank, arrival, past, urgent, place, pos)
        ORDER BY 6
    ), job AS MATERIALIZED (
        SELECT p.pos, p.nth, p.rank, p.urgent, p.past, b.*, nextval('job_token') AS token,
            coalesce(h.attempts, 0) + 1 AS attempt, coalesce(h.failures, 0) AS failures, coalesce(h.crashes, 0) AS crashes,
            least(p_ttl_ms, coalesce((b.terms->>'attempt_ms')::bigint, p_ttl_ms)) AS lasts_ms
        FROM picked p
        JOIN job_body b ON b.arrival = p.arrival
        LEFT JOIN job_past h ON p.past AND h.arrival = p.arrival
        ORDER BY p.pos
    ), ran AS (
        INSERT INTO job_running
            (id, arrival, lane, token, hash, owner, ttl_ms, since_ms, deadline_ms, look_ms, limit_ms, plain, light)
            SELECT j.id, j.arrival, j.lane, j.token, p_hash, p_owner, p_ttl_ms, v_now, v_now + j.lasts_ms, v_now + j.lasts_ms,
                v_now + (j.terms->>'attempt_ms')::bigint, j.extra->'undo_of' IS NULL,
                NOT j.past AND (j.extra IS NULL OR NOT j.extra ?| array['unique', 'undo_of'])
            FROM job j
    ), told AS (
        INSERT INTO job_event (last_seq, at_ms, namespace, what, seqs, ids, names, tokens, attempts)
            SELECT max(e.seq), v_now, p_namespace, 2, array_agg(e.seq), array_agg(e.id), array[p_owner], array_agg(e.token),
                CASE WHEN max(e.attempt) > 1 THEN array_agg(e.attempt) ELSE '{1}' END
            FROM (SELECT nextval('event_seq') AS seq, j.id, j.token, j.attempt FROM job j OFFSET 0) e
            HAVING count(*) > 0
    )
    SELECT j.id, j.token, j.nth, j.lane, j.arrival, j.rank, j.kind, j.payload, j.attempt, j.lasts_ms, j.terms, j.extra, j.urgent,
        j.failures, j.crashes,
        CASE WHEN j.past THEN (SELECT n.bytes FROM job_note n WHERE n.arrival = j.arrival AND n.what = 0) END,
        CASE WHEN j.past THEN (SELECT jsonb_agg(e.effect) FROM job_effect e WHERE e.arrival = j.arrival) END
    FROM job j
    ORDER BY j.pos;
    IF p_sending IS NOT NULL THEN
        DELETE FROM job_waiter w WHERE w.namespace = p_namespace AND w.queue = ANY(p_queues) AND w.hash = p_hash;
    END IF;
    IF p_sending IS NOT NULL OR v_woken > cardinality(a_key) THEN
        PERFORM job_stir(p_namespace, p_queues);
    END IF;
    RETURN QUERY SELECT NULL::uuid, NULL::bigint, n.nth::integer, NULL::integer, NULL::bigint, NULL::smallint, NULL::text, NULL::text,
        NULL::bigint, n.clock, NULL::jsonb, NULL::jsonb, false, 0, 0, NULL::bytea, NULL::jsonb
        FROM unnest(v_turns || v_clock) WITH ORDINALITY AS n(clock, nth) WHERE cardinality(p_queues) > 1;
END $$;

-- Completes jobs whose end concerns no other job, under claims that are live, or have run out without anybody noting it; returns
-- the ids of those, and whether it was late. p_drops: those of which nothing more is to be told are forgotten at once.
DROP FUNCTION job_complete(text, uuid[], uuid[], bigint[], text[]);
CREATE FUNCTION job_complete(
    p_namespace text, p_ids uuid[], p_hashes uuid[], p_tokens bigint[], p_results text[], p_drops boolean DEFAULT false
) RETURNS TABLE (id uuid, late boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_now     bigint;
    v_id      uuid[];
    v_arrival bigint[];
    v_lane    integer[];
    v_token   bigint[];
    v_hash    uuid[];
    v_owner   text[];
    v_since   bigint[];
    v_until   bigint[];
    v_light   boolean[];
    v_result  text[];
    v_late    boolean[];
    v_drop    boolean[];
    v_bare    boolean;
BEGIN
    -- Taken in the order of the ids, as they are asked for.
    WITH gone AS (
        DELETE FROM job_running r
            USING unnest(p_ids, p_hashes, p_tokens, p_results) AS s(id, hash, token, result), job_lane l, job_queue q
            WHERE r.id = s.id AND r.hash = s.hash AND r.token = s.token AND r.plain
                AND l.lane = r.lane AND q.number = l.queue AND q.namespace = p_namespace
            RETURNING r.id, r.arrival, r.lane, r.token, r.hash, r.owner, r.since_ms, r.deadline_ms, r.light, s.result
    )
    SELECT array_agg(g.id), array_agg(g.arrival), array_agg(g.lane), array_agg(g.token), array_agg(g.hash), array_agg(g.owner),
        array_agg(g.since_ms), array_agg(g.deadline_ms), array_agg(g.light), array_agg(g.result)
        INTO v_id, v_arrival, v_lane, v_token, v_hash, v_owner, v_since, v_until, v_light, v_result
        FROM gone g;
    IF v_id IS NOT NULL THEN
        -- They are ours: now the moment counts.
        v_now := now_ms();
        SELECT array_agg(u <= v_now) INTO v_late FROM unnest(v_until) AS u;
        IF p_drops THEN
            -- What was left behind in the meantime is for people to see. Hardly any job leaves something.
            v_bare := NOT EXISTS (SELECT FROM job_past) AND NOT EXISTS (SELECT FROM job_note) AND NOT EXISTS (SELECT FROM job_effect);
            SELECT array_agg(g.light AND NOT g.late AND NOT EXISTS (SELECT FROM job_awaited a WHERE a.id = g.id)
                AND (v_bare OR NOT EXISTS (SELECT FROM job_past p WHERE p.arrival = g.arrival)
                    AND NOT EXISTS (SELECT FROM job_note n WHERE n.arrival = g.arrival)
                    AND NOT EXISTS (SELECT FROM job_effect e WHERE e.arrival = g.arrival)))
                INTO v_drop
                FROM unnest(v_id, v_arrival, v_light, v_late) AS g(id, arrival, light, late);
            DELETE FROM job_body b USING unnest(v_arrival, v_drop) AS g(arrival, dropped)
                WHERE g.dropped AND b.arrival = g.arrival;
            INSERT INTO job_dropped (at_ms, hash, tokens)
                SELECT v_now, g.hash, array_agg(g.token) FROM unnest(v_hash, v_token, v_drop) AS g(hash, token, dropped)
                WHERE g.dropped GROUP BY g.hash;
        END IF;
        IF v_drop IS NULL OR false = ANY(v_drop) THEN
            INSERT INTO job_settled (arrival, lane, state, since_ms, keeps, token, hash, owner, began_ms, late, result)
                SELECT g.arrival, g.lane, 3, v_now, false, g.token, g.hash, g.owner, g.since_ms, g.late, g.result
                FROM unnest(v_arrival, v_lane, v_token, v_hash, v_owner, v_since, v_late, v_result, v_drop)
                    AS g(arrival, lane, token, hash, owner, since_ms, late, result, dropped)
                WHERE g.dropped IS NOT TRUE
                ORDER BY g.arrival;
        END IF;
        -- As `next_event` has it: first the number of the transaction, then those of its events.
        PERFORM pg_current_xact_id();
        INSERT INTO job_event (last_seq, at_ms, namespace, what, seqs, ids, names, tokens, flags)
            SELECT max(e), v_now, p_namespace, 3, array_agg(e), v_id, job_same(v_owner), v_token,
                CASE WHEN true = ANY(v_late) THEN v_late END
            FROM (SELECT nextval('event_seq') AS e FROM generate_series(1, cardinality(v_id)) OFFSET 0) s;
        PERFORM job_tell_end(v_id);
    END IF;
    IF p_drops AND coalesce(cardinality(v_id), 0) < cardinality(p_ids) THEN
        -- The same word again.
        RETURN QUERY SELECT s.id, false FROM unnest(p_ids, p_hashes, p_tokens) AS s(id, hash, token)
            LEFT JOIN unnest(v_id) AS g(id) ON g.id = s.id
            WHERE g.id IS NULL AND EXISTS (
                SELECT FROM job_dropped d WHERE d.hash = s.hash AND s.token = ANY(d.tokens));
    END IF;
    RETURN QUERY SELECT d.id, d.late FROM unnest(v_id, v_late) AS d(id, late);
END $$;
DO $$
BEGIN
    CALL permit('fencehold_worker', 'execute on function job_complete(text, uuid[], uuid[], bigint[], text[], boolean)');
END $$;

-- What needs no rules: whoever waits is told of jobs whose time has come; finished ones whose time is over are forgotten, and
-- keys and lines that nobody has any more. True: there is more of it.
CREATE OR REPLACE FUNCTION job_tidy(p_kept_ms bigint, p_most integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now    bigint := now_ms();
    v_old    bigint[];
    v_lanes  integer[];
    v_space  record;
    v_last   bigint;
BEGIN
    SELECT array_agg(l.lane) INTO v_lanes FROM job_lane l
        WHERE EXISTS (SELECT FROM job_scheduled s WHERE s.lane = l.lane AND s.due_ms <= v_now);
    FOR v_space IN
        SELECT q.namespace, array_agg(q.name) AS names FROM job_lane l JOIN job_queue q ON q.number = l.queue
        WHERE l.lane = ANY(v_lanes) GROUP BY q.namespace
    LOOP
        -- They are moved by the claim that takes them.
        PERFORM job_stir(v_space.namespace, v_space.names);
    END LOOP;
    SELECT array_agg(s.arrival) INTO v_old FROM (
        SELECT o.arrival FROM job_settled o WHERE NOT o.keeps AND o.since_ms <= v_now - p_kept_ms
        ORDER BY o.since_ms LIMIT p_most FOR UPDATE SKIP LOCKED) s;
    IF v_old IS NOT NULL THEN
        PERFORM job_tell_end(array(SELECT b.id FROM job_body b WHERE b.arrival = ANY(v_old)));
        PERFORM job_forget(v_old);
    END IF;
    -- Some time after they have come free: whoever asks for one before that takes it over.
    DELETE FROM job_unique u WHERE (u.namespace, u.key) IN (
        SELECT o.namespace, o.key FROM job_unique o WHERE o.until_ms <= v_now - 3600000 AND job_is_over(o.job)
        ORDER BY o.until_ms LIMIT p_most FOR UPDATE SKIP LOCKED);
    DELETE FROM job_waiter w WHERE w.beat < clock_timestamp() - interval '1 minute';
    DELETE FROM job_awaited a WHERE a.until < clock_timestamp();
    SELECT max(last_seq) INTO v_last FROM job_event;
    DELETE FROM job_event e WHERE e.last_seq <= v_last - limit_events();
    -- As long as a word is said again and again, and some more.
    DELETE FROM job_dropped d WHERE d.at_ms < v_now - 120000 OR d.at_ms > v_now + 120000;
    RETURN coalesce(cardinality(v_old), 0) >= p_most;
END $$;

