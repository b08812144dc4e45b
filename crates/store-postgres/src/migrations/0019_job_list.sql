-- Jobs: looking at many of them, at queues and at schedules.

-- The jobs that match, in the order of their arrival, of the next p_look ones; then a row without an id that tells where the look
-- ended, and null where there is nothing beyond. Where it ends is settled before anything is looked at: settled afterwards, it would be
-- further on by as many jobs as went meanwhile, and as many others would be on no page.
CREATE FUNCTION job_list(
    p_namespace text, p_from bigint, p_queue text, p_kind text, p_states smallint[], p_labels jsonb, p_owner text,
    p_contains text, p_limit integer, p_look integer
) RETURNS TABLE (arrival bigint, id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_last bigint := (SELECT o.arrival FROM job_body o WHERE o.arrival >= p_from ORDER BY o.arrival OFFSET p_look - 1 LIMIT 1);
BEGIN
    RETURN QUERY
    SELECT b.arrival, b.id
    FROM job_body b
    CROSS JOIN LATERAL (SELECT o.queue FROM job_lane o WHERE o.lane = b.lane OFFSET 0) l
    CROSS JOIN LATERAL (SELECT o.namespace, o.name FROM job_queue o WHERE o.number = l.queue OFFSET 0) q
    LEFT JOIN LATERAL (SELECT o.id, o.owner FROM job_running o WHERE o.id = b.id OFFSET 0) r ON true
    LEFT JOIN LATERAL (SELECT o.arrival FROM job_ready o WHERE o.lane = b.lane AND o.arrival = b.arrival OFFSET 0) y ON true
    LEFT JOIN LATERAL (SELECT o.arrival, o.due_ms FROM job_scheduled o WHERE o.arrival = b.arrival OFFSET 0) c ON true
    LEFT JOIN LATERAL (SELECT o.state FROM job_settled o WHERE o.arrival = b.arrival OFFSET 0) s ON true
    WHERE b.arrival BETWEEN p_from AND coalesce(v_last, 9223372036854775807)
        AND q.namespace = p_namespace
        AND (p_queue IS NULL OR q.name = p_queue)
        AND (p_kind IS NULL OR b.kind = p_kind)
        AND (p_states IS NULL OR p_states @> array[CASE WHEN r.id IS NOT NULL THEN 2 WHEN y.arrival IS NOT NULL THEN 0
            WHEN c.due_ms <= now_ms() THEN 0 WHEN c.arrival IS NOT NULL THEN 1 ELSE s.state END::smallint])
        AND (p_owner IS NULL OR r.owner = p_owner)
        AND (p_contains IS NULL OR position(p_contains IN b.payload) > 0)
        AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(p_labels) AS want
            WHERE NOT EXISTS (SELECT FROM jsonb_array_elements(b.extra->'labels') AS has WHERE has = want))
    ORDER BY b.arrival
    LIMIT p_limit;
    RETURN QUERY SELECT v_last, NULL::uuid;
END $$;

-- Every queue of a namespace with its jobs in each state (1 to 8, in the order of the states) and those who wait for them.
CREATE FUNCTION job_queues(p_namespace text, p_name text)
RETURNS TABLE (name text, mode smallint, counts bigint[], claimers bigint)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH mine AS (
        SELECT q.number, q.name, q.mode FROM job_queue q
        WHERE q.namespace = p_namespace AND (p_name IS NULL OR q.name = p_name)
    ), tally AS (
        SELECT l.queue, 0 AS state, count(*) AS n FROM job_ready r JOIN job_lane l ON l.lane = r.lane GROUP BY 1
        UNION ALL
        SELECT l.queue, CASE WHEN c.due_ms <= now_ms() THEN 0 ELSE 1 END, count(*)
            FROM job_scheduled c JOIN job_lane l ON l.lane = c.lane GROUP BY 1, 2
        UNION ALL
        SELECT l.queue, 2, count(*) FROM job_running r JOIN job_lane l ON l.lane = r.lane GROUP BY 1
        UNION ALL
        SELECT l.queue, s.state, count(*) FROM job_settled s JOIN job_lane l ON l.lane = s.lane GROUP BY 1, 2
    ), line AS (
        SELECT w.queue, count(*) AS n FROM job_waiter w
        WHERE w.namespace = p_namespace AND w.until_ms > now_ms() AND w.beat > clock_timestamp() - interval '5 seconds'
            AND (p_name IS NULL OR w.queue = p_name)
        GROUP BY 1
    )
    SELECT coalesce(m.name, line.queue), coalesce(m.mode, 0::smallint),
        array(SELECT coalesce((SELECT sum(t.n) FROM tally t WHERE t.queue = m.number AND t.state = k), 0)::bigint
            FROM generate_series(0, 7) AS k ORDER BY k),
        coalesce(line.n, 0)
    FROM mine m FULL JOIN line ON line.queue = m.name
    ORDER BY 1
$$;

-- How many jobs have not come to their end.
CREATE FUNCTION job_live() RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT (SELECT count(*) FROM job_ready) + (SELECT count(*) FROM job_scheduled) + (SELECT count(*) FROM job_running)
        + (SELECT count(*) FROM job_settled WHERE state NOT IN (3, 4, 5))
$$;

-- Jobs that have effects, in the order of their arrival.
CREATE FUNCTION job_with_effects(p_namespace text, p_from bigint, p_limit bigint) RETURNS TABLE (arrival bigint, id uuid)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT b.arrival, b.id FROM job_body b
    JOIN job_lane l ON l.lane = b.lane
    JOIN job_queue q ON q.number = l.queue AND q.namespace = p_namespace
    WHERE b.arrival >= p_from AND EXISTS (SELECT FROM job_effect e WHERE e.arrival = b.arrival)
    ORDER BY b.arrival LIMIT p_limit
$$;

CREATE FUNCTION job_schedule_text(p_schedule job_schedule) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('namespace', p_schedule.namespace, 'spec', p_schedule.spec, 'next_ms', p_schedule.next_ms,
        'last_ms', p_schedule.last_ms)::text
$$;

CREATE FUNCTION job_schedules(p_namespace text) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT job_schedule_text(s) FROM job_schedule s WHERE s.namespace = p_namespace ORDER BY s.name COLLATE "C"
$$;

-- A schedule that is about to be made or changed, and how many there are: whoever is about to do the same waits. And one that is just
-- firing is waited for: when it is next due is then as that has left it.
CREATE FUNCTION job_schedule_hold(p_namespace text, p_name text, OUT schedule text, OUT total bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(p_namespace || '/' || p_name, 7462));
    SELECT job_schedule_text(s) INTO schedule FROM job_schedule s WHERE s.namespace = p_namespace AND s.name = p_name FOR UPDATE;
    SELECT count(*) INTO total FROM job_schedule s WHERE s.namespace = p_namespace;
END $$;

CREATE FUNCTION job_unschedule(p_namespace text, p_name text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH gone AS (DELETE FROM job_schedule s WHERE s.namespace = p_namespace AND s.name = p_name RETURNING 1)
    SELECT EXISTS (SELECT FROM gone)
$$;

DO $$
BEGIN
    CALL permit('fencehold_reader', 'EXECUTE ON FUNCTION job_list(text, bigint, text, text, smallint[], jsonb, text, text, integer, integer), '
        'job_queues(text, text), job_live(), job_with_effects(text, bigint, bigint), job_schedules(text)');
    CALL permit('fencehold_worker', 'EXECUTE ON FUNCTION job_schedule_hold(text, text), job_unschedule(text, text)');
END
$$;
