-- What workers and those who give them work ask, each in one call. What these functions do not take, they leave untouched
-- and say so: the caller then decides it by the rules of the core, in a transaction of its own.

-- Tells whoever is first in the lines of these queues that something has happened there. Nobody waits: nobody is told.
CREATE FUNCTION job_stir(p_namespace text, p_queues text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT tell('line/' || f.hash) FROM (
        SELECT DISTINCT w.hash FROM unnest(p_queues) AS n(name) CROSS JOIN LATERAL (
            SELECT o.hash FROM job_waiter o
            WHERE o.namespace = p_namespace AND o.queue = n.name AND o.beat > clock_timestamp() - interval '5 seconds'
                AND o.until_ms > now_ms()
            ORDER BY o.since_ms, o.place LIMIT 1) w) f
$$;

-- Tells those who wait for the end of these jobs.
CREATE FUNCTION job_tell_end(p_ids uuid[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT tell('job/' || a.id) FROM job_awaited a WHERE a.id = ANY(p_ids)
$$;

-- Whether a job has come to its end, or is gone.
CREATE FUNCTION job_is_over(p_id uuid) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT NOT EXISTS (
        SELECT FROM job_body b LEFT JOIN job_settled s ON s.arrival = b.arrival AND s.state IN (3, 4, 5)
        WHERE b.id = p_id AND s.arrival IS NULL)
$$;

-- Puts jobs into their queues, and returns the numbers (from 1) of those that are new. One whose id is being enqueued at the same
-- moment by somebody else is a unique violation: tried again, it is found.
CREATE FUNCTION job_enqueue(
    p_namespace text, p_ids uuid[], p_queues text[], p_priorities smallint[], p_kinds text[], p_payloads text[],
    p_terms jsonb[], p_extras jsonb[], p_at_ms bigint[], p_after_ms bigint[], p_urgent boolean[],
    p_keys uuid[], p_digests uuid[], p_windows bigint[]
) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now   bigint;
    v_won   uuid[];
BEGIN
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
        INSERT INTO event (seq, at_ms, namespace, key, fact)
            SELECT nextval('event_seq'), v_now, p_namespace, 'job/' || n.id, jsonb_build_object('job_enqueued', jsonb_build_object(
                'queue', n.name, 'kind', n.kind, 'state', CASE WHEN n.due_ms > v_now THEN 'scheduled' ELSE 'queued' END))
            FROM new n
    )
    SELECT n.nth FROM new n;
    PERFORM job_stir(p_namespace, p_queues);
END $$;

-- Moves scheduled jobs of these lanes whose time has come to their places among the ready ones. How many were moved.
CREATE FUNCTION job_wake(p_lanes integer[], p_most integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH due AS (
        DELETE FROM job_scheduled WHERE ctid = ANY(array(
            SELECT s.ctid FROM job_scheduled s WHERE s.lane = ANY(p_lanes) AND s.due_ms <= now_ms()
            ORDER BY s.due_ms LIMIT p_most FOR UPDATE SKIP LOCKED))
        RETURNING lane, arrival, bytes, past, urgent
    ), moved AS (
        INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
            SELECT lane, arrival, bytes, true, past, urgent FROM due
        RETURNING 1
    )
    SELECT count(*) FROM moved;
$$;

-- For how long nobody is given anything: somebody may hold a job of whom this store has forgotten.
CREATE FUNCTION job_closed_ms() RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT greatest(closed_until_ms - now_ms(), 0) FROM store_state
$$;

-- The longest ttl that was ever given, for `store advance`. Hardly ever a write.
CREATE FUNCTION job_note_ttl(p_ttl_ms bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE store_state SET longest_ttl_ms = p_ttl_ms WHERE longest_ttl_ms < p_ttl_ms
$$;

-- Takes jobs. Rows without an id tell the moment, in queue what became of the claim itself (0: it was served; 1: it has these
-- jobs already; -1: the store is
-- closed for so long; -2: its time in line is up; -3: it does not stand in line any more; -4: others come first where there is
-- something), and last the turns of its queues.
--
-- p_heads are positions up to which the asker found a lane's jobs taken a moment ago: below them only jobs that came back
-- are looked for, so that a claim does not wade through what the server has not cleared away yet. p_pushes: past everybody in line.
CREATE FUNCTION job_claim(
    p_namespace text, p_queues text[], p_weights integer[], p_turns bigint[], p_limit integer,
    p_hash uuid, p_owner text, p_ttl_ms bigint, p_lanes integer[], p_heads bigint[], p_sending uuid, p_pushes boolean
) RETURNS TABLE (
    id uuid, token bigint, queue integer, lane integer, arrival bigint, priority smallint, kind text, payload text,
    attempt bigint, remaining_ms bigint, terms jsonb, extra jsonb, urgent boolean, failures integer, crashes integer,
    checkpoint bytea, effects jsonb
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    c_bytes_max CONSTANT bigint := 8388608; -- beyond the first job
    c_stride    CONSTANT bigint := 1048576;
    v_now     bigint;
    v_closed  bigint;
    v_until   bigint;
    v_since   bigint;
    v_place   bigint;
    v_nth     integer[];  -- by lane: which of the queues
    v_lane    integer[];
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
    a_key     bigint[] := '{}';
    a_past    boolean[] := '{}';
    a_urgent  boolean[] := '{}';
BEGIN
    -- The same claim sent twice waits for itself.
    PERFORM pg_advisory_xact_lock(hashtextextended(p_hash::text, 7461));
    v_now := now_ms();
    v_closed := job_closed_ms();
    PERFORM job_note_ttl(p_ttl_ms);
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
        array_agg(s.head ORDER BY s.nth, s.priority DESC) FILTER (WHERE NOT s.behind),
        array_agg(s.lane) FILTER (WHERE s.behind)
        INTO v_nth, v_lane, v_head, v_behind
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
    RETURN QUERY
    WITH turn AS (
        SELECT t.queue, row_number() OVER (PARTITION BY t.queue ORDER BY t.nth) AS rank, t.nth
        FROM unnest(v_order) WITH ORDINALITY AS t(queue, nth)
    ), picked AS (
        SELECT a.nth, a.arrival, a.past, a.urgent, coalesce(turn.nth, a.pos) AS pos
        FROM (SELECT u.*, row_number() OVER (PARTITION BY u.nth ORDER BY u.pos) AS rank
            FROM unnest(a_nth, a_key, a_past, a_urgent) WITH ORDINALITY AS u(nth, arrival, past, urgent, pos)) a
        LEFT JOIN turn ON turn.queue = a.nth AND turn.rank = a.rank
        ORDER BY 5
    ), job AS MATERIALIZED (
        SELECT p.pos, p.nth, p.urgent, p.past, b.*, nextval('job_token') AS token, coalesce(h.attempts, 0) + 1 AS attempt,
            coalesce(h.failures, 0) AS failures, coalesce(h.crashes, 0) AS crashes,
            least(p_ttl_ms, coalesce((b.terms->>'attempt_ms')::bigint, p_ttl_ms)) AS lasts_ms
        FROM picked p
        JOIN job_body b ON b.arrival = p.arrival
        LEFT JOIN job_past h ON p.past AND h.arrival = p.arrival
        ORDER BY p.pos
    ), ran AS (
        INSERT INTO job_running
            (id, arrival, lane, token, hash, owner, ttl_ms, since_ms, deadline_ms, look_ms, limit_ms, plain)
            SELECT j.id, j.arrival, j.lane, j.token, p_hash, p_owner, p_ttl_ms, v_now, v_now + j.lasts_ms, v_now + j.lasts_ms,
                v_now + (j.terms->>'attempt_ms')::bigint, j.extra->'undo_of' IS NULL
            FROM job j
    ), told AS (
        INSERT INTO event (seq, at_ms, namespace, key, fact)
            SELECT nextval('event_seq'), v_now, p_namespace, 'job/' || j.id, jsonb_build_object('job_claimed',
                jsonb_build_object('token', j.token, 'owner', p_owner, 'attempt', j.attempt))
            FROM job j
    )
    SELECT j.id, j.token, j.nth, j.lane, j.arrival, l.priority, j.kind, j.payload, j.attempt, j.lasts_ms, j.terms, j.extra, j.urgent,
        j.failures, j.crashes,
        CASE WHEN j.past THEN (SELECT n.bytes FROM job_note n WHERE n.arrival = j.arrival AND n.what = 0) END,
        CASE WHEN j.past THEN (SELECT jsonb_agg(e.effect) FROM job_effect e WHERE e.arrival = j.arrival) END
    FROM job j JOIN job_lane l ON l.lane = j.lane
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

-- After a jump of the clock, what was held then does not run out for one ttl: see `lease_suspend`.
CREATE FUNCTION job_honour_suspension() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now  bigint := now_ms();
    v_from bigint := (SELECT suspended_from_ms FROM store_state);
BEGIN
    IF v_from > 0 AND v_from <= v_now AND v_now < v_from + 86400000 THEN
        UPDATE job_running r SET deadline_ms = least(v_from + r.ttl_ms, r.limit_ms), look_ms = least(v_from + r.ttl_ms, r.limit_ms)
            WHERE r.id IN (SELECT o.id FROM job_running o
                WHERE o.deadline_ms - o.ttl_ms < v_from AND o.deadline_ms < least(v_from + o.ttl_ms, o.limit_ms)
                ORDER BY o.id FOR UPDATE SKIP LOCKED);
    END IF;
END $$;

-- Renews claims that are live and of which nobody asks anything; returns the numbers (from 1) of those, and what remains.
CREATE FUNCTION job_renew(p_namespace text, p_ids uuid[], p_hashes uuid[], p_tokens bigint[])
RETURNS TABLE (nth bigint, remaining_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now bigint;
BEGIN
    PERFORM job_honour_suspension();
    PERFORM FROM job_running r WHERE r.id = ANY(p_ids) ORDER BY r.id FOR NO KEY UPDATE;
    v_now := now_ms();
    RETURN QUERY
    -- Named twice in one call, an attempt is renewed for one of its names here, and for the others by the rules.
    WITH kept AS (
        UPDATE job_running r
            SET deadline_ms = CASE WHEN r.deadline_ms > v_now + r.ttl_ms THEN v_now + r.ttl_ms
                ELSE greatest(r.deadline_ms, v_now + least(r.ttl_ms, coalesce(r.limit_ms - v_now, r.ttl_ms))) END
            FROM unnest(p_ids, p_hashes, p_tokens) WITH ORDINALITY AS s(id, hash, token, nth), job_lane l, job_queue q
            WHERE r.id = s.id AND r.hash = s.hash AND r.token = s.token AND r.deadline_ms > v_now AND r.asked IS NULL
                AND l.lane = r.lane AND q.number = l.queue AND q.namespace = p_namespace
            RETURNING s.nth, r.deadline_ms - v_now AS remaining_ms
    )
    SELECT k.nth, k.remaining_ms FROM kept k;
END $$;

-- Completes jobs whose end concerns no other job, under claims that are live, or have run out without anybody noting it; returns
-- the ids of those, and whether it was late.
CREATE FUNCTION job_complete(p_namespace text, p_ids uuid[], p_hashes uuid[], p_tokens bigint[], p_results text[])
RETURNS TABLE (id uuid, late boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_now  bigint;
    v_done uuid[];
    v_late boolean[];
BEGIN
    PERFORM FROM job_running r WHERE r.id = ANY(p_ids) ORDER BY r.id FOR UPDATE;
    v_now := now_ms();
    WITH gone AS (
        DELETE FROM job_running r
            USING unnest(p_ids, p_hashes, p_tokens, p_results) AS s(id, hash, token, result), job_lane l, job_queue q
            WHERE r.id = s.id AND r.hash = s.hash AND r.token = s.token AND r.plain
                AND l.lane = r.lane AND q.number = l.queue AND q.namespace = p_namespace
            RETURNING r.id, r.arrival, r.lane, r.token, r.hash, r.owner, r.since_ms, r.deadline_ms <= v_now AS late, s.result
    ), settled AS (
        INSERT INTO job_settled (arrival, lane, state, since_ms, keeps, token, hash, owner, began_ms, late, result)
            SELECT g.arrival, g.lane, 3, v_now, false, g.token, g.hash, g.owner, g.since_ms, g.late, g.result
            FROM gone g ORDER BY g.arrival
    ), told AS (
        INSERT INTO event (seq, at_ms, namespace, key, fact)
            SELECT nextval('event_seq'), v_now, p_namespace, 'job/' || g.id, jsonb_build_object('job_attempt_ended',
                jsonb_build_object('token', g.token, 'owner', g.owner,
                    'how', CASE WHEN g.late THEN 'completed_late' ELSE 'completed' END, 'state', 'completed',
                    'again_in_ms', NULL))
            FROM gone g
    )
    SELECT array_agg(g.id), array_agg(g.late) INTO v_done, v_late FROM gone g;
    IF v_done IS NOT NULL THEN
        PERFORM job_tell_end(v_done);
    END IF;
    RETURN QUERY SELECT d.id, d.late FROM unnest(v_done, v_late) AS d(id, late);
END $$;
