-- Fences, for users' own transactions: from any language, one call before the write that a lease protects.
--
--   FH001  stale: the key, or the resource, has a newer token than the one that was shown
--   FH002  ended: it is the newest token, but its lease was released, revoked, or ended by `store advance`
--   FH003  unknown: the token was never given here, so the store was rewound, or another store gave it

-- A transaction that has a fence and does nothing keeps others waiting: after a while the server ends the session. The setting
-- `fencehold.fence_idle_timeout_ms`; never longer than what is in force already.
CREATE OR REPLACE FUNCTION fence_idle_limit() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    wanted bigint := coalesce(nullif(current_setting('fencehold.fence_idle_timeout_ms', true), '')::bigint, 300000);
    in_force bigint := extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000;
BEGIN
    IF wanted > 0 AND (in_force = 0 OR in_force > wanted) THEN
        PERFORM set_config('idle_in_transaction_session_timeout', wanted::text, true);
    END IF;
END $$;

-- Lists what a transaction has a fence on, so that those who find it locked can learn by whom. The table of locks is the whole server's,
-- and small: of one transaction it gets a thousand. A fence holds without being listed.
CREATE OR REPLACE FUNCTION fence_listed(class integer, number bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    listed CONSTANT integer := coalesce(nullif(current_setting('fencehold.fences_listed', true), '')::integer, 0);
BEGIN
    IF listed < 1000 THEN
        PERFORM pg_advisory_xact_lock_shared(class, (number % 2147483647)::integer);
        PERFORM set_config('fencehold.fences_listed', (listed + 1)::text, true);
    END IF;
END $$;

-- Passes under the newest token of a key, unless its lease was released or ended by force; one that expired passes, as long as the key was
-- not granted since. Until the transaction ends, the key is not granted; its holder's renewals go on.
CREATE OR REPLACE FUNCTION fence(key text, token bigint, namespace text DEFAULT 'default') RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    k lease_key;
    last lease_ending;
    shown bigint := fence.token;
    newest bigint;
BEGIN
    PERFORM fence_idle_limit();
    SELECT * INTO k FROM lease_key l WHERE l.namespace = fence.namespace AND l.key = fence.key FOR SHARE;
    newest := greatest(k.counter, CASE WHEN k.id IS NULL THEN floor_of(fence.namespace) END);
    IF shown > greatest(newest, floor_of(fence.namespace)) THEN
        RAISE EXCEPTION USING ERRCODE = 'FH003', CONSTRAINT = 'FH003',
            MESSAGE = format('%s: token %s was never given here; the newest is %s', fence.key, shown, newest),
            HINT = 'Roll back. The store was rewound, or this token is another store''s: see `fencehold store advance`.';
    END IF;
    IF shown IS DISTINCT FROM k.counter THEN
        RAISE EXCEPTION USING ERRCODE = 'FH001', CONSTRAINT = 'FH001',
            MESSAGE = format('%s: token %s is stale; the newest is %s', fence.key, shown, newest),
            DETAIL = coalesce(
                (SELECT format('%s holds the key.', h.owner) FROM lease_hold h WHERE h.key_id = k.id), 'Nobody holds the key.'),
            HINT = 'Roll back: somebody else has taken the key since, or ended this hold by force.';
    END IF;
    IF NOT EXISTS (SELECT FROM lease_hold h WHERE h.key_id = k.id) THEN
        SELECT * INTO last FROM lease_ending e WHERE e.key_id = k.id AND e.token = shown;
        -- One that had to yield and let its time run out says who asked for that; one that was given back does not.
        IF last.how IS NULL OR last.how NOT IN ('expired', 'aged_out', 'yielded') OR last.how = 'yielded' AND last.ended_by IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'FH002', CONSTRAINT = 'FH002',
                MESSAGE = format('%s: the lease under token %s has ended: it was %s', fence.key, shown,
                    coalesce(replace(last.how, '_', ' '), 'forgotten')),
                HINT = 'Roll back, and acquire the lease anew.';
        END IF;
    END IF;
    -- So that those who find the key locked can learn by whom.
    PERFORM fence_listed(1179142470, k.id);
END $$;

CREATE OR REPLACE FUNCTION fence_stale(of_resource text, shown bigint, newest bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'FH001', CONSTRAINT = 'FH001',
        MESSAGE = format('%s: token %s is stale; %s was shown before', of_resource, coalesce(shown::text, 'null'), newest),
        HINT = 'Roll back: somebody else has taken the lease since.';
END $$;

-- Raises the mark of a resource: from the commit on, smaller tokens are refused, also before anything was written under this one. The first
-- thing to do under a new lease.
CREATE OR REPLACE FUNCTION raise_mark(resource text, token bigint, namespace text DEFAULT 'default') RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    newest bigint;
BEGIN
    -- Until the transaction ends, all others that show a token for this resource wait.
    PERFORM fence_idle_limit();
    INSERT INTO fence_mark AS m (namespace, resource, token)
    VALUES (raise_mark.namespace, raise_mark.resource, raise_mark.token)
    ON CONFLICT (namespace, resource) DO UPDATE SET token = greatest(m.token, excluded.token)
    RETURNING m.token INTO newest;
    IF newest > raise_mark.token THEN
        PERFORM fence_stale(raise_mark.resource, raise_mark.token, newest);
    END IF;
END $$;

-- Checks a token against the mark of a resource, and raises it; until the transaction ends, it cannot be raised further. Of one holder's
-- transactions many can pass at once. It is raised before it is shared: two that shared it and then wanted to raise it would wait for each
-- other.
CREATE OR REPLACE FUNCTION fence_resource(resource text, token bigint, namespace text DEFAULT 'default') RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    newest bigint;
BEGIN
    PERFORM fence_idle_limit();
    SELECT m.token INTO newest FROM fence_mark m
    WHERE m.namespace = fence_resource.namespace AND m.resource = fence_resource.resource;
    IF newest IS NULL OR newest < fence_resource.token THEN
        PERFORM raise_mark(fence_resource.resource, fence_resource.token, fence_resource.namespace);
    END IF;
    SELECT m.token INTO newest FROM fence_mark m
    WHERE m.namespace = fence_resource.namespace AND m.resource = fence_resource.resource FOR SHARE;
    -- No token at all is refused too.
    IF newest IS DISTINCT FROM fence_resource.token THEN
        PERFORM fence_stale(fence_resource.resource, fence_resource.token, newest);
    END IF;
END $$;

-- Which of these keys have a fence on them, and who holds them.
CREATE OR REPLACE FUNCTION fence_on(of_namespace text, of_keys text[], of_hash bytea)
RETURNS TABLE (key text, refusal text, own boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT DISTINCT ON (k.nth) k.key,
        (SELECT jsonb_build_object('Held', jsonb_build_object('owner', w.owner, 'task', w.task, 'token', w.token,
            'expires_in_ms', w.remaining))::text
        FROM (
            SELECT h.owner, h.task, h.token, greatest(lease_left(h, s.suspended_from_ms, now_ms()), 0) AS remaining
            FROM lease_hold h, store_state s WHERE h.key_id = k.id
            UNION ALL SELECT e.owner, e.task, e.token, 0 FROM lease_ending e WHERE e.key_id = k.id
            ORDER BY token DESC LIMIT 1) AS w),
        lease_knows(k.id, of_hash)
    FROM lease_found(of_namespace, of_keys) AS k
    JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.classid = 1179142470 AND l.objid = (k.id % 2147483647)
    ORDER BY k.nth
$$;

-- Which transactions hold a fence, of every namespace. How old they are is not shown to every role: null then.
CREATE OR REPLACE FUNCTION open_fences() RETURNS TABLE (namespace text, key text, owner text, task text, job_id uuid, pid integer, age_ms bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH mark AS (
        SELECT l.classid, l.objid::bigint AS rest, l.pid,
            CASE WHEN a.xact_start <= clock_timestamp()
                THEN floor(extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint END AS age_ms
        FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid IN (1179142470, 1179142471)
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
    SELECT k.namespace, k.key, h.owner, h.task, NULL::uuid, m.pid, m.age_ms
    FROM mark m CROSS JOIN LATERAL generate_series(0, (SELECT max(id) FROM lease_key) / 2147483647) AS lap
    JOIN lease_key k ON k.id = m.rest + lap * 2147483647
    LEFT JOIN lease_hold h ON h.key_id = k.id
    WHERE m.classid = 1179142470
    UNION ALL
    SELECT q.namespace, NULL, NULL, NULL, b.id, m.pid, m.age_ms
    FROM mark m CROSS JOIN LATERAL generate_series(0, (SELECT max(arrival) FROM job_body) / 2147483647) AS lap
    JOIN job_body b ON b.arrival = m.rest + lap * 2147483647
    JOIN job_lane l ON l.lane = b.lane
    JOIN job_queue q ON q.number = l.queue
    WHERE m.classid = 1179142471
    ORDER BY 7 DESC NULLS LAST, 6
$$;
