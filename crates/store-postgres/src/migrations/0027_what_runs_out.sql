-- While a session holds a snapshot, deleted rows stay in the indexes. `0026_held_snapshots.sql` keeps that from jobs that are enqueued and
-- forgotten; this does the same for what runs out, comes due or comes back: leases and their keys, delayed and retried jobs, unique keys,
-- and the history.
--
-- A note says up to where an index has nothing left. It is a bound for speed: every ten seconds, and less often the more there is, the
-- maintenance reads all of it, and what was committed late, below a note, is found then.

-- Up to where a part has nothing left, by the clock. Nothing is noted where reading all of it is cheap. A note that lies ahead of the clock
-- is not used: the clock was set back.
CREATE FUNCTION removed_low(p_part text, p_now bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce((SELECT t.low FROM tidied t
        WHERE t.part = p_part AND t.low < p_now AND t.full_at > clock_timestamp() - interval '10 seconds'), -9223372036854775808);
END $$;

-- Notes that all up to `p_first` is gone; null: all of it. `p_entries` of the index were read, from `p_low` on.
CREATE FUNCTION removed_to(p_part text, p_low bigint, p_first bigint, p_now bigint, p_entries bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    c_lowest CONSTANT bigint := -9223372036854775808;
    c_many   CONSTANT bigint := 1000;
    v_now    CONSTANT timestamptz := clock_timestamp();
    v_full   CONSTANT boolean := p_low = c_lowest;
    v_noted  tidied;
BEGIN
    SELECT * INTO v_noted FROM tidied t WHERE t.part = p_part;
    -- At most every five seconds, so that few dead versions of the notes are left.
    IF v_full AND p_entries < c_many AND coalesce(v_noted.low, c_lowest) = c_lowest
        OR v_noted.at > v_now - interval '5 seconds' AND NOT (v_full AND v_noted.low > c_lowest)
        OR NOT pg_try_advisory_xact_lock(1179142484, hashtext(current_schema() || p_part)) THEN
        RETURN;
    END IF;
    -- What was written a moment ago may not be committed yet: the note goes up to the moment of the note before.
    INSERT INTO tidied AS t (part, low, done_to, at, full_at) VALUES (p_part, c_lowest, p_now, v_now, v_now)
        ON CONFLICT (part) DO UPDATE SET
            low = CASE WHEN v_full AND p_entries < c_many THEN c_lowest ELSE least(p_first, t.done_to, p_now) - 1 END,
            done_to = p_now, at = v_now, full_at = CASE WHEN v_full THEN v_now + make_interval(secs => p_entries / 10000) ELSE t.full_at END;
END $$;

-- Whether to look through a part that can only be read as a whole: always, and every ten seconds where that is dear, and at once where the
-- clock was set back.
CREATE FUNCTION looks_through(p_part text, p_now bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM tidied t
        WHERE t.part = p_part AND t.low <= p_now AND t.full_at > clock_timestamp() - interval '10 seconds');
END $$;

-- Notes that a part was looked through, where that was dear.
CREATE FUNCTION looked_through(p_part text, p_now bigint, p_entries bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    v_now  CONSTANT timestamptz := clock_timestamp();
    v_full CONSTANT timestamptz := v_now + make_interval(secs => p_entries / 10000);
BEGIN
    IF p_entries >= 2000 AND pg_try_advisory_xact_lock(1179142484, hashtext(current_schema() || p_part)) THEN
        INSERT INTO tidied (part, low, done_to, at, full_at) VALUES (p_part, p_now, p_now, v_now, v_full)
            ON CONFLICT (part) DO UPDATE SET low = p_now, done_to = p_now, at = v_now, full_at = v_full;
    END IF;
END $$;

-- Delayed jobs that are due are moved to the ready ones by the claims of their lanes; and by the maintenance too, where many were moved that
-- are still in the index: then all that were due up to a moment of the past have been moved, and claims look for later ones.
CREATE INDEX job_scheduled_at ON job_scheduled (due_ms);

-- For those who do not take the notes. An old note is not used: the maintenance may have ended.
CREATE FUNCTION job_due_low(p_now bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce((SELECT t.low FROM tidied t
        WHERE t.part = 'due jobs' AND t.low < p_now AND t.at > clock_timestamp() - interval '1 minute'), -9223372036854775808);
END $$;

CREATE OR REPLACE FUNCTION job_wake(p_lanes integer[], p_most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now CONSTANT bigint := now_ms();
    v_low CONSTANT bigint := job_due_low(v_now);
    v_woken bigint;
BEGIN
    WITH due AS (
        DELETE FROM job_scheduled WHERE ctid = ANY(array(
            SELECT s.ctid FROM unnest(p_lanes) AS n(lane) CROSS JOIN LATERAL (
                SELECT o.ctid FROM job_scheduled o WHERE o.lane = n.lane AND o.due_ms > v_low AND o.due_ms <= v_now
                ORDER BY o.due_ms LIMIT p_most FOR UPDATE SKIP LOCKED) s))
        RETURNING lane, arrival, bytes, past, urgent
    ), moved AS (
        INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
            SELECT lane, arrival, bytes, true, past, urgent FROM due ORDER BY lane, arrival
        RETURNING 1
    )
    SELECT count(*) INTO v_woken FROM moved;
    RETURN v_woken;
END $$;

-- Tells those in line of jobs that are due. Where reading is dear, it moves so many, of whatever lanes. How many were moved.
CREATE FUNCTION job_wake_due(p_most integer) RETURNS bigint
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
    v_space record;
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
        WITH due AS (
            DELETE FROM job_scheduled WHERE ctid = ANY(array(
                SELECT o.ctid FROM job_scheduled o WHERE o.due_ms > v_low AND o.due_ms <= v_now
                ORDER BY o.due_ms LIMIT p_most FOR UPDATE SKIP LOCKED))
            RETURNING lane, arrival, bytes, past, urgent
        ), moved AS (
            INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
                SELECT lane, arrival, bytes, true, past, urgent FROM due ORDER BY lane, arrival
            RETURNING lane
        )
        SELECT array_agg(m.lane) INTO v_lanes FROM moved m;
        PERFORM removed_to('due jobs', v_low, (SELECT o.due_ms FROM job_scheduled o WHERE o.due_ms > v_low ORDER BY o.due_ms LIMIT 1), v_now,
            pg_stat_get_xact_tuples_returned(c_index) - v_read);
        v_moved := coalesce(cardinality(v_lanes), 0);
    END IF;
    FOR v_space IN
        SELECT q.namespace, array_agg(q.name) AS names FROM job_lane l JOIN job_queue q ON q.number = l.queue
        WHERE l.lane = ANY(v_lanes) GROUP BY q.namespace
    LOOP
        PERFORM job_stir(v_space.namespace, v_space.names);
    END LOOP;
    RETURN v_moved;
END $$;

-- Jobs of the lane that came back are above this.
ALTER TABLE job_head ADD COLUMN back_low bigint NOT NULL DEFAULT 0;

-- A job that comes back has an old place: the note of its lane goes back to it.
CREATE FUNCTION job_came_back() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE job_head h SET back_low = NEW.arrival - 1 WHERE h.lane = NEW.lane AND h.back_low >= NEW.arrival;
    RETURN NULL;
END $$;
CREATE TRIGGER job_came_back AFTER INSERT OR UPDATE ON job_ready FOR EACH ROW WHEN (NEW.back) EXECUTE FUNCTION job_came_back();

-- As before, and also of lanes that are worked on, and where the jobs that came back begin. Of more lanes than it looks at, others come first
-- the next time.
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

CREATE OR REPLACE FUNCTION job_on_offer(p_queue integer) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT count(*) FROM (
        SELECT FROM job_lane l
        LEFT JOIN LATERAL (SELECT o.head, o.back_low FROM job_head o WHERE o.lane = l.lane OFFSET 0) h ON true
        CROSS JOIN LATERAL (
            (SELECT FROM job_ready o WHERE o.lane = l.lane AND o.arrival > coalesce(h.head, 0) ORDER BY o.arrival LIMIT 256)
            UNION ALL
            (SELECT FROM job_ready o WHERE o.lane = l.lane AND o.back AND o.arrival > h.back_low AND o.arrival <= h.head
                ORDER BY o.arrival LIMIT 256)) r
        WHERE l.queue = p_queue LIMIT 256) s
$$;

DO $$
DECLARE
    -- The function, what is in it, and what is to be there.
    c_changes CONSTANT text[] := ARRAY[
        ARRAY['lease_sweep', '    newest bigint;', '    newest bigint;
    began CONSTANT bigint := now_ms();
    low bigint;
    read bigint;
    gone bigint[];'],
        ARRAY['lease_sweep', '    -- A key that somebody is at,', '    low := removed_low(''holds'', began);
    read := pg_stat_get_xact_tuples_returned(''lease_hold_look''::regclass);
    -- A key that somebody is at,'],
        ARRAY['lease_sweep', 'WHERE look_at_ms <= now ORDER BY look_at_ms OFFSET 0) AS due',
            'WHERE look_at_ms > low AND look_at_ms <= now ORDER BY look_at_ms OFFSET 0) AS due'],
        ARRAY['lease_sweep', '    -- A clock that was set back leaves looks',
            '    PERFORM removed_to(''holds'', low, (SELECT o.look_at_ms FROM lease_hold o WHERE o.look_at_ms > low ORDER BY o.look_at_ms LIMIT 1),
        began, pg_stat_get_xact_tuples_returned(''lease_hold_look''::regclass) - read);
    read := pg_stat_get_xact_tuples_returned(''lease_hold_look''::regclass);
    -- A clock that was set back leaves looks'],
        ARRAY['lease_sweep', 'FROM lease_hold ORDER BY look_at_ms DESC LIMIT most) AS far',
            'FROM lease_hold WHERE look_at_ms > began AND (SELECT looks_through(''far holds'', began))
                ORDER BY look_at_ms DESC LIMIT most) AS far'],
        ARRAY['lease_sweep', '    now := now_ms();
    FOR k IN', '    PERFORM looked_through(''far holds'', began, pg_stat_get_xact_tuples_returned(''lease_hold_look''::regclass) - read);
    now := now_ms();
    low := removed_low(''lease keys'', now);
    read := pg_stat_get_xact_tuples_returned(''lease_key_look''::regclass);
    FOR k IN'],
        ARRAY['lease_sweep', 'SELECT * FROM lease_key WHERE look_at_ms <= now ORDER BY',
            'SELECT * FROM lease_key WHERE look_at_ms > low AND look_at_ms <= now ORDER BY'],
        ARRAY['lease_sweep', '    -- Those whose process has gone.
    FOR w IN
        SELECT * FROM lease_waiter WHERE NOT EXISTS (
            SELECT FROM party p WHERE p.id = lease_waiter.party AND p.alive_until > clock_timestamp())
        ORDER BY id LIMIT most FOR UPDATE SKIP LOCKED',
            '    PERFORM removed_to(''lease keys'', low, (SELECT o.look_at_ms FROM lease_key o WHERE o.look_at_ms > low ORDER BY o.look_at_ms LIMIT 1),
        now, pg_stat_get_xact_tuples_returned(''lease_key_look''::regclass) - read);
    -- Those whose process has gone: of those that went in the last minute at once.
    IF looks_through(''waiters'', now) THEN
        read := pg_stat_get_xact_tuples_returned(''lease_waiter_pkey''::regclass);
        gone := array(SELECT o.id FROM lease_waiter o WHERE NOT EXISTS (
            SELECT FROM party p WHERE p.id = o.party AND p.alive_until > clock_timestamp()) ORDER BY o.id LIMIT most);
        IF cardinality(gone) < most THEN
            PERFORM looked_through(''waiters'', now, pg_stat_get_xact_tuples_returned(''lease_waiter_pkey''::regclass) - read);
        END IF;
    ELSE
        gone := array(SELECT o.id FROM party p CROSS JOIN LATERAL (SELECT i.id FROM lease_waiter i WHERE i.party = p.id OFFSET 0) o
            WHERE p.alive_until <= clock_timestamp() LIMIT most);
    END IF;
    FOR w IN
        SELECT * FROM lease_waiter WHERE id = ANY(gone) AND NOT EXISTS (
            SELECT FROM party p WHERE p.id = lease_waiter.party AND p.alive_until > clock_timestamp())
        ORDER BY id FOR UPDATE SKIP LOCKED'],
        ARRAY['lease_sweep', 'DELETE FROM event e WHERE e.seq <= newest - limit_events()
            AND NOT EXISTS (SELECT FROM event_gap g WHERE e.seq BETWEEN g.first_seq AND g.last_seq);',
            '-- What was removed before is not read again. Every ten minutes it is, for what was committed late.
        low := (SELECT s.events_removed_to FROM store_state s, tidied t
            WHERE t.part = ''events'' AND t.full_at > clock_timestamp() - interval ''10 minutes'');
        read := pg_stat_get_xact_tuples_returned(''event_pkey''::regclass);
        DELETE FROM event e WHERE e.seq > coalesce(low, 0) AND e.seq <= newest - limit_events()
            AND NOT coalesce((SELECT range_agg(int8range(g.first_seq, g.last_seq, ''[]'')) FROM event_gap g) @> e.seq, false);
        IF low IS NULL THEN
            PERFORM looked_through(''events'', now, pg_stat_get_xact_tuples_returned(''event_pkey''::regclass) - read);
        END IF;'],
        ARRAY['events_read', 'AND NOT coalesce((SELECT g.first_seq <= known.seq FROM event_gap g WHERE g.last_seq >= known.seq ORDER BY g.last_seq LIMIT 1), false)',
            'AND NOT coalesce((SELECT range_agg(int8range(g.first_seq, g.last_seq, ''[]'')) FROM event_gap g WHERE g.last_seq > after_seq)
                @> known.seq, false)'],
        ARRAY['job_tidy', 'AND NOT EXISTS (SELECT FROM event_gap g WHERE e.last_seq BETWEEN g.first_seq AND g.last_seq)',
            'AND NOT coalesce((SELECT range_agg(int8range(g.first_seq, g.last_seq, ''[]'')) FROM event_gap g) @> e.last_seq, false)'],
        ARRAY['job_tidy', '    -- From lane to lane that has any, however many lanes and jobs there are.
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
    END LOOP;', '    v_woken := job_wake_due(p_most);'],
        ARRAY['job_tidy', '    v_lanes  integer[];
    v_space  record;', '    v_woken  bigint;'],
        ARRAY['job_tidy', 'RETURN v_seen >= p_most AND v_busy < v_seen;', 'RETURN v_woken >= p_most OR v_seen >= p_most AND v_busy < v_seen;'],
        ARRAY['job_tidy', 'v_low := tidied_low(''finished jobs'');', 'v_low := removed_low(''finished jobs'', v_now);
    v_read := pg_stat_get_xact_tuples_returned(''job_settled_since''::regclass);'],
        ARRAY['job_tidy', 'PERFORM tidied_to(''finished jobs'', v_low, CASE WHEN v_seen >= p_most THEN v_at - 1 ELSE v_now - p_kept_ms END, v_seen);', ''],
        ARRAY['job_tidy', 'count(*), max(o.at_ms) INTO v_old, v_seen, v_at FROM old o;', 'count(*) INTO v_old, v_seen FROM old o;'],
        ARRAY['job_tidy', '    -- Some time after they have come free:', '    PERFORM removed_to(''finished jobs'', v_low, (
            SELECT coalesce(s.put_off_ms, s.since_ms) FROM job_settled s WHERE NOT s.keeps AND coalesce(s.put_off_ms, s.since_ms) > v_low
            ORDER BY coalesce(s.put_off_ms, s.since_ms) LIMIT 1),
        v_now, pg_stat_get_xact_tuples_returned(''job_settled_since''::regclass) - v_read);
    v_low := removed_low(''unique keys'', v_now);
    v_read := pg_stat_get_xact_tuples_returned(''job_unique_until''::regclass);
    -- Some time after they have come free:'],
        ARRAY['job_tidy', 'FROM job_unique o WHERE o.until_ms <= v_now - 3600000', 'FROM job_unique o WHERE o.until_ms > v_low AND o.until_ms <= v_now - 3600000'],
        ARRAY['job_tidy', '    DELETE FROM job_waiter w WHERE',
            '    PERFORM removed_to(''unique keys'', v_low, (SELECT u.until_ms FROM job_unique u WHERE u.until_ms > v_low ORDER BY u.until_ms LIMIT 1),
        v_now, pg_stat_get_xact_tuples_returned(''job_unique_until''::regclass) - v_read);
    DELETE FROM job_waiter w WHERE'],
        ARRAY['job_tidy', '    v_at     bigint;', '    v_at     bigint;
    v_read   bigint;'],
        ARRAY['job_stir', 'AND o.due_ms <= (SELECT now_ms()) ORDER BY', 'AND o.due_ms > (SELECT job_due_low(now_ms())) AND o.due_ms <= (SELECT now_ms()) ORDER BY'],
        ARRAY['job_line_beat', 'AND o.due_ms <= v_now ORDER BY', 'AND o.due_ms > v_low AND o.due_ms <= v_now ORDER BY'],
        ARRAY['job_line_beat', '    v_now bigint := now_ms();', '    v_now bigint := now_ms();
    v_low bigint := job_due_low(v_now);'],
        ARRAY['job_line_beat', 'coalesce((SELECT o.head FROM job_head o WHERE o.lane = l.lane), 0) AS head OFFSET 0) h',
            'coalesce(max(o.head), 0) AS head, coalesce(max(o.back_low), 0) AS back_low FROM job_head o WHERE o.lane = l.lane OFFSET 0) h'],
        ARRAY['job_line_beat', 'o.back AND o.arrival <= h.head', 'o.back AND o.arrival > h.back_low AND o.arrival <= h.head'],
        ARRAY['job_claim', '    v_now     bigint;', '    v_now     bigint;
    v_low     bigint := job_due_low(now_ms());
    v_back    bigint[];   -- by lane: those that came back are above this'],
        -- One by one, whatever the planner believes of these tables.
        ARRAY['job_claim', 'JOIN job_body b ON b.arrival = r.arrival', 'CROSS JOIN LATERAL (SELECT o.* FROM job_body o WHERE o.arrival = r.arrival OFFSET 0) b'],
        ARRAY['job_claim', 's.due_ms <= v_now ORDER BY', 's.due_ms > v_low AND s.due_ms <= v_now ORDER BY'],
        ARRAY['job_claim', 'array_agg(s.head ORDER BY s.nth, s.priority DESC) FILTER (WHERE NOT s.behind),',
            'array_agg(s.head ORDER BY s.nth, s.priority DESC) FILTER (WHERE NOT s.behind),
        array_agg(s.back_low ORDER BY s.nth, s.priority DESC) FILTER (WHERE NOT s.behind),'],
        ARRAY['job_claim', 'INTO v_nth, v_lane, v_rank, v_head, v_behind', 'INTO v_nth, v_lane, v_rank, v_head, v_back, v_behind'],
        ARRAY['job_claim', 'coalesce(h.head, 0) AS head, o.left_over <= 0', 'coalesce(h.head, 0) AS head,
                coalesce((SELECT j.back_low FROM job_head j WHERE j.lane = l.lane), 0) AS back_low, o.left_over <= 0'],
        ARRAY['job_claim', 'AND r.back AND r.arrival <= v_head[i]', 'AND r.back AND r.arrival > v_back[i] AND r.arrival <= v_head[i]'],
        ARRAY['job_claim', 'unnest(v_lane, v_head) AS n(lane, head)', 'unnest(v_lane, v_head, v_back) AS n(lane, head, back_low)'],
        ARRAY['job_claim', 'AND r.back AND r.arrival <= n.head', 'AND r.back AND r.arrival > n.back_low AND r.arrival <= n.head']];
    changed text;
    made    text;
BEGIN
    FOR i IN 1 .. array_length(c_changes, 1) LOOP
        IF c_changes[i][1] IS DISTINCT FROM c_changes[i - 1][1] THEN
            changed := pg_get_functiondef(c_changes[i][1]::regproc);
        END IF;
        made := changed;
        changed := replace(made, c_changes[i][2], c_changes[i][3]);
        IF changed = made THEN
            RAISE EXCEPTION '% is not the function that this migration knows: %', c_changes[i][1], c_changes[i][2];
        END IF;
        IF c_changes[i][1] IS DISTINCT FROM c_changes[i + 1][1] THEN
            EXECUTE changed;
        END IF;
    END LOOP;
END $$;

-- As `0021_plans.sql` has it: what is made anew has only the settings that it is made with.
DO $$
DECLARE
    ours regprocedure;
BEGIN
    FOREACH ours IN ARRAY ARRAY['removed_low(text, bigint)', 'removed_to(text, bigint, bigint, bigint, bigint)', 'looks_through(text, bigint)',
        'looked_through(text, bigint, bigint)', 'job_due_low(bigint)', 'job_wake(integer[], integer)', 'job_wake_due(integer)',
        'job_came_back()', 'job_find_heads()']::regprocedure[]
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET jit = off SET max_parallel_workers_per_gather = 0', ours);
    END LOOP;
END $$;

-- For how long a namespace is granted nothing after `store advance`. It is asked often, so it counts nothing.
CREATE FUNCTION store_closed_ms(p_namespace text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN job_closed_ms();
END $$;

-- Who may call it.
DO $$
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION role_grants() RETURNS TABLE (name text, lowest text)
        LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS %L',
        (SELECT prosrc FROM pg_proc WHERE oid = 'role_grants()'::regprocedure) || ' UNION ALL SELECT ''store_closed_ms'', ''reader''');
END
$$;
