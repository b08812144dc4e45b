-- Jobs: claims that wait for them, and callers that wait for their end. A notification is sent only where a session is known to wait, and
-- where possible after the commit that it is about.
--
-- Here and in the other files of jobs, each lane is read by an `ORDER BY … LIMIT` of its own: the planner assumes that what is asked for is
-- soon found, wherever it begins, and would read a million jobs of other queues to learn that this one is empty. And what is due is compared
-- with one moment, `(SELECT now_ms())`: a clock that is read for every row is no condition of an index.

-- Up to where no delayed job is left, for callers that do not take the notes. An old note is not used: the maintenance may have ended.
CREATE OR REPLACE FUNCTION job_due_low(p_now bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce((SELECT t.low FROM tidied t
        WHERE t.part = 'due jobs' AND t.low < p_now AND t.at > clock_timestamp() - interval '1 minute'), -9223372036854775808);
END $$;

-- How many jobs of a queue are ready: `p_most` and 10 000 at most are counted. Those that are about to be claimed count too: the claim that
-- takes them still waits. (A claim that runs while schema 39 replaces what it calls names no bound.)
CREATE OR REPLACE FUNCTION job_on_offer(p_queue integer, p_most bigint DEFAULT 256) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    c_most CONSTANT bigint := greatest(least(p_most, 10000), 0);
BEGIN
    RETURN (SELECT count(*) FROM (
        SELECT FROM job_lane l
        LEFT JOIN LATERAL (SELECT o.head, o.back_low FROM job_head o WHERE o.lane = l.lane OFFSET 0) h ON true
        CROSS JOIN LATERAL (
            (SELECT FROM job_ready o WHERE o.lane = l.lane AND o.arrival > coalesce(h.head, 0) ORDER BY o.arrival LIMIT c_most)
            UNION ALL
            (SELECT FROM job_ready o WHERE o.lane = l.lane AND o.back AND o.arrival > h.back_low AND o.arrival <= h.head
                ORDER BY o.arrival LIMIT c_most)) r
        WHERE l.queue = p_queue LIMIT c_most) s);
END $$;

-- Notifies the claims that wait in these queues and for which there is a job, once all before them have had what they want: they take them
-- side by side. Where no claim waits, as nearly always while there is work, nothing is sent.
CREATE OR REPLACE FUNCTION job_stir(p_namespace text, p_queues text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM job_waiter w WHERE w.namespace = p_namespace AND w.queue = ANY(p_queues)) THEN
        PERFORM tell('line/' || f.hash) FROM (
            SELECT DISTINCT s.hash FROM job_queue q CROSS JOIN LATERAL (
                SELECT array_agg(n.hash) AS hashes, array_agg(n.ahead) AS aheads, coalesce(max(n.ahead) + 1, 0) AS most FROM (
                    SELECT o.hash,
                        coalesce(sum(o.wants) OVER (ORDER BY o.since_ms, o.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS ahead
                    FROM job_waiter o
                    WHERE o.namespace = p_namespace AND o.queue = q.name AND o.beat > clock_timestamp() - interval '5 seconds'
                        AND o.until_ms > now_ms()
                    ORDER BY o.since_ms, o.place LIMIT 64) n
                OFFSET 0) w CROSS JOIN LATERAL (
                SELECT job_on_offer(q.number, w.most) AS many, EXISTS (
                    SELECT FROM job_lane l CROSS JOIN LATERAL (
                        SELECT FROM job_scheduled o WHERE o.lane = l.lane AND o.due_ms > (SELECT job_due_low(now_ms()))
                            AND o.due_ms <= (SELECT now_ms()) ORDER BY o.due_ms LIMIT 1) s
                    WHERE l.queue = q.number) AS due
                OFFSET 0) offer CROSS JOIN LATERAL unnest(w.hashes, w.aheads) AS s(hash, ahead)
            WHERE q.namespace = p_namespace AND q.name = ANY(p_queues) AND q.mode <> 1
                AND (s.ahead < offer.many OR s.ahead = 0 AND offer.due)) f;
    END IF;
END $$;

-- The same for the queues of these lanes.
CREATE OR REPLACE FUNCTION job_stir_lanes(p_lanes integer[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM job_stir(s.namespace, s.names) FROM (
        SELECT q.namespace, array_agg(DISTINCT q.name) AS names FROM job_lane l JOIN job_queue q ON q.number = l.queue
        WHERE l.lane = ANY(p_lanes) GROUP BY q.namespace) s;
END $$;

-- The same as `job_stir` for queues by pairs, in a transaction that does nothing else. Transactions that notify commit one after the other
-- in the whole server: this one waits for no disk while the others wait for it. If it is lost, waiting claims find the jobs by looking.
CREATE OR REPLACE FUNCTION job_tell_lines(p_namespaces text[], p_queues text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM job_stir(s.namespace, s.queues) FROM (
        SELECT n.namespace, array_agg(n.queue) AS queues FROM unnest(p_namespaces, p_queues) AS n(namespace, queue) GROUP BY 1) s;
END $$;

-- Makes a claim wait, or take the place of an earlier sending of the same claim. The moment, and the name of this sending.
CREATE OR REPLACE FUNCTION job_line_up(
    p_namespace text, p_queues text[], p_hash uuid, p_wants integer, p_wait_ms bigint, p_waited_before_ms bigint
) RETURNS TABLE (now_ms bigint, sending uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_now     bigint := now_ms();
    v_sending uuid := gen_random_uuid();
    v_again   boolean;
BEGIN
    WITH stands AS (
        INSERT INTO job_waiter AS w (namespace, queue, hash, sending, wants, since_ms, until_ms, beat)
            SELECT p_namespace, n.name, p_hash, v_sending, p_wants, v_now - p_waited_before_ms, v_now + p_wait_ms, clock_timestamp()
            FROM unnest(p_queues) AS n(name)
            ORDER BY n.name
            ON CONFLICT (namespace, queue, hash) DO UPDATE SET sending = excluded.sending, wants = excluded.wants,
                until_ms = excluded.until_ms, since_ms = least(w.since_ms, excluded.since_ms), beat = excluded.beat
            RETURNING w.xmax <> 0 AS again
    )
    SELECT bool_or(again) INTO v_again FROM stands;
    -- The earlier sending learns that it has lost its place.
    IF v_again THEN
        PERFORM tell('line/' || p_hash);
    END IF;
    RETURN QUERY SELECT v_now, v_sending;
END $$;

-- Removes a waiting claim, and has the next one look.
CREATE OR REPLACE FUNCTION job_leave_line(p_namespace text, p_hash uuid, p_sending uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_queues text[];
BEGIN
    WITH gone AS (
        DELETE FROM job_waiter w WHERE w.namespace = p_namespace AND w.hash = p_hash AND w.sending = p_sending RETURNING w.queue
    )
    SELECT array_agg(queue) INTO v_queues FROM gone;
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM job_stir(p_namespace, v_queues);
END $$;

-- These sendings are still alive. Returns the ones that should look: their time is up, their place is taken, or there is a job for them.
CREATE OR REPLACE FUNCTION job_line_beat(p_sendings uuid[]) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now bigint := now_ms();
    v_low bigint := job_due_low(v_now);
BEGIN
    -- One that another transaction has locked is about to go, or to become another sending.
    UPDATE job_waiter w SET beat = clock_timestamp() WHERE w.ctid = ANY(array(
        SELECT o.ctid FROM job_waiter o WHERE o.sending = ANY(p_sendings) FOR NO KEY UPDATE SKIP LOCKED));
    RETURN QUERY
    WITH stands AS MATERIALIZED (
        SELECT w.* FROM job_waiter w WHERE w.sending = ANY(p_sendings)
    ), something AS MATERIALIZED (
        -- Looked for once a queue, however many claims wait in it.
        SELECT n.namespace, n.queue FROM (SELECT DISTINCT w.namespace, w.queue FROM stands w) n
        JOIN job_queue q ON q.namespace = n.namespace AND q.name = n.queue AND q.mode <> 1
        JOIN job_lane l ON l.queue = q.number
        CROSS JOIN LATERAL (
            SELECT coalesce(max(o.head), 0) AS head, coalesce(max(o.back_low), 0) AS back_low FROM job_head o WHERE o.lane = l.lane OFFSET 0) h
        CROSS JOIN LATERAL (
            (SELECT FROM job_ready o WHERE o.lane = l.lane AND o.arrival > h.head ORDER BY o.arrival LIMIT 1)
            UNION ALL
            (SELECT FROM job_ready o WHERE o.lane = l.lane AND o.back AND o.arrival > h.back_low AND o.arrival <= h.head ORDER BY o.arrival LIMIT 1)
            UNION ALL
            (SELECT FROM job_scheduled o WHERE o.lane = l.lane AND o.due_ms > v_low AND o.due_ms <= v_now ORDER BY o.due_ms LIMIT 1)) s
    )
    SELECT s.sending FROM unnest(p_sendings) AS s(sending) WHERE s.sending NOT IN (SELECT w.sending FROM stands w)
    UNION
    SELECT w.sending FROM stands w WHERE w.until_ms <= v_now
    UNION
    SELECT w.sending FROM stands w JOIN something h ON h.namespace = w.namespace AND h.queue = w.queue;
END $$;

-- Notifies those who wait for the end of these jobs.
CREATE OR REPLACE FUNCTION job_tell_end(p_ids uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM job_awaited) THEN
        PERFORM tell('job/' || a.id) FROM job_awaited a WHERE a.id = ANY(p_ids);
    END IF;
END $$;

-- From now on there is a notification when this job ends.
CREATE OR REPLACE FUNCTION job_await(p_id uuid, p_wait_ms bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    INSERT INTO job_awaited AS a (id, until) VALUES (p_id, clock_timestamp() + make_interval(secs => p_wait_ms / 1000.0 + 60))
        ON CONFLICT (id) DO UPDATE SET until = greatest(a.until, excluded.until)
$$;
