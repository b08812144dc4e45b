-- Queues. Those that are open, empty and unused are not shown, can be removed, and are removed by the sweep where a namespace has many.

-- Every queue of a namespace with its jobs in each state (1 to 8, in the order of the states) and the claims that wait for them. Without
-- those that are open and have no job, no schedule and no waiting claim.
CREATE OR REPLACE FUNCTION job_queues(p_namespace text, p_name text)
RETURNS TABLE (name text, mode smallint, counts bigint[], claimers bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH mine AS (
        SELECT q.number, q.name, q.mode FROM job_queue q
        WHERE q.namespace = p_namespace AND (p_name IS NULL OR q.name = p_name)
    ), tally AS (
        SELECT c.queue, array(SELECT coalesce(sum(n.count) FILTER (WHERE n.state = k), 0)::bigint
                FROM unnest(array_agg(c.state), array_agg(c.count)) AS n(state, count) CROSS JOIN generate_series(0, 7) AS k
                GROUP BY k ORDER BY k) AS counts
        FROM job_counts_now(array(SELECT m.number FROM mine m)) AS c GROUP BY c.queue
    ), line AS (
        SELECT w.queue, count(*) AS n FROM job_waiter w
        WHERE w.namespace = p_namespace AND w.until_ms > now_ms() AND w.beat > clock_timestamp() - interval '5 seconds'
            AND (p_name IS NULL OR w.queue = p_name)
        GROUP BY 1
    )
    SELECT coalesce(m.name, line.queue), coalesce(m.mode, 0::smallint),
        coalesce(t.counts, array_fill(0::bigint, array[8])), coalesce(line.n, 0)
    FROM mine m LEFT JOIN tally t ON t.queue = m.number FULL JOIN line ON line.queue = m.name
    WHERE m.mode <> 0 OR line.n > 0 OR t.queue IS NOT NULL
        OR EXISTS (SELECT FROM job_schedule s WHERE s.namespace = p_namespace AND s.spec->>'queue' = m.name)
    ORDER BY 1
$$;

-- The same as `[[name, mode, counts, claimers]]`, with the event that the counts stand for, where there is one (`events_seen_to`).
CREATE OR REPLACE FUNCTION job_queue_list(p_namespace text, OUT queues jsonb, OUT event_seq bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_told CONSTANT bigint := events_told();
BEGIN
    SELECT coalesce(jsonb_agg(jsonb_build_array(q.name, q.mode, q.counts, q.claimers) ORDER BY q.name), '[]'), events_seen_to(v_told)
    INTO queues, event_seq FROM job_queues(p_namespace, NULL) AS q;
END $$;

-- Removes a queue, whatever is in it, and leaves a note for what may still come into it.
CREATE OR REPLACE FUNCTION job_queue_drop(p_number integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO job_lane_gone (lane, namespace, queue, priority, gone_ms, look_ms)
        SELECT l.lane, q.namespace, q.name, l.priority, now_ms(), 0 FROM job_lane l JOIN job_queue q ON q.number = l.queue
        WHERE q.number = p_number;
    DELETE FROM job_lane l WHERE l.queue = p_number;
    DELETE FROM job_queue q WHERE q.number = p_number;
    DELETE FROM job_count t WHERE t.queue = p_number;
END $$;

-- Removes a queue that has no jobs and no schedules. Otherwise it says what is in it: jobs by state, and schedules.
CREATE OR REPLACE FUNCTION job_queue_remove(p_namespace text, p_name text, p_by text, OUT removed boolean, OUT counts bigint[], OUT schedules bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_number integer;
BEGIN
    SELECT q.number INTO v_number FROM job_queue q WHERE q.namespace = p_namespace AND q.name = p_name FOR UPDATE;
    SELECT count(*) INTO schedules FROM job_schedule s WHERE s.namespace = p_namespace AND s.spec->>'queue' = p_name;
    -- Where it is not shown, there is none.
    SELECT q.counts INTO counts FROM job_queues(p_namespace, p_name) AS q;
    removed := v_number IS NOT NULL AND counts IS NOT NULL;
    IF NOT removed OR schedules > 0 OR (SELECT sum(c) FROM unnest(counts) AS c) > 0 THEN
        RETURN;
    END IF;
    PERFORM job_queue_drop(v_number);
    PERFORM note(p_namespace, 'queue/' || p_name,
        jsonb_build_object('queue_changed', jsonb_build_object('queue', p_name, 'mode', 'removed', 'by', p_by)), now_ms());
END $$;

-- Jobs that came into a removed queue are moved to the queue of that name, and where a namespace has many queues, those that are unused
-- are removed where p_unused says so. True: there is more of it.
CREATE OR REPLACE FUNCTION job_queues_tidy(p_most integer, p_unused boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    c_many   CONSTANT integer := 1000; -- a namespace with fewer queues is left as it is
    c_kept   CONSTANT bigint := 7 * 24 * 3600000::bigint; -- no transaction is open for longer
    v_now    bigint := now_ms();
    v_gone   job_lane_gone;
    v_lane   integer;
    v_number integer;
    v_looked integer := 0;
    v_many   text;
BEGIN
    IF NOT pg_try_advisory_xact_lock(1179142482, hashtext(current_schema())) THEN
        RETURN false;
    END IF;
    FOR v_gone IN SELECT * FROM job_lane_gone g WHERE g.look_ms <= v_now ORDER BY g.look_ms LIMIT p_most FOR UPDATE LOOP
        v_looked := v_looked + 1;
        IF EXISTS (SELECT FROM job_ready r WHERE r.lane = v_gone.lane) OR EXISTS (SELECT FROM job_scheduled s WHERE s.lane = v_gone.lane) THEN
            v_lane := job_make_lane(v_gone.namespace, v_gone.queue, v_gone.priority);
            -- Of a lane that is gone nothing is counted.
            WITH ready AS (
                UPDATE job_ready r SET lane = v_lane, back = true WHERE r.lane = v_gone.lane RETURNING r.arrival
            ), later AS (
                UPDATE job_scheduled s SET lane = v_lane WHERE s.lane = v_gone.lane RETURNING s.arrival
            ), counted AS (
                INSERT INTO job_change (lane, becomes, count)
                    SELECT v_lane, 0, count(*) FROM ready HAVING count(*) > 0 UNION ALL SELECT v_lane, 1, count(*) FROM later HAVING count(*) > 0
            )
            UPDATE job_body b SET lane = v_lane FROM (SELECT * FROM ready UNION ALL SELECT * FROM later) o WHERE b.arrival = o.arrival;
            PERFORM job_stir(v_gone.namespace, array[v_gone.queue]);
        END IF;
        IF v_gone.gone_ms + c_kept < v_now THEN
            DELETE FROM job_lane_gone g WHERE g.lane = v_gone.lane;
        ELSE
            UPDATE job_lane_gone g SET look_ms = v_now + least(greatest((v_now - v_gone.gone_ms) / 2, 1000), 60000)
                WHERE g.lane = v_gone.lane;
        END IF;
    END LOOP;
    IF p_unused THEN
        SELECT q.namespace INTO v_many FROM job_queue q GROUP BY 1 HAVING count(*) > c_many ORDER BY count(*) DESC LIMIT 1;
    END IF;
    IF v_many IS NOT NULL THEN
        FOR v_number IN
            SELECT q.number FROM job_queue q
            WHERE q.namespace = v_many AND q.mode = 0 AND q.name NOT IN (SELECT v.name FROM job_queues(v_many, NULL) AS v)
            ORDER BY q.number LIMIT p_most FOR UPDATE SKIP LOCKED
        LOOP
            v_looked := v_looked + 1;
            PERFORM job_queue_drop(v_number);
        END LOOP;
    END IF;
    RETURN v_looked >= p_most;
END $$;
