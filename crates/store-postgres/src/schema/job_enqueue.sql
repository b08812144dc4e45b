-- Jobs: enqueueing. What this does not take, it leaves as it is and says so: the caller then decides it by the rules of the core, in a
-- transaction of its own (`job_load`, `job_keep`).

-- Whether a job has ended, or is gone.
CREATE OR REPLACE FUNCTION job_is_over(p_id uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM job_body b LEFT JOIN job_settled s ON s.arrival = b.arrival AND s.state IN (3, 4, 5)
        WHERE b.id = p_id AND s.arrival IS NULL);
END $$;

-- In what a job differs from what is asked for under its id or its unique key; null: in nothing.
CREATE OR REPLACE FUNCTION job_differs(p_job uuid, p_namespace text, p_queue text, p_kind text, p_payload text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_first record;
BEGIN
    SELECT b.payload, b.kind, q.name, q.namespace INTO v_first
        FROM job_body b JOIN job_lane l ON l.lane = b.lane JOIN job_queue q ON q.number = l.queue WHERE b.id = p_job;
    RETURN CASE
        WHEN v_first.namespace <> p_namespace THEN 'namespace'
        WHEN v_first.name <> p_queue THEN format('queue (%s)', v_first.name)
        WHEN v_first.kind <> p_kind THEN format('kind (%s)', v_first.kind)
        WHEN NOT json_same(v_first.payload, p_payload) THEN 'payload'
    END;
END $$;

-- Enqueues jobs, and returns the numbers (from 1) of those that are new, and 0 if a claim waits there, which is to be notified once this is
-- committed (`job_tell_lines`). A job whose id is being enqueued at the same moment by another transaction is a unique violation: tried
-- again, it is found.
CREATE OR REPLACE FUNCTION job_enqueue_batch(
    p_namespace text, p_ids uuid[], p_queues text[], p_priorities smallint[], p_kinds text[], p_payloads text[],
    p_terms jsonb[], p_extras jsonb[], p_at_ms bigint[], p_after_ms bigint[], p_urgent boolean[],
    p_keys uuid[], p_digests uuid[], p_windows bigint[]
) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now     bigint;
    v_won     uuid[];
    v_lane    integer;
    v_mode    smallint;
    v_due     bigint;
    v_arrival bigint;
BEGIN
    IF EXISTS (SELECT FROM namespace_limit l WHERE l.namespace = ANY (ARRAY['', p_namespace])) AND namespace_full(p_namespace, p_queues,
        cardinality(p_ids), (SELECT sum(octet_length(n)) FROM unnest(p_payloads) AS n)) IS NOT NULL THEN
        RETURN;
    END IF;
    IF cardinality(p_ids) = 1 AND p_keys IS NULL THEN
        -- The same as below for the usual one, without what it takes to do it for many.
        SELECT l.lane, q.mode INTO v_lane, v_mode FROM job_queue q JOIN job_lane l ON l.queue = q.number
            WHERE q.namespace = p_namespace AND q.name = p_queues[1] AND l.priority = p_priorities[1];
        IF v_mode <> 2 THEN
            v_now := now_ms();
            INSERT INTO job_body (arrival, id, lane, enqueued_ms, kind, payload, terms, extra)
                VALUES (nextval('job_arrival'), p_ids[1], v_lane, v_now, p_kinds[1], p_payloads[1], p_terms[1], p_extras[1])
                ON CONFLICT (id) DO NOTHING RETURNING arrival INTO v_arrival;
            IF v_arrival IS NULL THEN
                RETURN;
            END IF;
            v_due := coalesce(p_at_ms[1], v_now + p_after_ms[1], 0);
            IF v_due <= v_now THEN
                INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
                    VALUES (v_lane, v_arrival, octet_length(p_payloads[1]), false, false, p_urgent[1]);
            ELSE
                INSERT INTO job_scheduled (arrival, lane, due_ms, bytes, past, urgent)
                    VALUES (v_arrival, v_lane, v_due, octet_length(p_payloads[1]), false, p_urgent[1]);
            END IF;
            INSERT INTO job_change (lane, becomes, count) VALUES (v_lane, CASE WHEN v_due <= v_now THEN 0 ELSE 1 END, 1);
            INSERT INTO job_event (last_seq, at_ms, namespace, what, seqs, ids, names, kinds, flags)
                SELECT e, v_now, p_namespace, 1, array[e], p_ids, p_queues, p_kinds, array[v_due > v_now]
                FROM nextval('event_seq') AS e;
            RETURN NEXT 1::bigint;
            IF EXISTS (SELECT FROM job_waiter w WHERE w.namespace = p_namespace AND w.queue = p_queues[1]) THEN
                RETURN NEXT 0::bigint;
            END IF;
            RETURN;
        END IF;
    END IF;
    IF EXISTS (
        SELECT FROM unnest(p_queues, p_priorities) AS n(name, priority)
        LEFT JOIN job_queue q ON q.namespace = p_namespace AND q.name = n.name
        LEFT JOIN job_lane l ON l.queue = q.number AND l.priority = n.priority
        WHERE l.lane IS NULL
    ) THEN
        INSERT INTO job_queue (namespace, name)
            SELECT DISTINCT p_namespace, n.name FROM unnest(p_queues) AS n(name)
            ORDER BY 2
            ON CONFLICT DO NOTHING;
        INSERT INTO job_lane (queue, priority)
            SELECT DISTINCT q.number, n.priority FROM unnest(p_queues, p_priorities) AS n(name, priority)
            JOIN job_queue q ON q.namespace = p_namespace AND q.name = n.name
            ORDER BY 1, 2
            ON CONFLICT DO NOTHING;
    END IF;
    -- Whether a job is there is asked one by one, by a value: of EXISTS the planner may make a look at all there are.
    -- As `next_event` has it: first the number of the transaction, then those of its events.
    PERFORM pg_current_xact_id();
    v_now := now_ms();
    IF p_keys IS NOT NULL THEN
        -- The jobs of a call arrive in its order. One that the rules may yet make must not come after those behind it: then they decide
        -- about the whole call. That is so where the claim of the job that has the key has expired and the sweep has not noted it, where an
        -- id comes twice, and where a key comes twice and may be refused to the first and given to the second. (One whose key comes free
        -- only after this arrives later.)
        IF EXISTS (
            SELECT FROM unnest(p_keys) AS n(key)
            CROSS JOIN LATERAL (SELECT o.job, o.until_ms FROM job_unique o WHERE o.namespace = p_namespace AND o.key = n.key OFFSET 0) u
            CROSS JOIN LATERAL (SELECT o.deadline_ms FROM job_running o WHERE o.id = u.job OFFSET 0) r
            WHERE u.until_ms <= v_now AND r.deadline_ms <= v_now
        ) OR (SELECT count(DISTINCT n.id) < count(*) FROM unnest(p_ids) AS n(id)) OR EXISTS (
            SELECT FROM unnest(p_ids, p_queues, p_keys) AS n(id, name, key)
            LEFT JOIN job_queue q ON q.namespace = p_namespace AND q.name = n.name
            WHERE n.key IS NOT NULL
            GROUP BY n.key
            HAVING count(*) > 1 AND bool_or(coalesce(q.mode, 2) = 2 OR (SELECT b.id FROM job_body b WHERE b.id = n.id) IS NOT NULL)
        ) THEN
            RETURN;
        END IF;
        -- A job with a unique key is made only if it got the key; of two in one call, the first gets it.
        WITH first AS (
            SELECT DISTINCT ON (n.key) n.*
            FROM unnest(p_ids, p_queues, p_keys, p_digests, p_windows) WITH ORDINALITY AS n(id, name, key, digest, span, nth)
            WHERE n.key IS NOT NULL
            ORDER BY n.key, n.nth
        ), won AS (
            INSERT INTO job_unique AS u (namespace, key, job, payload, until_ms)
                SELECT p_namespace, n.key, n.id, n.digest, v_now + n.span
                FROM first n
                JOIN job_queue q ON q.namespace = p_namespace AND q.name = n.name AND q.mode <> 2
                WHERE (SELECT b.id FROM job_body b WHERE b.id = n.id) IS NULL
                ORDER BY n.key
                ON CONFLICT (namespace, key) DO UPDATE SET job = excluded.job, payload = excluded.payload,
                    until_ms = excluded.until_ms
                    WHERE u.until_ms <= v_now AND job_is_over(u.job)
                RETURNING job
        )
        SELECT coalesce(array_agg(job), '{}') INTO v_won FROM won;
    END IF;
    RETURN QUERY
    WITH fresh AS (
        -- The same id twice in one call: the first is the one.
        SELECT DISTINCT ON (n.id) n.*, l.lane, coalesce(n.at_ms, v_now + n.after_ms, 0) AS due_ms
        FROM unnest(p_ids, p_queues, p_priorities, p_kinds, p_payloads, p_terms, p_extras, p_at_ms, p_after_ms, p_urgent, p_keys)
            WITH ORDINALITY AS n(id, name, priority, kind, payload, terms, extra, at_ms, after_ms, urgent, key, nth)
        JOIN job_queue q ON q.namespace = p_namespace AND q.name = n.name
        JOIN job_lane l ON l.queue = q.number AND l.priority = n.priority
        -- A job that got its key is made, whatever has become of the queue since: a key without its job would block all others.
        WHERE CASE WHEN n.key IS NOT NULL THEN n.id = ANY(v_won)
            ELSE q.mode <> 2 AND (SELECT b.id FROM job_body b WHERE b.id = n.id) IS NULL END
        ORDER BY n.id, n.nth
    ), new AS MATERIALIZED (
        SELECT f.*, nextval('job_arrival') AS arrival FROM (SELECT * FROM fresh ORDER BY nth) f
    ), body AS (
        INSERT INTO job_body (arrival, id, lane, enqueued_ms, kind, payload, terms, extra)
            SELECT n.arrival, n.id, n.lane, v_now, n.kind, n.payload, n.terms, n.extra FROM new n
    ), ready AS (
        INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
            SELECT n.lane, n.arrival, octet_length(n.payload), false, false, n.urgent FROM new n WHERE n.due_ms <= v_now
    ), later AS (
        INSERT INTO job_scheduled (arrival, lane, due_ms, bytes, past, urgent)
            SELECT n.arrival, n.lane, n.due_ms, octet_length(n.payload), false, n.urgent FROM new n WHERE n.due_ms > v_now
    ), counted AS (
        INSERT INTO job_change (lane, becomes, count)
            SELECT n.lane, CASE WHEN n.due_ms <= v_now THEN 0 ELSE 1 END, count(*) FROM new n GROUP BY 1, 2
    ), told AS (
        INSERT INTO job_event (last_seq, at_ms, namespace, what, seqs, ids, names, kinds, flags)
            SELECT max(e.seq), v_now, p_namespace, 1, array_agg(e.seq), array_agg(e.id), job_same(array_agg(e.name)),
                job_same(array_agg(e.kind)), CASE WHEN bool_or(e.later) THEN array_agg(e.later) END
            FROM (SELECT nextval('event_seq') AS seq, n.id, n.name, n.kind, n.due_ms > v_now AS later FROM new n OFFSET 0) e
            HAVING count(*) > 0
    )
    SELECT n.nth FROM new n;
    IF found AND EXISTS (SELECT FROM job_waiter w WHERE w.namespace = p_namespace AND w.queue = ANY(p_queues)) THEN
        RETURN NEXT 0::bigint;
    END IF;
END $$;
