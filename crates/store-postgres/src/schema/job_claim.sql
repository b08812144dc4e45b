-- Jobs: claiming many at once, while others do the same.

-- Moves delayed jobs, which the caller has locked, to their places among the ready ones. The lane of each.
CREATE OR REPLACE FUNCTION job_make_ready(p_ctids tid[]) RETURNS integer[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_lanes integer[];
BEGIN
    WITH due AS (
        DELETE FROM job_scheduled WHERE ctid = ANY(p_ctids) RETURNING lane, arrival, bytes, past, urgent
    ), moved AS (
        INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
            SELECT lane, arrival, bytes, true, past, urgent FROM due ORDER BY lane, arrival
        RETURNING lane
    ), counted AS (
        INSERT INTO job_change (lane, was, becomes, count) SELECT lane, 1, 0, count(*) FROM due GROUP BY lane
    )
    SELECT coalesce(array_agg(lane), '{}') INTO v_lanes FROM moved;
    RETURN v_lanes;
END $$;

-- Moves delayed jobs of these lanes that are due, so many of each at most. How many were moved.
CREATE OR REPLACE FUNCTION job_wake(p_lanes integer[], p_most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now CONSTANT bigint := now_ms();
    v_low CONSTANT bigint := job_due_low(v_now);
BEGIN
    RETURN cardinality(job_make_ready(array(
        SELECT s.ctid FROM unnest(p_lanes) AS n(lane) CROSS JOIN LATERAL (
            SELECT o.ctid FROM job_scheduled o WHERE o.lane = n.lane AND o.due_ms > v_low AND o.due_ms <= v_now
            ORDER BY o.due_ms LIMIT p_most FOR UPDATE SKIP LOCKED) s)));
END $$;

-- The bytes that a job has beyond its payload when it is claimed: its checkpoint, and its effects with their compensations.
CREATE OR REPLACE FUNCTION job_carries(p_arrival bigint) RETURNS integer
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce((SELECT octet_length(n.bytes) FROM job_note n WHERE n.arrival = p_arrival AND n.what = 0), 0)
        + coalesce((SELECT sum(octet_length(e.effect::text)) FROM job_effect e WHERE e.arrival = p_arrival), 0);
END $$;

-- Claims jobs. Rows without an id tell the moment (in token) and what became of the claim itself (in queue: 0, it was served; 1, it has
-- these jobs already; 2, waiting claims are to be notified once this is committed; -1, the store is closed for so long; -2, its time to
-- wait is up; -3, it does not wait any more; -4, others come first where there is something; -5, the longest ttl of the namespace is so
-- long); and last, without a moment, the turns of its queues (in remaining_ms).
--
-- Jobs come in no order of their own: their tokens tell in which they were claimed.
--
-- p_heads are positions up to which the caller found a lane's jobs taken a moment ago: below them only jobs that came back are looked for,
-- so that a claim does not read what the server has not cleared away yet. p_pushes: ahead of all that wait.
--
-- It is bounded by all that it returns (`job_carries`), measured job by job up to the first that has no room.
--
-- A claim of a few jobs from one queue in which no claim waits takes them one by one, each statement about one row: a plan for many costs
-- several times as much to begin. Where that finds none, the rest of the function decides.
CREATE OR REPLACE FUNCTION job_claim(
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
    c_few       CONSTANT integer := 8;
    v_again   boolean;    -- an earlier sending has claimed jobs
    v_now     bigint;
    v_low     bigint;     -- as `job_due_low` has it
    v_back    bigint[];   -- by lane: those that came back are above this
    v_closed  bigint;
    v_longer  boolean;
    v_limited boolean;
    v_longest bigint;     -- ttl of this namespace, where it is limited
    v_until   bigint;
    v_since   bigint;
    v_place   bigint;
    v_nth     integer[];  -- by lane: which of the queues
    v_lane    integer[];
    v_rank    smallint[]; -- by lane: its priority
    v_head    bigint[];
    v_leave   integer[];  -- by lane: how many of its queue are left by claims that came before
    v_room    integer[];  -- by queue: how many to take from it
    v_turns   bigint[] := p_turns;
    v_clock   bigint := 0;
    v_pick    integer;
    v_order   integer[] := '{}'; -- the queues in the order of their turns
    v_behind  integer[];
    v_woken   bigint := 0;
    v_bytes   bigint := 0;
    v_all     bigint;     -- with those that were just found
    v_ctids   tid[];
    v_sizes   integer[];
    v_keys    bigint[];
    v_past    boolean[];
    v_urgent  boolean[];
    v_got     integer;
    v_most    integer;
    a_nth     integer[] := '{}';
    a_rank    smallint[] := '{}';
    a_key     bigint[] := '{}';
    a_past    boolean[] := '{}';
    a_urgent  boolean[] := '{}';
    -- Of a few jobs:
    v_of_lane record;
    v_ready   record;
    v_limit   bigint;
    v_carries bigint := 0;
    v_count   integer;
    v_full    boolean := false;
    a_seq     bigint[] := '{}';
    a_id      uuid[] := '{}';
    a_token   bigint[] := '{}';
    a_attempt bigint[] := '{}';
BEGIN
    -- Before a token is given.
    IF current_setting('transaction_isolation') <> 'read committed' OR (SELECT timeline FROM store_state) IS DISTINCT FROM serving_timeline() THEN
        PERFORM notice_server();
    END IF;
    -- `store advance` is waited for before the clock is read: what it has closed is then seen to be closed. Its first table comes
    -- first here too, so that neither waits for the other in a circle.
    LOCK TABLE job_running IN ROW EXCLUSIVE MODE;
    -- The same claim sent twice waits for itself.
    PERFORM pg_advisory_xact_lock(hashtextextended(p_hash::text, 7461));
    v_again := EXISTS (SELECT FROM job_running r WHERE r.hash = p_hash);
    IF v_again THEN
        -- Noted before they are returned, for from then on they are not only the earlier sending's to return. One that is being returned to
        -- its queue is waited for, and claimed anew. And no remaining time is longer than a ttl, however the clock was set.
        UPDATE job_running r
            SET taken_up = true, deadline_ms = least(r.deadline_ms, now_ms() + r.ttl_ms)
            WHERE r.hash = p_hash AND r.deadline_ms > now_ms() AND (NOT r.taken_up OR r.deadline_ms > now_ms() + r.ttl_ms);
    END IF;
    v_now := now_ms();
    SELECT greatest(coalesce((SELECT c.until_ms FROM namespace_closed c WHERE c.namespace = p_namespace), o.closed_until_ms) - v_now, 0),
        NOT EXISTS (SELECT FROM namespace_ttl t WHERE t.namespace = p_namespace AND t.ttl_ms >= p_ttl_ms),
        EXISTS (SELECT FROM namespace_limit),
        coalesce((SELECT t.low FROM tidied t WHERE t.part = 'due jobs' AND t.low < v_now AND t.at > clock_timestamp() - interval '1 minute'),
            -9223372036854775808)
        INTO v_closed, v_longer, v_limited, v_low FROM store_state o;
    IF v_limited THEN
        SELECT l.ttl_ms INTO v_longest FROM namespace_limits(p_namespace) AS l;
    END IF;
    IF v_longer AND p_ttl_ms <= coalesce(v_longest, p_ttl_ms) THEN
        PERFORM namespace_note_ttl(p_namespace, p_ttl_ms);
    END IF;
    -- The moment of every row that says what became of the claim, until there are jobs.
    token := v_now;
    queue := CASE WHEN v_closed > 0 THEN -1 ELSE 0 END;
    remaining_ms := nullif(v_closed, 0);
    RETURN NEXT;
    IF v_closed > 0 THEN
        RETURN;
    END IF;
    IF v_again THEN
        RETURN QUERY
            SELECT r.id, r.token, array_position(p_queues, q.name), r.lane, r.arrival, l.priority, b.kind, b.payload,
                coalesce(p.attempts, 0) + 1, r.deadline_ms - v_now, b.terms, b.extra, false,
                coalesce(p.failures, 0), coalesce(p.crashes, 0),
                (SELECT n.bytes FROM job_note n WHERE n.arrival = r.arrival AND n.what = 0),
                (SELECT jsonb_agg(e.effect) FROM job_effect e WHERE e.arrival = r.arrival)
            FROM job_running r
            CROSS JOIN LATERAL (SELECT o.* FROM job_body o WHERE o.arrival = r.arrival OFFSET 0) b
            JOIN job_lane l ON l.lane = r.lane
            JOIN job_queue q ON q.number = l.queue AND q.namespace = p_namespace
            LEFT JOIN job_past p ON p.arrival = r.arrival
            WHERE r.hash = p_hash AND r.deadline_ms > v_now
            ORDER BY r.token;
        IF found THEN
            queue := 1;
            RETURN NEXT;
            -- It may wait again when an earlier sending was just served: no claim is to wait behind it.
            IF p_sending IS NOT NULL THEN
                DELETE FROM job_waiter w WHERE w.namespace = p_namespace AND w.queue = ANY(p_queues) AND w.hash = p_hash;
                queue := 2;
                RETURN NEXT;
            END IF;
            RETURN;
        END IF;
    END IF;
    IF p_ttl_ms > v_longest THEN
        queue := -5;
        remaining_ms := v_longest;
    ELSIF p_sending IS NOT NULL THEN
        -- A waiting claim gets nothing once its time is up, or once a later sending has taken its place.
        SELECT max(w.until_ms), min(w.since_ms), min(w.place) INTO v_until, v_since, v_place FROM job_waiter w
            WHERE w.namespace = p_namespace AND w.queue = ANY(p_queues) AND w.hash = p_hash AND w.sending = p_sending;
        queue := CASE WHEN v_until > v_now THEN 0 WHEN v_until IS NULL THEN -3 ELSE -2 END;
    END IF;
    IF queue < 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_limit BETWEEN 1 AND c_few AND cardinality(p_queues) = 1 AND p_sending IS NULL
        AND NOT EXISTS (SELECT FROM job_waiter w WHERE w.namespace = p_namespace AND w.queue = p_queues[1]) THEN
        FOR v_of_lane IN
            SELECT l.lane, l.priority, coalesce((SELECT j.back_low FROM job_head j WHERE j.lane = l.lane), 0) AS back_low,
                coalesce(p_heads[array_position(p_lanes, l.lane)], 0) AS head,
                (SELECT true FROM job_scheduled s WHERE s.lane = l.lane AND s.due_ms > v_low AND s.due_ms <= v_now ORDER BY s.due_ms LIMIT 1) AS due
            FROM job_queue q CROSS JOIN LATERAL (SELECT o.* FROM job_lane o WHERE o.queue = q.number OFFSET 0) l
            WHERE q.namespace = p_namespace AND q.name = p_queues[1] AND q.mode <> 1
            ORDER BY l.priority DESC
        LOOP
            IF v_of_lane.due THEN
                v_woken := v_woken + job_wake(array[v_of_lane.lane], 1000);
            END IF;
            v_count := cardinality(a_id);
            FOR v_ready IN
                SELECT b.* FROM (
                    SELECT r.ctid, r.arrival, r.bytes, r.past, r.urgent FROM job_ready r
                    WHERE r.lane = v_of_lane.lane AND r.back AND r.arrival > v_of_lane.back_low AND r.arrival <= v_of_lane.head
                    ORDER BY r.arrival LIMIT p_limit - v_count FOR UPDATE SKIP LOCKED) b
                UNION ALL
                SELECT n.* FROM (
                    SELECT r.ctid, r.arrival, r.bytes, r.past, r.urgent FROM job_ready r
                    WHERE r.lane = v_of_lane.lane AND r.arrival > v_of_lane.head
                    ORDER BY r.arrival LIMIT p_limit - v_count FOR UPDATE SKIP LOCKED) n
                LIMIT p_limit - v_count
            LOOP
                -- So few payloads alone have room.
                IF v_ready.past OR v_carries > 0 THEN
                    IF v_ready.past THEN
                        v_carries := v_carries + job_carries(v_ready.arrival);
                    END IF;
                    v_full := cardinality(a_id) > 0 AND v_bytes + v_ready.bytes + v_carries > c_bytes_max;
                    EXIT WHEN v_full;
                END IF;
                DELETE FROM job_ready r WHERE r.ctid = v_ready.ctid;
                -- The job is ours: now the moment counts. In one statement, for each assignment costs something in every transaction.
                SELECT b.id, b.token, 1, v_of_lane.lane, v_ready.arrival, v_of_lane.priority, b.kind, b.payload, 1,
                    least(p_ttl_ms, coalesce(b.attempt_ms, p_ttl_ms)), b.terms, b.extra, v_ready.urgent, 0, 0,
                    now_ms(), b.attempt_ms
                    INTO id, token, queue, lane, arrival, priority, kind, payload, attempt,
                        remaining_ms, terms, extra, urgent, failures, crashes,
                        v_now, v_limit
                    FROM (SELECT o.*, nextval('job_token') AS token, (o.terms->>'attempt_ms')::bigint AS attempt_ms
                        FROM job_body o WHERE o.arrival = v_ready.arrival OFFSET 0) b;
                -- As a statement for many passes over what has no body.
                CONTINUE WHEN NOT found;
                IF v_ready.past THEN
                    SELECT p.attempts + 1, p.failures, p.crashes INTO attempt, failures, crashes FROM (
                        SELECT coalesce(max(o.attempts), 0) AS attempts, coalesce(max(o.failures), 0) AS failures,
                            coalesce(max(o.crashes), 0) AS crashes FROM job_past o WHERE o.arrival = v_ready.arrival) p;
                    checkpoint := (SELECT n.bytes FROM job_note n WHERE n.arrival = v_ready.arrival AND n.what = 0);
                    effects := (SELECT jsonb_agg(e.effect) FROM job_effect e WHERE e.arrival = v_ready.arrival);
                ELSIF v_carries > 0 THEN
                    checkpoint := NULL;
                    effects := NULL;
                END IF;
                INSERT INTO job_running
                    (id, arrival, lane, token, hash, owner, ttl_ms, since_ms, deadline_ms, limit_ms, plain, light)
                    VALUES (id, arrival, lane, token, p_hash, p_owner, p_ttl_ms, v_now, v_now + remaining_ms, v_now + v_limit,
                        extra->'undo_of' IS NULL, NOT v_ready.past AND (extra IS NULL OR NOT extra ?| array['unique', 'undo_of']))
                    RETURNING v_bytes + v_ready.bytes, a_seq || nextval('event_seq'), a_id || id, a_token || token, a_attempt || attempt
                        INTO v_bytes, a_seq, a_id, a_token, a_attempt;
                RETURN NEXT;
            END LOOP;
            IF cardinality(a_id) > v_count THEN
                INSERT INTO job_change (lane, was, becomes, count) VALUES (v_of_lane.lane, 0, 2, cardinality(a_id) - v_count);
            END IF;
            EXIT WHEN v_full OR cardinality(a_id) = p_limit;
        END LOOP;
        IF cardinality(a_id) > 0 THEN
            INSERT INTO job_event (last_seq, at_ms, namespace, what, seqs, ids, names, tokens, attempts)
                VALUES (a_seq[cardinality(a_seq)], v_now, p_namespace, 2, a_seq, a_id, array[p_owner], a_token,
                    CASE WHEN 1 = ALL(a_attempt) THEN '{1}' ELSE a_attempt END);
            IF v_woken > cardinality(a_id)
                AND EXISTS (SELECT FROM job_waiter w WHERE w.namespace = p_namespace AND w.queue = p_queues[1]) THEN
                id := NULL;
                token := v_now;
                queue := 2;
                RETURN NEXT;
            END IF;
            RETURN;
        END IF;
    END IF;
    SELECT array_agg(s.nth) FILTER (WHERE NOT s.behind), array_agg(s.lane) FILTER (WHERE NOT s.behind),
        array_agg(s.priority) FILTER (WHERE NOT s.behind), array_agg(s.head) FILTER (WHERE NOT s.behind),
        array_agg(s.back_low) FILTER (WHERE NOT s.behind), array_agg(s.lane) FILTER (WHERE s.behind),
        array_agg(least(p_limit, s.left_over)) FILTER (WHERE NOT s.behind)
        INTO v_nth, v_lane, v_rank, v_head, v_back, v_behind, v_leave
        FROM (
            SELECT n.nth::integer, l.lane, l.priority, coalesce(h.head, 0) AS head,
                coalesce((SELECT j.back_low FROM job_head j WHERE j.lane = l.lane), 0) AS back_low, o.left_over <= 0 AS behind, o.left_over
            FROM unnest(p_queues) WITH ORDINALITY AS n(name, nth)
            JOIN job_queue q ON q.namespace = p_namespace AND q.name = n.name AND q.mode <> 1
            CROSS JOIN LATERAL (
                -- How much of this queue those before us in its line leave.
                SELECT CASE WHEN p_pushes OR a.wants IS NULL THEN p_limit ELSE job_on_offer(q.number, a.wants + p_limit) - a.wants END AS left_over
                FROM (
                    SELECT sum(s.wants) AS wants FROM (
                        SELECT w.wants FROM job_waiter w
                        WHERE w.namespace = p_namespace AND w.queue = n.name AND w.hash <> p_hash AND w.until_ms > v_now
                            AND w.beat > clock_timestamp() - interval '5 seconds'
                            AND (v_place IS NULL OR (w.since_ms, w.place) < (v_since, v_place))
                        LIMIT 1024) s) a
                OFFSET 0) o
            JOIN job_lane l ON l.queue = q.number
            LEFT JOIN unnest(p_lanes, p_heads) AS h(lane, head) ON h.lane = l.lane
            ORDER BY n.nth, l.priority DESC
        ) s;
    IF v_behind IS NOT NULL THEN
        IF EXISTS (
            SELECT FROM unnest(v_behind) AS n(lane) CROSS JOIN LATERAL (
                (SELECT FROM job_ready r WHERE r.lane = n.lane ORDER BY r.arrival LIMIT 1)
                UNION ALL
                (SELECT FROM job_scheduled s WHERE s.lane = n.lane AND s.due_ms > v_low AND s.due_ms <= v_now ORDER BY s.due_ms LIMIT 1)) s) THEN
            queue := -4;
            RETURN NEXT;
        END IF;
    END IF;
    IF v_lane IS NULL THEN
        RETURN;
    END IF;
    IF EXISTS (
        SELECT FROM unnest(v_lane) AS n(lane)
        CROSS JOIN LATERAL (SELECT FROM job_scheduled s WHERE s.lane = n.lane AND s.due_ms > v_low AND s.due_ms <= v_now
            ORDER BY s.due_ms LIMIT 1) s) THEN
        v_woken := job_wake(v_lane, greatest(p_limit, 1000 / cardinality(v_lane)));
    END IF;
    -- Of one queue: as many as those before leave.
    v_room := array[v_leave[1]];
    IF cardinality(p_queues) > 1 THEN
        -- Whose turn it is: the queue whose own clock is furthest behind; a turn moves it on by the less the more it weighs.
        v_room := array_fill(0, array[cardinality(p_queues)]);
        DECLARE
            v_offers integer[] := v_room;
            v_left   integer;
        BEGIN
            FOR i IN 1 .. cardinality(v_lane) LOOP
                v_left := v_leave[i] - v_offers[v_nth[i]];
                IF v_left > 0 THEN
                    v_offers[v_nth[i]] := v_offers[v_nth[i]]
                        + (SELECT count(*) FROM (SELECT FROM job_ready r
                            WHERE r.lane = v_lane[i] AND r.arrival > v_head[i] ORDER BY r.arrival LIMIT v_left) s)
                        + CASE WHEN v_head[i] = 0 THEN 0 ELSE (SELECT count(*) FROM (SELECT FROM job_ready r
                            WHERE r.lane = v_lane[i] AND r.back AND r.arrival > v_back[i] AND r.arrival <= v_head[i]
                            ORDER BY r.arrival LIMIT v_left) s) END;
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
                    FROM (SELECT r.ctid, r.* FROM job_ready r WHERE r.lane = v_lane[i] AND r.back AND r.arrival > v_back[i] AND r.arrival <= v_head[i]
                        ORDER BY r.arrival LIMIT v_most FOR UPDATE SKIP LOCKED) s;
            ELSE
                SELECT array_agg(s.ctid), array_agg(s.bytes), array_agg(s.arrival), array_agg(s.past), array_agg(s.urgent)
                    INTO v_ctids, v_sizes, v_keys, v_past, v_urgent
                    FROM (SELECT r.ctid, r.* FROM job_ready r WHERE r.lane = v_lane[i] AND r.arrival > v_head[i]
                        ORDER BY r.arrival LIMIT v_most FOR UPDATE SKIP LOCKED) s;
            END IF;
            CONTINUE WHEN v_ctids IS NULL;
            v_got := cardinality(v_ctids);
            v_all := v_bytes + (SELECT sum(b) FROM unnest(v_sizes) AS b);
            IF true = ANY(v_past) OR v_all > c_bytes_max THEN
                v_got := 0;
                v_all := v_bytes;
                FOR k IN 1 .. cardinality(v_sizes) LOOP
                    IF v_past[k] THEN
                        v_sizes[k] := v_sizes[k] + job_carries(v_keys[k]);
                    END IF;
                    EXIT WHEN cardinality(a_key) + v_got > 0 AND v_all + v_sizes[k] > c_bytes_max;
                    v_all := v_all + v_sizes[k];
                    v_got := v_got + 1;
                END LOOP;
            END IF;
            v_bytes := v_all;
            v_room[v_nth[i]] := v_most - v_got;
            IF v_got < cardinality(v_sizes) THEN
                v_room := array_fill(0, array[cardinality(p_queues)]);
            END IF;
            DELETE FROM job_ready r WHERE r.ctid = ANY(v_ctids[1:v_got]);
            IF v_got > 0 THEN
                INSERT INTO job_change (lane, was, becomes, count) VALUES (v_lane[i], 0, 2, v_got);
            END IF;
            a_nth := a_nth || array_fill(v_nth[i], array[v_got]);
            a_rank := a_rank || array_fill(v_rank[i], array[v_got]);
            a_key := a_key || v_keys[1:v_got];
            a_past := a_past || v_past[1:v_got];
            a_urgent := a_urgent || v_urgent[1:v_got];
        END LOOP;
    END LOOP;
    IF cardinality(a_key) = 0 THEN
        IF EXISTS (
            SELECT FROM unnest(v_lane, v_head, v_back) AS n(lane, head, back_low) CROSS JOIN LATERAL (
                (SELECT FROM job_ready r WHERE r.lane = n.lane AND r.arrival > n.head ORDER BY r.arrival LIMIT 1)
                UNION ALL
                (SELECT FROM job_ready r WHERE r.lane = n.lane AND r.back AND r.arrival > n.back_low AND r.arrival <= n.head
                    ORDER BY r.arrival LIMIT 1)
                UNION ALL
                (SELECT FROM job_scheduled s WHERE s.lane = n.lane AND s.due_ms > v_low AND s.due_ms <= v_now ORDER BY s.due_ms LIMIT 1)) s) THEN
            -- Another transaction is about to claim it, to move it, or to return it. Only of what was searched: what came late into a place
            -- below is found by searching there too, and not by waiting.
            queue := -4;
            RETURN NEXT;
        END IF;
        RETURN;
    END IF;
    -- The jobs are ours: now the moment counts.
    v_now := now_ms();
    IF cardinality(p_queues) > 1 THEN
        -- Queues take turns; within one, first come, first served.
        SELECT array_agg(a.nth ORDER BY turn.nth, a.pos), array_agg(a.priority ORDER BY turn.nth, a.pos),
            array_agg(a.arrival ORDER BY turn.nth, a.pos), array_agg(a.past ORDER BY turn.nth, a.pos),
            array_agg(a.urgent ORDER BY turn.nth, a.pos)
            INTO a_nth, a_rank, a_key, a_past, a_urgent
            FROM (SELECT u.*, row_number() OVER (PARTITION BY u.nth ORDER BY u.pos) AS rank
                FROM unnest(a_nth, a_rank, a_key, a_past, a_urgent) WITH ORDINALITY AS u(nth, priority, arrival, past, urgent, pos)) a
            LEFT JOIN (SELECT t.queue, row_number() OVER (PARTITION BY t.queue ORDER BY t.nth) AS rank, t.nth
                FROM unnest(v_order) WITH ORDINALITY AS t(queue, nth)) turn ON turn.queue = a.nth AND turn.rank = a.rank;
    END IF;
    PERFORM pg_current_xact_id();
    RETURN QUERY
    WITH job AS MATERIALIZED (
        SELECT p.nth, p.rank, p.urgent, p.past, b.*, nextval('job_token') AS token,
            coalesce(h.attempts, 0) + 1 AS attempt, coalesce(h.failures, 0) AS failures, coalesce(h.crashes, 0) AS crashes,
            least(p_ttl_ms, coalesce((b.terms->>'attempt_ms')::bigint, p_ttl_ms)) AS lasts_ms
        FROM unnest(a_nth, a_rank, a_key, a_past, a_urgent) WITH ORDINALITY AS p(nth, rank, arrival, past, urgent, pos)
        -- One by one, whatever the planner believes of these tables: see `job_complete_batch`.
        CROSS JOIN LATERAL (SELECT o.* FROM job_body o WHERE o.arrival = p.arrival OFFSET 0) b
        LEFT JOIN LATERAL (SELECT o.* FROM job_past o WHERE p.past AND o.arrival = p.arrival OFFSET 0) h ON true
        ORDER BY p.pos
    ), ran AS (
        INSERT INTO job_running
            (id, arrival, lane, token, hash, owner, ttl_ms, since_ms, deadline_ms, limit_ms, plain, light)
            SELECT j.id, j.arrival, j.lane, j.token, p_hash, p_owner, p_ttl_ms, v_now, v_now + j.lasts_ms,
                v_now + (j.terms->>'attempt_ms')::bigint, j.extra->'undo_of' IS NULL,
                NOT j.past AND (j.extra IS NULL OR NOT j.extra ?| array['unique', 'undo_of'])
            FROM job j
    ), told AS (
        INSERT INTO job_event (last_seq, at_ms, namespace, what, seqs, ids, names, tokens, attempts)
            SELECT max(e.seq), v_now, p_namespace, 2, array_agg(e.seq), array_agg(e.id), array[p_owner], array_agg(e.token),
                CASE WHEN true = ANY(a_past) THEN array_agg(e.attempt) ELSE '{1}' END
            FROM (SELECT nextval('event_seq') AS seq, j.id, j.token, j.attempt FROM job j OFFSET 0) e
            HAVING count(*) > 0
    )
    SELECT j.id, j.token, j.nth, j.lane, j.arrival, j.rank, j.kind, j.payload, j.attempt, j.lasts_ms, j.terms, j.extra, j.urgent,
        j.failures, j.crashes,
        CASE WHEN j.past THEN (SELECT n.bytes FROM job_note n WHERE n.arrival = j.arrival AND n.what = 0) END,
        CASE WHEN j.past THEN (SELECT jsonb_agg(e.effect) FROM job_effect e WHERE e.arrival = j.arrival) END
    FROM job j;
    IF p_sending IS NOT NULL THEN
        DELETE FROM job_waiter w WHERE w.namespace = p_namespace AND w.queue = ANY(p_queues) AND w.hash = p_hash;
    END IF;
    IF (p_sending IS NOT NULL OR v_woken > cardinality(a_key))
        AND EXISTS (SELECT FROM job_waiter w WHERE w.namespace = p_namespace AND w.queue = ANY(p_queues)) THEN
        token := v_now;
        queue := 2;
        RETURN NEXT;
    END IF;
    IF cardinality(p_queues) > 1 THEN
        token := NULL;
        queue := NULL;
        FOREACH remaining_ms IN ARRAY v_turns || v_clock LOOP
            RETURN NEXT;
        END LOOP;
    END IF;
END $$;

-- Which of these claims no second sending has been answered with, and which were not renewed, locked: only those may be returned for a
-- caller that has gone.
CREATE OR REPLACE FUNCTION job_unheard(p_ids uuid[], p_tokens bigint[]) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT r.id FROM job_running r JOIN unnest(p_ids, p_tokens) AS g(id, token) ON g.id = r.id AND g.token = r.token
    WHERE NOT r.taken_up ORDER BY r.id FOR NO KEY UPDATE OF r
$$;

-- The jobs that were claimed with this hold id, of which no second sending of the claim was answered, and which were not renewed.
CREATE OR REPLACE FUNCTION job_untaken(p_namespace text, p_hash uuid) RETURNS TABLE (id uuid, token bigint)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT r.id, r.token FROM job_running r JOIN job_lane l ON l.lane = r.lane JOIN job_queue q ON q.number = l.queue
    WHERE r.hash = p_hash AND NOT r.taken_up AND q.namespace = p_namespace
$$;
