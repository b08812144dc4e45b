-- While a session holds a snapshot, whatever was deleted since stays where it was, and whoever reads from the beginning of an index reads all
-- of it again. So it is noted up to where there is nothing left, and reading begins there.
--
-- A note is a lower bound for most, not for all: a transaction that was open for long may commit something below it. Nothing is lost by that:
-- claims search whole lanes, and now and then the maintenance reads from the beginning.

-- By lane with a claim in its line: jobs up to here are taken, but for those that came back. 0 where the lane is soon searched.
CREATE TABLE job_head (
    lane    integer PRIMARY KEY,
    head    bigint NOT NULL,
    newest  bigint NOT NULL,      -- the newest place when that was noted: the next note goes no further
    at      timestamptz NOT NULL, -- when that was
    entries bigint NOT NULL,      -- of its index, that were read when all of the lane was last searched
    full_at timestamptz NOT NULL  -- when that was
) WITH (fillfactor = 50);

-- By part of the maintenance: what it removes lies above this.
CREATE TABLE tidied (
    part    text COLLATE "C" PRIMARY KEY,
    low     bigint NOT NULL,
    done_to bigint NOT NULL,
    at      timestamptz NOT NULL,
    full_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Notes where the jobs of lanes begin that claims wait for: at most every five seconds, so that few dead versions of the notes are left, and
-- one process at a time. Every ten seconds all of a lane is searched, for what was committed late.
CREATE FUNCTION job_find_heads() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    c_index  CONSTANT oid := 'job_ready_pkey'::regclass;
    c_many   CONSTANT bigint := 1000;
    v_now    CONSTANT timestamptz := clock_timestamp();
    v_newest CONSTANT bigint := (SELECT s.last_value FROM job_arrival s);
    v_lane   record;
    v_first  bigint;
    v_read   bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(1179142483, hashtext(current_schema())) THEN
        RETURN;
    END IF;
    FOR v_lane IN
        SELECT l.lane, h.head, coalesce(h.newest, 0) AS newest, h.entries, coalesce(h.full_at < v_now - interval '10 seconds', true) AS in_full
        FROM (SELECT DISTINCT w.namespace, w.queue FROM job_waiter w) n
        JOIN job_queue q ON q.namespace = n.namespace AND q.name = n.queue
        JOIN job_lane l ON l.queue = q.number
        LEFT JOIN job_head h ON h.lane = l.lane
        WHERE h.at IS NULL OR h.at < v_now - interval '5 seconds'
        LIMIT 64
    LOOP
        v_read := pg_stat_get_xact_tuples_returned(c_index);
        SELECT o.arrival INTO v_first FROM job_ready o
            WHERE o.lane = v_lane.lane AND o.arrival > CASE WHEN v_lane.in_full THEN 0 ELSE v_lane.head END
            ORDER BY o.arrival LIMIT 1;
        v_read := CASE WHEN v_lane.in_full THEN pg_stat_get_xact_tuples_returned(c_index) - v_read ELSE v_lane.entries END;
        CONTINUE WHEN v_read < c_many AND coalesce(v_lane.head, 0) = 0;
        -- What was enqueued a moment ago may not be committed yet: the note goes up to what was there the last time.
        INSERT INTO job_head AS h (lane, head, newest, at, entries, full_at)
            VALUES (v_lane.lane, CASE WHEN v_read >= c_many THEN least(v_first - 1, v_lane.newest) ELSE 0 END, v_newest, v_now, v_read, v_now)
            ON CONFLICT (lane) DO UPDATE SET head = excluded.head, newest = excluded.newest, at = excluded.at, entries = excluded.entries,
                full_at = CASE WHEN v_lane.in_full THEN v_now ELSE h.full_at END;
    END LOOP;
END $$;

-- Where a part of the maintenance begins.
CREATE FUNCTION tidied_low(p_part text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce((SELECT t.low FROM tidied t WHERE t.part = p_part AND t.full_at > clock_timestamp() - interval '10 minutes'),
        -9223372036854775808);
END $$;

-- It has removed all up to here that it could, beginning from `p_low`: so many. Where nothing is removed, nothing is noted.
CREATE FUNCTION tidied_to(p_part text, p_low bigint, p_to bigint, p_removed bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    v_now   CONSTANT timestamptz := clock_timestamp();
    v_noted tidied;
BEGIN
    SELECT * INTO v_noted FROM tidied t WHERE t.part = p_part;
    -- What another transaction has locked is tried again for some seconds.
    IF p_to IS NULL OR v_noted.part IS NULL AND p_removed = 0
        OR p_low >= v_noted.low AND (v_noted.at > v_now - interval '5 seconds' OR p_removed = 0 AND v_noted.low >= v_noted.done_to)
        OR NOT pg_try_advisory_xact_lock(1179142484, hashtext(current_schema() || p_part)) THEN
        RETURN;
    END IF;
    INSERT INTO tidied AS t (part, low, done_to, at, full_at) VALUES (p_part, p_low, p_to, v_now, v_now)
        ON CONFLICT (part) DO UPDATE SET low = least(t.done_to, p_to), done_to = CASE WHEN p_removed > 0 THEN p_to ELSE t.done_to END, at = v_now,
            full_at = CASE WHEN p_low < t.low THEN v_now ELSE t.full_at END;
END $$;

CREATE OR REPLACE FUNCTION job_on_offer(p_queue integer) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT count(*) FROM (
        SELECT FROM job_lane l
        CROSS JOIN LATERAL (SELECT coalesce((SELECT o.head FROM job_head o WHERE o.lane = l.lane), 0) AS head OFFSET 0) h
        CROSS JOIN LATERAL (
            (SELECT FROM job_ready o WHERE o.lane = l.lane AND o.arrival > h.head ORDER BY o.arrival LIMIT 256)
            UNION ALL
            (SELECT FROM job_ready o WHERE o.lane = l.lane AND o.back AND o.arrival <= h.head ORDER BY o.arrival LIMIT 256)) r
        WHERE l.queue = p_queue LIMIT 256) s
$$;

DO $$
DECLARE
    -- The function, what is in it, and what is to be there.
    c_changes CONSTANT text[] := ARRAY[
        ARRAY['job_line_beat', '(SELECT FROM job_ready o WHERE o.lane = l.lane ORDER BY o.arrival LIMIT 1)',
            '(SELECT FROM job_ready o WHERE o.lane = l.lane AND o.arrival > h.head ORDER BY o.arrival LIMIT 1)
            UNION ALL
            (SELECT FROM job_ready o WHERE o.lane = l.lane AND o.back AND o.arrival <= h.head ORDER BY o.arrival LIMIT 1)'],
        ARRAY['job_line_beat', 'JOIN job_lane l ON l.queue = q.number',
            'JOIN job_lane l ON l.queue = q.number
        CROSS JOIN LATERAL (SELECT coalesce((SELECT o.head FROM job_head o WHERE o.lane = l.lane), 0) AS head OFFSET 0) h'],
        ARRAY['job_tidy', '    v_last   bigint;', '    v_last   bigint;
    v_low    bigint;
    v_at     bigint;'],
        ARRAY['job_tidy', '-- From lane to lane', 'PERFORM job_find_heads();
    -- From lane to lane'],
        ARRAY['job_tidy', 'WHERE NOT o.keeps AND coalesce(o.put_off_ms, o.since_ms) <= v_now - p_kept_ms',
            'WHERE NOT o.keeps AND coalesce(o.put_off_ms, o.since_ms) <= v_now - p_kept_ms
            AND coalesce(o.put_off_ms, o.since_ms) > v_low'],
        ARRAY['job_tidy', 'SELECT o.ctid AS tid, o.arrival, (', 'SELECT o.ctid AS tid, o.arrival, coalesce(o.put_off_ms, o.since_ms) AS at_ms, ('],
        ARRAY['job_tidy', 'count(*) INTO v_old, v_seen FROM old o;',
            'count(*), max(o.at_ms) INTO v_old, v_seen, v_at FROM old o;
    PERFORM tidied_to(''finished jobs'', v_low, CASE WHEN v_seen >= p_most THEN v_at - 1 ELSE v_now - p_kept_ms END, v_seen);'],
        ARRAY['job_tidy', '    WITH old AS MATERIALIZED (
        SELECT o.ctid AS tid, o.arrival', '    v_low := tidied_low(''finished jobs'');
    WITH old AS MATERIALIZED (
        SELECT o.ctid AS tid, o.arrival'],
        ARRAY['job_tidy', 'DELETE FROM job_event e WHERE', 'v_low := tidied_low(''events of jobs'');
    DELETE FROM job_event e WHERE e.last_seq > v_low AND'],
        ARRAY['job_tidy', '    -- As long as a word is said again',
            '    GET DIAGNOSTICS v_at = ROW_COUNT;
    PERFORM tidied_to(''events of jobs'', v_low, v_last - limit_events(), v_at);
    v_low := tidied_low(''dropped jobs'');
    -- As long as a word is said again'],
        ARRAY['job_tidy', 'DELETE FROM job_dropped d WHERE d.at_ms < v_now - 120000 OR d.at_ms > v_now + 120000;',
            'DELETE FROM job_dropped d WHERE d.at_ms > v_low AND d.at_ms < v_now - 120000 OR d.at_ms > v_now + 120000;
    GET DIAGNOSTICS v_at = ROW_COUNT;
    PERFORM tidied_to(''dropped jobs'', v_low, v_now - 120001, v_at);']];
    changed text;
    made    text;
    ours    regproc;
BEGIN
    FOR i IN 1 .. array_length(c_changes, 1) LOOP
        ours := c_changes[i][1]::regproc;
        made := pg_get_functiondef(ours);
        changed := replace(made, c_changes[i][2], c_changes[i][3]);
        IF changed = made THEN
            RAISE EXCEPTION '% is not the function that this migration knows: %', ours, c_changes[i][2];
        END IF;
        EXECUTE changed;
    END LOOP;
    ALTER FUNCTION job_find_heads() SET enable_seqscan = off SET jit = off SET max_parallel_workers_per_gather = 0;
    ALTER FUNCTION tidied_low(text) SET enable_seqscan = off;
    ALTER FUNCTION tidied_to(text, bigint, bigint, bigint) SET enable_seqscan = off;
END $$;
