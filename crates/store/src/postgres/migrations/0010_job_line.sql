-- Standing in line for jobs, and what is done in the background. Any number of processes do it at once: whatever another has
-- locked is passed over.

-- Stands in line, or takes the place of an earlier sending of the same claim. The moment, and the name of this sending.
CREATE FUNCTION job_line_up(
    p_namespace text, p_queues text[], p_hash uuid, p_wait_ms bigint, p_waited_before_ms bigint
) RETURNS TABLE (now_ms bigint, sending uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_now     bigint := now_ms();
    v_sending uuid := gen_random_uuid();
BEGIN
    INSERT INTO job_waiter AS w (namespace, queue, hash, sending, since_ms, until_ms, beat)
        SELECT p_namespace, n.name, p_hash, v_sending, v_now - p_waited_before_ms, v_now + p_wait_ms, clock_timestamp()
        FROM unnest(p_queues) AS n(name)
        ORDER BY n.name
        ON CONFLICT (namespace, queue, hash) DO UPDATE SET sending = excluded.sending, until_ms = excluded.until_ms,
            since_ms = least(w.since_ms, excluded.since_ms), beat = excluded.beat;
    PERFORM tell('line/' || p_hash);
    RETURN QUERY SELECT v_now, v_sending;
END $$;

-- Leaves the line, and has whoever is next look.
CREATE FUNCTION job_leave_line(p_namespace text, p_hash uuid, p_sending uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_queues text[];
BEGIN
    WITH gone AS (
        DELETE FROM job_waiter w WHERE w.namespace = p_namespace AND w.hash = p_hash AND w.sending = p_sending RETURNING w.queue
    )
    SELECT array_agg(queue) INTO v_queues FROM gone;
    PERFORM job_stir(p_namespace, v_queues);
END $$;

-- Those of these sendings are still there. Returns the ones that should look: their time is up, their place is taken, or
-- there is something to be had.
CREATE FUNCTION job_line_beat(p_sendings uuid[]) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now bigint := now_ms();
BEGIN
    UPDATE job_waiter w SET beat = clock_timestamp() WHERE w.sending = ANY(p_sendings);
    RETURN QUERY
    SELECT s.sending FROM unnest(p_sendings) AS s(sending)
        WHERE NOT EXISTS (SELECT FROM job_waiter w WHERE w.sending = s.sending)
        OR EXISTS (SELECT FROM job_waiter w WHERE w.sending = s.sending AND (w.until_ms <= v_now OR EXISTS (
            SELECT FROM job_queue q JOIN job_lane l ON l.queue = q.number
            WHERE q.namespace = w.namespace AND q.name = w.queue AND q.mode <> 1
                AND (EXISTS (SELECT FROM job_ready r WHERE r.lane = l.lane)
                    OR EXISTS (SELECT FROM job_scheduled c WHERE c.lane = l.lane AND c.due_ms <= v_now)))));
END $$;

-- Claims that have run out, to be decided upon by the rules. Those that were renewed since are put off.
CREATE FUNCTION job_run_out(p_most integer) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now bigint := now_ms();
BEGIN
    PERFORM job_honour_suspension();
    -- A clock that was set back leaves deadlines that are further away than they can be.
    UPDATE job_running r SET deadline_ms = v_now + r.ttl_ms, look_ms = v_now + r.ttl_ms
        WHERE r.id IN (SELECT o.id FROM job_running o WHERE o.deadline_ms > v_now + o.ttl_ms LIMIT p_most FOR UPDATE SKIP LOCKED);
    UPDATE job_running r SET look_ms = r.deadline_ms
        WHERE r.id IN (SELECT o.id FROM job_running o WHERE o.look_ms <= v_now AND o.deadline_ms > v_now
            ORDER BY o.look_ms LIMIT p_most FOR NO KEY UPDATE SKIP LOCKED);
    RETURN QUERY
    SELECT o.id FROM job_running o WHERE o.look_ms <= v_now AND o.deadline_ms <= v_now
        ORDER BY o.look_ms LIMIT p_most FOR UPDATE SKIP LOCKED;
END $$;

-- What needs no rules: whoever waits is told of jobs whose time has come; finished ones whose time is over are forgotten, and
-- keys and lines that nobody has any more. True: there is more of it.
CREATE FUNCTION job_tidy(p_kept_ms bigint, p_most integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now    bigint := now_ms();
    v_old    bigint[];
    v_lanes  integer[];
    v_space  record;
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
    RETURN coalesce(cardinality(v_old), 0) >= p_most;
END $$;

-- Schedules that are due, as JSON. Whoever gets one holds it until it has fired.
CREATE FUNCTION job_schedules_due(p_most integer) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object('namespace', s.namespace, 'spec', s.spec, 'next_ms', s.next_ms, 'last_ms', s.last_ms)::text
    FROM job_schedule s WHERE s.next_ms <= now_ms() ORDER BY s.next_ms LIMIT p_most FOR UPDATE SKIP LOCKED
$$;

-- Queues whose first ready job asks for room, with that job and whom it may ask: who works there at lower priority and was
-- not asked yet.
CREATE FUNCTION job_room(p_most integer)
RETURNS TABLE (namespace text, queue text, contender uuid, victim uuid)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT q.namespace, q.name, b.id, v.id
    FROM (SELECT DISTINCT l.queue FROM job_ready u JOIN job_lane l ON l.lane = u.lane WHERE u.urgent LIMIT p_most) c
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
$$;
