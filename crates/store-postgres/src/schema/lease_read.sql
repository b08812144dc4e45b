-- Leases: reading.

-- Whether an open transaction has a fence on this key. Until it ends the key is not granted, also after the holder's deadline: then the key
-- is held, for those who read and for those who ask.
CREATE OR REPLACE FUNCTION lease_fenced(of_key bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = 1179142470
            AND l.objid = (of_key % 2147483647)
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()));
END $$;

-- What may be shown of a key: everything but the proof of a hold.
CREATE OR REPLACE FUNCTION lease_view(k lease_key, now bigint) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'key', k.key,
        'token', k.counter,
        'waiters', (SELECT count(*) FROM lease_line l WHERE l.key_id = k.id AND l.until_ms > now),
        'endings', coalesce((
            SELECT jsonb_agg(jsonb_build_object('token', e.token, 'owner', e.owner, 'task', e.task, 'how', e.how,
                'at_wall_ms', e.at_ms, 'by', e.ended_by, 'reason', e.reason) ORDER BY e.token)
            FROM lease_ending e WHERE e.key_id = k.id), '[]'),
        'holder', (
            SELECT jsonb_build_object(
                'owner', h.owner, 'task', h.task, 'ttl_ms', h.ttl_ms, 'max_age_ms', h.max_age_ms, 'priority', h.priority,
                'age_ms', greatest(now - h.since_ms, 0), 'since_wall_ms', h.since_ms,
                'remaining_ms', greatest(lease_left(h, s.suspended_from_ms, now), 0),
                'renewed_ms_ago', greatest(now - (h.deadline_ms - h.lasts_ms), 0),
                'notice', CASE WHEN asked.still THEN lease_notice(h) END,
                'yield_in_ms', CASE WHEN asked.still THEN lease_yield_in_ms(h, now) END)
            FROM store_state s, lease_hold h
            -- A notice whose contender has gone counts for nothing.
            LEFT JOIN LATERAL (SELECT true AS still FROM lease_line l
                WHERE l.waiter = h.notice_waiter AND l.key_id = h.key_id AND l.until_ms > now) AS asked ON true
            WHERE h.key_id = k.id AND (lease_left(h, s.suspended_from_ms, now) > 0 OR lease_fenced(k.id))))
$$;

CREATE OR REPLACE FUNCTION lease_get(of_namespace text, of_key text) RETURNS jsonb
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT lease_view(k, now_ms()) FROM lease_key k WHERE k.namespace = of_namespace AND k.key = of_key
$$;

-- A page of keys, in the order in which they were made. `looks` bounds how many are read.
CREATE OR REPLACE FUNCTION lease_list(
    of_namespace text, of_prefix text, of_owner text, of_task text, free_too boolean, after_id bigint, most integer,
    looks integer, of_task_prefix text DEFAULT NULL, OUT leases jsonb, OUT next bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint := now_ms();
    suspended bigint := (SELECT suspended_from_ms FROM store_state);
    ids bigint[];
    seen bigint[];
BEGIN
    SELECT array_agg(looked.id) INTO seen FROM (
        SELECT k.id FROM lease_key k
        WHERE k.namespace = of_namespace AND k.id > after_id
            AND (free_too OR EXISTS (SELECT FROM lease_hold h WHERE h.key_id = k.id))
        ORDER BY k.id LIMIT looks) AS looked;
    SELECT array_agg(found.id) INTO ids FROM (
        SELECT k.id FROM lease_key k
        LEFT JOIN lease_hold h ON h.key_id = k.id AND (lease_left(h, suspended, now) > 0 OR lease_fenced(k.id))
        WHERE k.id = ANY (seen) AND (free_too OR h.key_id IS NOT NULL)
            AND (of_owner IS NULL OR h.owner = of_owner)
            AND (of_task IS NULL OR h.task = of_task)
            AND (of_task_prefix IS NULL OR task_covers(of_task_prefix, h.task))
            AND (of_prefix IS NULL OR starts_with(k.key, of_prefix))
        ORDER BY k.id LIMIT most + 1) AS found;
    SELECT coalesce(jsonb_agg(lease_view(k, now) ORDER BY k.id), '[]') INTO leases
    FROM lease_key k WHERE k.id = ANY (ids[:most]);
    next := CASE
        WHEN cardinality(ids) > most THEN ids[most]
        WHEN cardinality(seen) = looks THEN seen[looks]
    END;
END $$;

-- How much there is, of every namespace.
CREATE OR REPLACE FUNCTION lease_status() RETURNS TABLE (keys bigint, held bigint, waiters bigint, last_event bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT (SELECT count(*) FROM lease_key),
        (SELECT count(*) FROM lease_hold),
        (SELECT count(*) FROM lease_waiter WHERE answer IS NULL AND until_ms > now_ms()),
        events_newest()
$$;
