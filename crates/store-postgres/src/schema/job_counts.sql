-- How many jobs of each queue stand in each state: kept, and not counted.
--
-- A call that changes the state of jobs adds a row to `job_change`, for itself alone. What a caller sees is `job_count` and the rows that are left
-- there, in one snapshot: so counts are exact, whatever is committed late. A row that is there has not been added to `job_count`; the snapshot in
-- `job_counted` only says where none is left, so that what was deleted is not read again while a session holds a snapshot.

-- Where rows of `job_change` may be left: from this transaction on, and of these before. All, where the numbers are those of another server,
-- whose dump was restored here.
CREATE OR REPLACE FUNCTION job_changes_from(OUT next xid8, OUT open xid8[])
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    SELECT pg_snapshot_xmax(c.seen), array(SELECT pg_snapshot_xip(c.seen)) INTO next, open FROM job_counted c
        WHERE pg_snapshot_xmax(c.seen) <= pg_snapshot_xmax(pg_current_snapshot());
    IF next IS NULL THEN
        next := '1';
        open := '{}';
    END IF;
END $$;

-- Jobs by queue and state, of these queues or of all; delayed jobs that are due are queued.
CREATE OR REPLACE FUNCTION job_counts_now(p_queues integer[]) RETURNS TABLE (queue integer, state smallint, count bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_now  CONSTANT bigint := now_ms();
    v_low  CONSTANT bigint := job_due_low(v_now);
    v_from record;
BEGIN
    SELECT * INTO v_from FROM job_changes_from();
    RETURN QUERY
    WITH left_over AS (
        SELECT c.lane, c.was, c.becomes, c.count FROM job_change c WHERE c.xact >= v_from.next
        UNION ALL
        SELECT c.lane, c.was, c.becomes, c.count FROM job_change c WHERE c.xact = ANY(v_from.open)
        UNION ALL
        SELECT s.lane, 1::smallint, 0::smallint, 1 FROM job_scheduled s WHERE s.due_ms > v_low AND s.due_ms <= v_now
    )
    SELECT n.queue, n.state, sum(n.count)::bigint FROM (
        SELECT t.queue, t.state, t.count FROM job_count t WHERE p_queues IS NULL OR t.queue = ANY(p_queues)
        UNION ALL
        SELECT l.queue, s.state, s.count FROM (
            SELECT c.lane, c.was, c.becomes, sum(c.count) AS count FROM left_over c GROUP BY 1, 2, 3) AS c
        JOIN job_lane l ON l.lane = c.lane
        CROSS JOIN LATERAL (VALUES (c.was, -c.count), (c.becomes, c.count)) AS s(state, count)
        WHERE s.state IS NOT NULL AND (p_queues IS NULL OR l.queue = ANY(p_queues))) AS n
    GROUP BY 1, 2 HAVING sum(n.count) <> 0;
END $$;

-- Adds what is left in `job_change` to `job_count`, where there is much, and at most every five seconds, so that few dead versions are left. One
-- statement deletes the rows and adds them: what it does not see stays, and is added later. True: there is more of it.
CREATE OR REPLACE FUNCTION job_counts_add() RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    c_many  CONSTANT integer := 1000;
    c_step  CONSTANT integer := 20000;
    v_from  record;
    v_found integer;
    v_done  job_counted;
    v_wait  interval;
BEGIN
    -- A transaction with a number may add rows after this that its own snapshot has passed.
    IF pg_current_xact_id_if_assigned() IS NOT NULL OR NOT pg_try_advisory_xact_lock(1179142486, hashtext(current_schema())) THEN
        RETURN false;
    END IF;
    SELECT * INTO v_done FROM job_counted;
    SELECT * INTO v_from FROM job_changes_from();
    v_found := (SELECT count(*) FROM (SELECT FROM job_change c WHERE c.xact >= v_from.next ORDER BY c.xact LIMIT c_step) AS n)
        + (SELECT count(*) FROM job_change c WHERE c.xact = ANY(v_from.open));
    v_wait := CASE WHEN v_found < c_many THEN interval '1 minute' ELSE interval '5 seconds' END;
    IF v_found = 0 OR v_found < c_step AND clock_timestamp() BETWEEN v_done.at AND v_done.at + v_wait THEN
        RETURN false;
    END IF;
    WITH gone AS (
        DELETE FROM job_change c WHERE c.ctid = ANY(array(
            SELECT o.ctid FROM job_change o WHERE o.xact = ANY(v_from.open)
            UNION ALL
            (SELECT o.ctid FROM job_change o WHERE o.xact >= v_from.next ORDER BY o.xact LIMIT c_step)))
        RETURNING c.lane, c.was, c.becomes, c.count
    ), added AS (
        -- What came into a removed queue is counted when it is moved to another one.
        INSERT INTO job_count AS t (queue, state, count)
            SELECT l.queue, s.state, sum(s.count) FROM gone g
            JOIN job_lane l ON l.lane = g.lane
            CROSS JOIN LATERAL (VALUES (g.was, -g.count), (g.becomes, g.count)) AS s(state, count)
            WHERE s.state IS NOT NULL
            GROUP BY 1, 2 HAVING sum(s.count) <> 0 ORDER BY 1, 2
            ON CONFLICT (queue, state) DO UPDATE SET count = t.count + excluded.count
    )
    UPDATE job_counted SET at = clock_timestamp(),
        seen = CASE WHEN (SELECT count(*) FROM gone) < c_step THEN pg_current_snapshot() ELSE seen END
        RETURNING (SELECT count(*) FROM gone) INTO v_found;
    RETURN v_found >= c_step;
END $$;

-- Counts all jobs once a day, and soon after a migration, in one snapshot, and removes what this snapshot sees of `job_change`: a count that is
-- wrong, whatever the reason, does not stay wrong. No call waits for this. True: it was done.
CREATE OR REPLACE FUNCTION job_recount() RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM job_counted c WHERE c.recount_at <= clock_timestamp()) OR pg_current_xact_id_if_assigned() IS NOT NULL
        OR NOT pg_try_advisory_xact_lock(1179142486, hashtext(current_schema())) THEN
        RETURN false;
    END IF;
    WITH counted AS MATERIALIZED (
        SELECT l.queue, j.state, sum(j.count) AS count FROM (
            SELECT r.lane, 0 AS state, count(*) FROM job_ready r GROUP BY 1
            UNION ALL
            SELECT c.lane, 1, count(*) FROM job_scheduled c GROUP BY 1
            UNION ALL
            SELECT r.lane, 2, count(*) FROM job_running r GROUP BY 1
            UNION ALL
            SELECT s.lane, s.state, count(*) FROM job_settled s GROUP BY 1, 2) AS j
        JOIN job_lane l ON l.lane = j.lane GROUP BY 1, 2
    ), gone AS (
        DELETE FROM job_change
    ), none AS (
        DELETE FROM job_count t WHERE NOT EXISTS (SELECT FROM counted c WHERE c.queue = t.queue AND c.state = t.state)
    ), kept AS (
        INSERT INTO job_count (queue, state, count) SELECT c.queue, c.state, c.count FROM counted c
            ON CONFLICT (queue, state) DO UPDATE SET count = excluded.count
    )
    UPDATE job_counted SET seen = pg_current_snapshot(), at = clock_timestamp(), recount_at = clock_timestamp() + interval '1 day';
    RETURN true;
END $$;
