-- Jobs: what is done in the background, by any number of processes at once: rows that another has locked are skipped.

-- Claims that have expired, to be decided upon by the rules, and by which moment: the program that decides first checks whether the clock
-- has jumped.
CREATE OR REPLACE FUNCTION job_run_out(p_most integer) RETURNS TABLE (id uuid, at_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := now_ms();
    v_far uuid[];
BEGIN
    PERFORM notice_server();
    PERFORM job_honour_suspension();
    -- A clock that was set back leaves deadlines that are further away than they can be. Looked for by the moment at which this began,
    -- which is cheap, and then compared with the clock as it is when the row is locked: a renewal may have come since.
    v_far := array(SELECT o.id FROM job_running o WHERE o.deadline_ms > v_now + o.ttl_ms LIMIT p_most);
    IF v_far <> '{}' THEN
        UPDATE job_running r SET deadline_ms = now_ms() + r.ttl_ms
            WHERE r.id = ANY(array(
                SELECT o.id FROM job_running o WHERE o.id = ANY(v_far) AND o.deadline_ms > now_ms() + o.ttl_ms
                ORDER BY o.id FOR NO KEY UPDATE SKIP LOCKED));
    END IF;
    RETURN QUERY
    SELECT o.id, v_now FROM job_running o
        -- Also where another transaction had it locked just now, so that the suspension was not written down.
        WHERE o.deadline_ms <= v_now AND job_deadline(o, v_now) <= v_now
        ORDER BY o.deadline_ms LIMIT p_most FOR UPDATE SKIP LOCKED;
END $$;

-- Notifies waiting claims of jobs that are due. Claims move the due jobs of their lanes to the ready ones; where many moved ones are still
-- in the index, so that reading is expensive, this moves so many, of any lane: then all that were due up to a moment of the past have been
-- moved, and claims look for later ones. How many were moved.
CREATE OR REPLACE FUNCTION job_wake_due(p_most integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    c_index CONSTANT oid := 'job_scheduled_at'::regclass;
    c_lanes CONSTANT oid := 'job_scheduled_due'::regclass;
    v_now   CONSTANT bigint := now_ms();
    v_low   CONSTANT bigint := removed_low('due jobs', v_now);
    v_read  bigint := pg_stat_get_xact_tuples_returned(c_lanes);
    v_dear  boolean := EXISTS (SELECT FROM tidied t WHERE t.part = 'due jobs' AND t.low > -9223372036854775808);
    v_lanes integer[];
    v_moved integer := 0;
BEGIN
    IF NOT v_dear THEN
        -- From lane to lane that has any, however many lanes and jobs there are.
        WITH RECURSIVE lanes AS (
            (SELECT o.lane FROM job_scheduled o ORDER BY o.lane LIMIT 1)
            UNION ALL
            SELECT (SELECT o.lane FROM job_scheduled o WHERE o.lane > n.lane ORDER BY o.lane LIMIT 1) FROM lanes n WHERE n.lane IS NOT NULL
        )
        SELECT array_agg(n.lane) INTO v_lanes FROM lanes n
            CROSS JOIN LATERAL (SELECT FROM job_scheduled o WHERE o.lane = n.lane AND o.due_ms <= v_now ORDER BY o.due_ms LIMIT 1) s;
        v_dear := pg_stat_get_xact_tuples_returned(c_lanes) - v_read >= 1000;
    END IF;
    IF v_dear THEN
        v_read := pg_stat_get_xact_tuples_returned(c_index);
        -- In the order in which `store advance` locks tables.
        LOCK TABLE job_ready IN ROW EXCLUSIVE MODE;
        v_lanes := job_make_ready(array(
            SELECT o.ctid FROM job_scheduled o WHERE o.due_ms > v_low AND o.due_ms <= v_now
            ORDER BY o.due_ms LIMIT p_most FOR UPDATE SKIP LOCKED));
        PERFORM removed_to('due jobs', v_low, (SELECT o.due_ms FROM job_scheduled o WHERE o.due_ms > v_low ORDER BY o.due_ms LIMIT 1), v_now,
            pg_stat_get_xact_tuples_returned(c_index) - v_read);
        v_moved := cardinality(v_lanes);
    END IF;
    PERFORM job_stir_lanes(v_lanes);
    RETURN v_moved;
END $$;

-- Notes where the jobs begin of lanes in which claims wait, or that are worked on, and where the jobs that came back begin: at most every
-- five seconds, so that few dead versions of the notes are left, and one process at a time. Of more lanes than it reads, others come first
-- the next time. Every ten seconds all of a lane is searched, for what was committed late.
CREATE OR REPLACE FUNCTION job_find_heads() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    c_index  CONSTANT oid := 'job_ready_pkey'::regclass;
    c_back   CONSTANT oid := 'job_ready_back'::regclass;
    c_many   CONSTANT bigint := 1000;
    v_now    CONSTANT timestamptz := clock_timestamp();
    v_newest CONSTANT bigint := (SELECT s.last_value FROM job_arrival s);
    v_lane   record;
    v_first  bigint;
    v_read   bigint;
    v_came   bigint;
    v_back   bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(1179142483, hashtext(current_schema())) THEN
        RETURN;
    END IF;
    FOR v_lane IN
        SELECT l.lane, coalesce(h.head, 0) AS head, coalesce(h.back_low, 0) AS back_low, coalesce(h.newest, 0) AS newest, h.entries,
            coalesce(h.full_at < v_now - interval '10 seconds', true) AS in_full
        FROM (
            SELECT l.lane FROM (SELECT DISTINCT w.namespace, w.queue FROM job_waiter w) n
            JOIN job_queue q ON q.namespace = n.namespace AND q.name = n.queue
            JOIN job_lane l ON l.queue = q.number
            UNION
            SELECT r.lane FROM job_running r) l
        LEFT JOIN job_head h ON h.lane = l.lane
        WHERE h.at IS NULL OR h.at < v_now - interval '5 seconds'
        ORDER BY random() LIMIT 64
    LOOP
        v_read := pg_stat_get_xact_tuples_returned(c_index);
        SELECT o.arrival INTO v_first FROM job_ready o
            WHERE o.lane = v_lane.lane AND o.arrival > CASE WHEN v_lane.in_full THEN 0 ELSE v_lane.head END
            ORDER BY o.arrival LIMIT 1;
        v_read := CASE WHEN v_lane.in_full THEN pg_stat_get_xact_tuples_returned(c_index) - v_read ELSE v_lane.entries END;
        v_back := pg_stat_get_xact_tuples_returned(c_back);
        SELECT o.arrival INTO v_came FROM job_ready o
            WHERE o.lane = v_lane.lane AND o.back AND o.arrival > CASE WHEN v_lane.in_full THEN 0 ELSE v_lane.back_low END
            ORDER BY o.arrival LIMIT 1;
        v_back := pg_stat_get_xact_tuples_returned(c_back) - v_back;
        CONTINUE WHEN v_read < c_many AND v_lane.head = 0 AND v_back < c_many AND v_lane.back_low = 0;
        -- What was enqueued a moment ago may not be committed yet: the note goes up to what was there the last time.
        INSERT INTO job_head AS h (lane, head, newest, at, entries, full_at, back_low)
            VALUES (v_lane.lane, CASE WHEN v_read >= c_many THEN least(v_first - 1, v_lane.newest) ELSE 0 END, v_newest, v_now, v_read, v_now,
                CASE WHEN v_back >= c_many OR NOT v_lane.in_full THEN least(v_came - 1, v_lane.newest) ELSE 0 END)
            ON CONFLICT (lane) DO UPDATE SET head = excluded.head, newest = excluded.newest, at = excluded.at, entries = excluded.entries,
                full_at = CASE WHEN v_lane.in_full THEN v_now ELSE h.full_at END, back_low = excluded.back_low;
    END LOOP;
END $$;

-- What needs no rules: notifies waiting claims of jobs that are due, and deletes finished jobs that were kept for long enough, unique keys
-- that are free, and claims that wait no more. True: there is more of it.
CREATE OR REPLACE FUNCTION job_tidy(p_kept_ms bigint, p_most integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now    bigint := now_ms();
    v_old    bigint[];
    v_keyed  uuid[];
    v_busy   integer := 0;
    v_seen   bigint;
    v_woken  bigint;
    v_low    bigint;
    v_read   bigint;
    v_adds   CONSTANT boolean := job_counts_add(); -- before this transaction changes anything
BEGIN
    PERFORM job_find_heads();
    v_woken := job_wake_due(p_most);
    v_low := removed_low('finished jobs', v_now);
    v_read := pg_stat_get_xact_tuples_returned('job_settled_since'::regclass);
    -- While its unique key is taken, a request with the same key gets this job. It is read once, and again when the key is free.
    WITH old AS MATERIALIZED (
        SELECT o.ctid AS tid, o.arrival, coalesce(o.put_off_ms, o.since_ms) AS at_ms, (
            SELECT max(u.until_ms) FROM job_body b JOIN job_unique u ON u.job = b.id AND u.until_ms > v_now
            WHERE b.arrival = o.arrival) AS taken_ms
        FROM job_settled o WHERE NOT o.keeps AND coalesce(o.put_off_ms, o.since_ms) <= v_now - p_kept_ms
            AND coalesce(o.put_off_ms, o.since_ms) > v_low
        ORDER BY coalesce(o.put_off_ms, o.since_ms) LIMIT p_most FOR UPDATE SKIP LOCKED
    ), later AS (
        UPDATE job_settled s SET put_off_ms = o.taken_ms - p_kept_ms FROM old o WHERE s.ctid = o.tid AND o.taken_ms IS NOT NULL
    )
    SELECT array_agg(o.arrival) FILTER (WHERE o.taken_ms IS NULL), count(*) INTO v_old, v_seen FROM old o;
    IF v_old IS NOT NULL THEN
        -- This waits for no user's transaction: where one is about to take a key over, the turn of the job that had it comes later.
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
    PERFORM removed_to('finished jobs', v_low, (
            SELECT coalesce(s.put_off_ms, s.since_ms) FROM job_settled s WHERE NOT s.keeps AND coalesce(s.put_off_ms, s.since_ms) > v_low
            ORDER BY coalesce(s.put_off_ms, s.since_ms) LIMIT 1),
        v_now, pg_stat_get_xact_tuples_returned('job_settled_since'::regclass) - v_read);
    v_low := removed_low('unique keys', v_now);
    v_read := pg_stat_get_xact_tuples_returned('job_unique_until'::regclass);
    -- Some time after they have come free: a request for one before that takes it over. Those whose job may go on are put off, so that they
    -- do not keep others waiting: one that failed or was cancelled has its key again when it is retried, unless another job took it
    -- meanwhile.
    WITH old AS MATERIALIZED (
        SELECT o.ctid AS tid, EXISTS (
            SELECT FROM job_body b WHERE b.id = o.job
                AND NOT EXISTS (SELECT FROM job_settled s WHERE s.arrival = b.arrival AND s.state = 3)) AS may_go_on
        FROM job_unique o WHERE o.until_ms > v_low AND o.until_ms <= v_now - 3600000
        ORDER BY o.until_ms LIMIT p_most FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM job_unique u WHERE u.ctid = ANY(array(SELECT o.tid FROM old o WHERE NOT o.may_go_on))
    )
    UPDATE job_unique u SET until_ms = v_now - 1800000 WHERE u.ctid = ANY(array(SELECT o.tid FROM old o WHERE o.may_go_on));
    PERFORM removed_to('unique keys', v_low, (SELECT u.until_ms FROM job_unique u WHERE u.until_ms > v_low ORDER BY u.until_ms LIMIT 1),
        v_now, pg_stat_get_xact_tuples_returned('job_unique_until'::regclass) - v_read);
    DELETE FROM job_waiter w WHERE w.beat < clock_timestamp() - interval '1 minute';
    DELETE FROM job_awaited a WHERE a.until < clock_timestamp();
    -- As long as a report is sent again and again, and some more.
    v_low := removed_low('dropped jobs', v_now);
    v_read := pg_stat_get_xact_tuples_returned('job_dropped_at'::regclass);
    DELETE FROM job_dropped d WHERE d.at_ms > v_low AND d.at_ms < v_now - 120000 OR d.at_ms > v_now + 120000;
    PERFORM removed_to('dropped jobs', v_low, (SELECT d.at_ms FROM job_dropped d WHERE d.at_ms > v_low ORDER BY d.at_ms LIMIT 1), v_now,
        pg_stat_get_xact_tuples_returned('job_dropped_at'::regclass) - v_read);
    RETURN v_adds OR v_woken >= p_most OR v_seen >= p_most AND v_busy < v_seen;
END $$;

-- Queues whose first ready job asks others to yield, with that job and the attempts that it may ask: those at lower priority that were not
-- asked yet.
CREATE OR REPLACE FUNCTION job_room(p_most integer)
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

-- Which parts of the background work have something to do. One that cannot say is to be done, and then says why it fails.
CREATE OR REPLACE FUNCTION job_work_due(OUT expiry boolean, OUT schedules boolean, OUT preemption boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    BEGIN
        expiry := EXISTS (SELECT FROM job_run_out(1));
    EXCEPTION WHEN OTHERS THEN
        expiry := true;
    END;
    BEGIN
        schedules := EXISTS (SELECT FROM job_schedules_due(1));
    EXCEPTION WHEN OTHERS THEN
        schedules := true;
    END;
    BEGIN
        preemption := EXISTS (SELECT FROM job_room(1));
    EXCEPTION WHEN OTHERS THEN
        preemption := true;
    END;
END $$;
