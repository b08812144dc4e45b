-- Jobs for the rules of the core: all that a decision needs, locked; and the same for reading.

-- Locks the rows of these jobs, and the unique keys, in the stated order. A job that changes its state while it is waited for is looked for
-- again. p_ends: a claim may be ended, so a fence on it is waited for here, while its row is free for its holder's renewals, and not when
-- it is to be deleted.
CREATE OR REPLACE FUNCTION job_lock(p_ids uuid[], p_namespace text, p_keys uuid[], p_ends boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_left uuid[];
BEGIN
    PERFORM FROM (SELECT DISTINCT n.key FROM unnest(p_keys) AS n(key) ORDER BY n.key OFFSET 0) s
        CROSS JOIN LATERAL (SELECT FROM job_unique u WHERE u.namespace = p_namespace AND u.key = s.key FOR UPDATE) l;
    SELECT array_agg(b.id) INTO v_left FROM job_body b WHERE b.id = ANY(p_ids);
    WHILE v_left IS NOT NULL LOOP
        IF p_ends THEN
            PERFORM FROM job_running r WHERE r.id = ANY(v_left) ORDER BY r.id FOR UPDATE;
        END IF;
        WITH locked AS (SELECT r.id FROM job_running r WHERE r.id = ANY(v_left) ORDER BY r.id FOR NO KEY UPDATE)
        SELECT array_agg(id) INTO v_left FROM unnest(v_left) AS id WHERE id NOT IN (SELECT id FROM locked);
        WITH locked AS (
            SELECT b.id FROM (SELECT o.* FROM job_body o WHERE o.id = ANY(v_left) ORDER BY o.id OFFSET 0) b
            LEFT JOIN LATERAL (SELECT true AS found FROM job_ready r WHERE r.lane = b.lane AND r.arrival = b.arrival FOR UPDATE) y ON true
            LEFT JOIN LATERAL (SELECT true AS found FROM job_scheduled s WHERE s.arrival = b.arrival FOR UPDATE) c ON true
            LEFT JOIN LATERAL (SELECT true AS found FROM job_settled s WHERE s.arrival = b.arrival FOR UPDATE) e ON true
            WHERE y.found OR c.found OR e.found)
        SELECT array_agg(id) INTO v_left FROM unnest(v_left) AS id WHERE id NOT IN (SELECT id FROM locked);
        SELECT array_agg(b.id) INTO v_left FROM job_body b WHERE b.id = ANY(v_left);
    END LOOP;
END $$;

-- The newest token that was given to any job.
CREATE OR REPLACE FUNCTION job_newest() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM job_token);
END $$;

CREATE OR REPLACE FUNCTION job_masked(p_hash uuid, p_masks boolean) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_masks THEN '00000000-0000-0000-0000-000000000000'::uuid ELSE p_hash END
$$;

-- Everything about these jobs, a row of JSON each, after a row that tells the moment. p_notes: also their checkpoints and progress.
-- p_masks: without the hashes of hold ids.
CREATE OR REPLACE FUNCTION job_rows(p_ids uuid[], p_namespace text, p_keys uuid[], p_queues text[], p_notes boolean, p_masks boolean)
RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY SELECT jsonb_build_object(
        'now_ms', now_ms(), 'newest', job_newest(), 'closed_ms', store_closed_ms(p_namespace),
        'queues', (SELECT jsonb_agg(jsonb_build_object('namespace', q.namespace, 'name', q.name, 'mode', q.mode) ORDER BY q.number)
            FROM job_queue q WHERE q.namespace = p_namespace AND q.name = ANY(p_queues)),
        'room', CASE WHEN cardinality(p_queues) > 0 THEN namespace_room(p_namespace, p_queues) END,
        'uniques', (SELECT jsonb_agg(jsonb_build_object('key', u.key, 'job', u.job, 'payload', u.payload, 'until_ms', u.until_ms))
            FROM (SELECT DISTINCT o.key FROM unnest(p_keys) AS o(key)) n
            CROSS JOIN LATERAL (SELECT o.* FROM job_unique o WHERE o.namespace = p_namespace AND o.key = n.key OFFSET 0) u))::text;
    RETURN QUERY
    SELECT jsonb_build_object(
        'arrival', b.arrival, 'id', b.id, 'namespace', q.namespace, 'queue', q.name, 'mode', q.mode, 'priority', l.priority,
        'kind', b.kind, 'payload', b.payload, 'enqueued_ms', b.enqueued_ms, 'terms', b.terms, 'extra', b.extra,
        'state', CASE WHEN r.id IS NOT NULL THEN 2 WHEN y.arrival IS NOT NULL THEN 0 WHEN c.arrival IS NOT NULL THEN 1
            ELSE s.state END,
        'due_ms', c.due_ms,
        'token', coalesce(r.token, s.token, p.token, 0),
        'since_ms', coalesce(r.since_ms, s.since_ms, p.since_ms, b.enqueued_ms),
        'deadline_ms', r.deadline_ms,
        'claim', CASE WHEN r.id IS NOT NULL THEN jsonb_build_object('hash', job_masked(r.hash, p_masks), 'owner', r.owner,
            'ttl_ms', r.ttl_ms, 'since_ms', r.since_ms, 'asked', r.asked) END,
        'last', CASE WHEN s.hash IS NOT NULL THEN jsonb_build_object('token', s.token, 'hash', job_masked(s.hash, p_masks),
            'owner', s.owner, 'began_ms', s.began_ms, 'ended_ms', s.since_ms, 'late', s.late) END,
        'failures', coalesce(p.failures, 0), 'crashes', coalesce(p.crashes, 0), 'undo', coalesce(p.undo, 0),
        'trail', CASE WHEN NOT p_masks OR p.trail = 'null' THEN p.trail ELSE jsonb_set(p.trail, '{attempts}', (
            SELECT coalesce(jsonb_agg(jsonb_set(a.value, '{hash}', '[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]') ORDER BY a.ordinality), '[]')
            FROM jsonb_array_elements(p.trail->'attempts') WITH ORDINALITY AS a)) END,
        'has_result', s.result IS NOT NULL,
        'result', CASE WHEN p_notes THEN s.result END,
        'notes', (SELECT jsonb_object_agg(n.what, CASE WHEN p_notes THEN encode(n.bytes, 'hex') END)
            FROM job_note n WHERE n.arrival = b.arrival),
        'effects', (SELECT jsonb_agg(e.effect) FROM job_effect e WHERE e.arrival = b.arrival),
        'victim', CASE WHEN b.extra ? 'yield_within_ms' THEN (SELECT v.id FROM job_running v
            WHERE v.asked IS NOT NULL AND v.asked->'notice'->>'contender' = 'job/' || b.id LIMIT 1) END)::text
    -- One by one: see `job_complete_batch`.
    FROM (SELECT DISTINCT o.id FROM unnest(p_ids) AS o(id)) n
    CROSS JOIN LATERAL (SELECT o.* FROM job_body o WHERE o.id = n.id OFFSET 0) b
    CROSS JOIN LATERAL (SELECT o.* FROM job_lane o WHERE o.lane = b.lane OFFSET 0) l
    CROSS JOIN LATERAL (SELECT o.* FROM job_queue o WHERE o.number = l.queue OFFSET 0) q
    LEFT JOIN LATERAL (SELECT o.* FROM job_running o WHERE o.id = b.id OFFSET 0) r ON true
    LEFT JOIN LATERAL (SELECT o.* FROM job_ready o WHERE o.lane = b.lane AND o.arrival = b.arrival OFFSET 0) y ON true
    LEFT JOIN LATERAL (SELECT o.* FROM job_scheduled o WHERE o.arrival = b.arrival OFFSET 0) c ON true
    LEFT JOIN LATERAL (SELECT o.* FROM job_settled o WHERE o.arrival = b.arrival OFFSET 0) s ON true
    LEFT JOIN LATERAL (SELECT o.* FROM job_past o WHERE o.arrival = b.arrival OFFSET 0) p ON true
    ORDER BY b.arrival;
END $$;

-- Jobs to decide about: locked, and as they then are. A lock is waited for p_lock_ms at most. p_ends: what is decided may end their claims.
CREATE OR REPLACE FUNCTION job_load(
    p_ids uuid[], p_namespace text, p_keys uuid[], p_queues text[], p_notes boolean, p_ends boolean, p_lock_ms bigint)
RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lock_timeout', greatest(p_lock_ms, 1)::text, true);
    PERFORM notice_server();
    PERFORM job_honour_suspension();
    PERFORM job_lock(p_ids, p_namespace, p_keys, p_ends);
    -- A clock that was set back leaves deadlines that are further away than they can be.
    UPDATE job_running r SET deadline_ms = now_ms() + r.ttl_ms
        WHERE r.id = ANY(p_ids) AND r.deadline_ms > now_ms() + r.ttl_ms;
    RETURN QUERY SELECT * FROM job_rows(p_ids, p_namespace, p_keys, p_queues, p_notes, false);
END $$;

-- Jobs to read.
CREATE OR REPLACE FUNCTION job_look(p_ids uuid[], p_namespace text, p_notes boolean) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY SELECT * FROM job_rows(p_ids, p_namespace, NULL, NULL, p_notes, true);
END $$;

-- New tokens.
CREATE OR REPLACE FUNCTION job_draw(p_count integer) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY SELECT nextval('job_token') FROM generate_series(1, p_count);
END $$;

-- The job of this namespace that is worked on under a token. Jobs of other namespaces are not found.
CREATE OR REPLACE FUNCTION job_under(p_namespace text, p_token bigint) RETURNS uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT r.id FROM job_running r JOIN job_lane l ON l.lane = r.lane
    JOIN job_queue q ON q.number = l.queue AND q.namespace = p_namespace
    WHERE r.token = p_token
$$;

-- A program that decides about jobs has them locked for about a round trip. One that is stopped there, or whose machine has vanished, would
-- keep them from all others: after a while the server ends its session. The setting `fencehold.job_lock_idle_timeout_ms`; never longer than
-- what is in force already.
CREATE OR REPLACE FUNCTION job_idle_limit() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c_setting CONSTANT text := 'idle_in_transaction_session_timeout';
    wanted   bigint := coalesce(nullif(current_setting('fencehold.job_lock_idle_timeout_ms', true), '')::bigint, 5000);
    in_force bigint := extract(epoch FROM current_setting(c_setting)::interval) * 1000;
BEGIN
    IF wanted > 0 AND (in_force = 0 OR in_force > wanted) THEN
        PERFORM set_config(c_setting, wanted::text, true);
    END IF;
END $$;
