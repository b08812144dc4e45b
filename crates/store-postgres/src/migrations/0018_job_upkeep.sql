-- Jobs: what is done in the background, by any number of processes at once: whatever another has locked is passed over. And the part
-- of jobs in `store advance`.

-- Claims that have run out, to be decided upon by the rules, and by which moment: whoever decides first looks whether the clock has
-- jumped.
CREATE FUNCTION job_run_out(p_most integer) RETURNS TABLE (id uuid, at_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := now_ms();
    v_far uuid[];
BEGIN
    PERFORM notice_server();
    PERFORM job_honour_suspension();
    -- A clock that was set back leaves deadlines that are further away than they can be. Looked for by the moment at which this began,
    -- which is cheap, and then held against the clock as it is when the row is locked: a renewal may have come since.
    v_far := array(SELECT o.id FROM job_running o WHERE o.deadline_ms > v_now + o.ttl_ms LIMIT p_most);
    IF v_far <> '{}' THEN
        UPDATE job_running r SET deadline_ms = now_ms() + r.ttl_ms
            WHERE r.id = ANY(array(
                SELECT o.id FROM job_running o WHERE o.id = ANY(v_far) AND o.deadline_ms > now_ms() + o.ttl_ms
                ORDER BY o.id FOR NO KEY UPDATE SKIP LOCKED));
    END IF;
    RETURN QUERY
    SELECT o.id, v_now FROM job_running o WHERE o.deadline_ms <= v_now
        ORDER BY o.deadline_ms LIMIT p_most FOR UPDATE SKIP LOCKED;
END $$;

-- What needs no rules: whoever waits is told of jobs whose time has come; finished ones whose time is over are forgotten, and
-- keys and lines that nobody has any more. True: there is more of it.
CREATE FUNCTION job_tidy(p_kept_ms bigint, p_most integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now    bigint := now_ms();
    v_old    bigint[];
    v_keyed  uuid[];
    v_busy   integer := 0;
    v_seen   bigint;
    v_lanes  integer[];
    v_space  record;
    v_last   bigint;
BEGIN
    -- From lane to lane that has any, however many lanes and jobs there are.
    WITH RECURSIVE lanes AS (
        (SELECT o.lane FROM job_scheduled o ORDER BY o.lane LIMIT 1)
        UNION ALL
        SELECT (SELECT o.lane FROM job_scheduled o WHERE o.lane > n.lane ORDER BY o.lane LIMIT 1) FROM lanes n WHERE n.lane IS NOT NULL
    )
    SELECT array_agg(n.lane) INTO v_lanes FROM lanes n
        CROSS JOIN LATERAL (SELECT FROM job_scheduled o WHERE o.lane = n.lane AND o.due_ms <= v_now ORDER BY o.due_ms LIMIT 1) s;
    FOR v_space IN
        SELECT q.namespace, array_agg(q.name) AS names FROM job_lane l JOIN job_queue q ON q.number = l.queue
        WHERE l.lane = ANY(v_lanes) GROUP BY q.namespace
    LOOP
        -- They are moved by the claim that takes them.
        PERFORM job_stir(v_space.namespace, v_space.names);
    END LOOP;
    -- While its unique key is taken, whoever sends the same again is told of a job. It is looked at once, and again when the key is free.
    WITH old AS MATERIALIZED (
        SELECT o.ctid AS tid, o.arrival, (
            SELECT max(u.until_ms) FROM job_body b JOIN job_unique u ON u.job = b.id AND u.until_ms > v_now
            WHERE b.arrival = o.arrival) AS taken_ms
        FROM job_settled o WHERE NOT o.keeps AND coalesce(o.put_off_ms, o.since_ms) <= v_now - p_kept_ms
        ORDER BY coalesce(o.put_off_ms, o.since_ms) LIMIT p_most FOR UPDATE SKIP LOCKED
    ), later AS (
        UPDATE job_settled s SET put_off_ms = o.taken_ms - p_kept_ms FROM old o WHERE s.ctid = o.tid AND o.taken_ms IS NOT NULL
    )
    SELECT array_agg(o.arrival) FILTER (WHERE o.taken_ms IS NULL), count(*) INTO v_old, v_seen FROM old o;
    IF v_old IS NOT NULL THEN
        -- Nobody here waits for a user's transaction: where one is about to take a key over, the turn of the job that had it comes later.
        v_keyed := array(SELECT u.job FROM job_unique u
            WHERE u.job = ANY(array(SELECT b.id FROM job_body b WHERE b.arrival = ANY(v_old)))
            FOR UPDATE SKIP LOCKED);
        v_busy := cardinality(v_old);
        v_old := array(SELECT b.arrival FROM job_body b WHERE b.arrival = ANY(v_old)
            AND NOT EXISTS (SELECT FROM job_unique u WHERE u.job = b.id AND u.job <> ALL(v_keyed)));
        v_busy := v_busy - cardinality(v_old);
        PERFORM job_tell_end(array(SELECT b.id FROM job_body b WHERE b.arrival = ANY(v_old)));
        PERFORM job_forget(v_old);
    END IF;
    -- Some time after they have come free: whoever asks for one before that takes it over. Those whose job may go on are put off, so
    -- that they are not in the way of others: one that failed or was cancelled has its key again when it is told to go on, unless
    -- somebody took it meanwhile.
    WITH old AS MATERIALIZED (
        SELECT o.ctid AS tid, EXISTS (
            SELECT FROM job_body b WHERE b.id = o.job
                AND NOT EXISTS (SELECT FROM job_settled s WHERE s.arrival = b.arrival AND s.state = 3)) AS may_go_on
        FROM job_unique o WHERE o.until_ms <= v_now - 3600000
        ORDER BY o.until_ms LIMIT p_most FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM job_unique u WHERE u.ctid = ANY(array(SELECT o.tid FROM old o WHERE NOT o.may_go_on))
    )
    UPDATE job_unique u SET until_ms = v_now - 1800000 WHERE u.ctid = ANY(array(SELECT o.tid FROM old o WHERE o.may_go_on));
    DELETE FROM job_waiter w WHERE w.beat < clock_timestamp() - interval '1 minute';
    DELETE FROM job_awaited a WHERE a.until < clock_timestamp();
    SELECT max(last_seq) INTO v_last FROM job_event;
    DELETE FROM job_event e WHERE e.last_seq <= v_last - limit_events();
    -- As long as a word is said again and again, and some more.
    DELETE FROM job_dropped d WHERE d.at_ms < v_now - 120000 OR d.at_ms > v_now + 120000;
    RETURN v_seen >= p_most AND v_busy < v_seen;
END $$;

-- Schedules that are due, as JSON. Whoever gets one holds it until it has fired.
CREATE FUNCTION job_schedules_due(p_most integer) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object('namespace', s.namespace, 'spec', s.spec, 'next_ms', s.next_ms, 'last_ms', s.last_ms)::text
    FROM job_schedule s WHERE s.next_ms <= (SELECT now_ms()) ORDER BY s.next_ms LIMIT p_most FOR UPDATE SKIP LOCKED
$$;

-- Queues whose first ready job asks for room, with that job and whom it may ask: who works there at lower priority and was
-- not asked yet.
CREATE FUNCTION job_room(p_most integer)
RETURNS TABLE (namespace text, queue text, contender uuid, victim uuid)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT q.namespace, q.name, b.id, v.id
    FROM (SELECT DISTINCT l.queue FROM job_ready u JOIN job_lane l ON l.lane = u.lane WHERE u.urgent) c
    JOIN job_queue q ON q.number = c.queue AND q.mode <> 1
    CROSS JOIN LATERAL (
        SELECT r.arrival, l.priority, r.urgent FROM job_lane l
        CROSS JOIN LATERAL (SELECT o.* FROM job_ready o WHERE o.lane = l.lane ORDER BY o.arrival LIMIT 1) r
        WHERE l.queue = q.number ORDER BY l.priority DESC LIMIT 1) h
    JOIN job_body b ON b.arrival = h.arrival
    CROSS JOIN LATERAL (
        SELECT o.id FROM job_running o JOIN job_lane l ON l.lane = o.lane
        WHERE l.queue = q.number AND l.priority < h.priority AND (o.asked IS NULL OR o.asked->'notice' IS NULL)
        ORDER BY l.priority, o.token LIMIT 1) v
    WHERE h.urgent AND NOT EXISTS (
        SELECT FROM job_running o WHERE o.asked IS NOT NULL AND o.asked->'notice'->>'contender' = 'job/' || b.id)
    LIMIT p_most
$$;

-- The attempts of a job that ended, with one more, as `fencehold_core::job::Trail` is written in JSON.
CREATE FUNCTION job_trail_with(p_trail jsonb, p_run job_running, p_how text, p_ended_ms bigint) RETURNS jsonb
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH kept AS (
        SELECT coalesce(p_trail->'attempts', '[]'::jsonb) AS attempts, coalesce((p_trail->>'forgotten')::bigint, 0) AS forgotten
    ), room AS (
        -- As many as the core remembers.
        SELECT CASE WHEN jsonb_array_length(attempts) >= 16 THEN attempts - 0 ELSE attempts END AS attempts,
            forgotten + CASE WHEN jsonb_array_length(attempts) >= 16 THEN 1 ELSE 0 END AS forgotten
        FROM kept
    )
    SELECT jsonb_build_object('forgotten', forgotten, 'attempts', attempts || jsonb_build_object(
        'token', p_run.token, 'owner', p_run.owner, 'how', p_how, 'error', NULL,
        'hash', (SELECT jsonb_agg(get_byte(uuid_send(p_run.hash), i) ORDER BY i) FROM generate_series(0, 15) AS i),
        'since', jsonb_build_object('store_ms', p_run.since_ms, 'wall_ms', p_run.since_ms),
        'ended', jsonb_build_object('store_ms', p_ended_ms, 'wall_ms', p_ended_ms)))
    FROM room
$$;

-- After `store advance`, and when another server has taken over, nothing from before speaks for a job any more. For calls that have seen to
-- it that nobody moves a job meanwhile.
CREATE FUNCTION advance_jobs(lift bigint, by_owner text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now    bigint;
    v_newest bigint;
    v_run    job_running;
    v_past   job_past;
    v_name   record;
BEGIN
    v_now := now_ms();
    v_newest := job_newest() + lift;
    IF v_newest > 9007199254740991 THEN
        RETURN 'the tokens of jobs';
    END IF;
    PERFORM setval('job_token', v_newest);
    FOR v_run IN SELECT * FROM job_running ORDER BY id LOOP
        IF v_run.asked->'cancel' IS NOT NULL THEN
            -- It was called off: the sweep says so, and has its effects undone. Under a token of its own, so that nobody who
            -- knows the old one speaks for it until then.
            UPDATE job_running SET token = nextval('job_token'), deadline_ms = 0 WHERE id = v_run.id;
            CONTINUE;
        END IF;
        SELECT * INTO v_past FROM job_past p WHERE p.arrival = v_run.arrival;
        INSERT INTO job_past (arrival, token, failures, crashes, attempts, undo, since_ms, trail)
            VALUES (v_run.arrival, v_newest, coalesce(v_past.failures, 0), coalesce(v_past.crashes, 0),
                coalesce(v_past.attempts, 0) + 1, coalesce(v_past.undo, 0), v_now,
                job_trail_with(v_past.trail, v_run, 'advanced', v_now))
            ON CONFLICT (arrival) DO UPDATE SET token = excluded.token, attempts = excluded.attempts,
                since_ms = excluded.since_ms, trail = excluded.trail;
        DELETE FROM job_running WHERE id = v_run.id;
        INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
            SELECT b.lane, b.arrival, octet_length(b.payload), true, true, coalesce(b.extra ? 'yield_within_ms', false)
            FROM job_body b WHERE b.arrival = v_run.arrival;
        SELECT q.namespace INTO v_name FROM job_lane l JOIN job_queue q ON q.number = l.queue WHERE l.lane = v_run.lane;
        PERFORM note(v_name.namespace, 'job/' || v_run.id, jsonb_build_object('job_attempt_ended', jsonb_build_object(
            'token', v_run.token, 'owner', v_run.owner, 'how', 'advanced', 'state', 'queued', 'again_in_ms', 0)), v_now);
    END LOOP;
    -- Somebody may have had the job in the time that was lost, so what was late before is stale now.
    UPDATE job_past p SET token = v_newest
        WHERE p.token < v_newest AND (p.trail->'attempts'->-1->>'token')::bigint = p.token
            AND p.trail->'attempts'->-1->>'how' IN ('crashed', 'timed_out', 'yielded')
            AND NOT EXISTS (SELECT FROM job_settled s WHERE s.arrival = p.arrival AND s.state IN (3, 4, 5));
    PERFORM tell('line/' || w.hash) FROM (SELECT DISTINCT hash FROM job_waiter) w;
    RETURN NULL;
END $$;

DO $$
BEGIN
    CALL permit('fencehold_worker', 'EXECUTE ON FUNCTION job_run_out(integer), job_tidy(bigint, integer), job_schedules_due(integer), '
        'job_room(integer)');
END
$$;
