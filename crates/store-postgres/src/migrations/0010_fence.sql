-- Fences, for transactions of users' own: from any language, one call before the write that a lease protects.
--
--   FH001  stale: the key, or the resource, has a newer token than the one that was shown
--   FH002  ended: it is the newest token, but its lease was given back, revoked, or ended by `store advance`
--   FH003  unknown: the token was never given here, so the store was rewound, or another store gave it

-- Whoever has a fence and does nothing is in everybody's way: after a while the server ends the session. A setting,
-- `fencehold.fence_idle_ms`; never longer than what is in force already.
CREATE FUNCTION fence_idle_limit() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    wanted bigint := coalesce(nullif(current_setting('fencehold.fence_idle_ms', true), '')::bigint, 300000);
    in_force bigint := (SELECT setting::bigint FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout');
BEGIN
    IF wanted > 0 AND (in_force = 0 OR in_force > wanted) THEN
        PERFORM set_config('idle_in_transaction_session_timeout', wanted::text, true);
    END IF;
END
$$;

-- Passes under the newest token of a key, unless its lease was given back or ended by force; one that ran out passes, as long
-- as nobody has taken the key since. Until the transaction ends, nobody is granted the key; its holder's renewals go on.
CREATE FUNCTION fence(key text, token bigint, namespace text DEFAULT 'default') RETURNS void
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
        RAISE EXCEPTION USING ERRCODE = 'FH003',
            MESSAGE = format('%s: token %s was never given here; the newest is %s', fence.key, shown, newest),
            HINT = 'Roll back. The store was rewound, or this token is another store''s: see `fencehold store advance`.';
    END IF;
    IF shown IS DISTINCT FROM k.counter THEN
        RAISE EXCEPTION USING ERRCODE = 'FH001',
            MESSAGE = format('%s: token %s is stale; the newest is %s', fence.key, shown, newest),
            DETAIL = coalesce(
                (SELECT format('%s holds the key.', h.owner) FROM lease_hold h WHERE h.key_id = k.id), 'Nobody holds the key.'),
            HINT = 'Roll back: somebody else has taken the key since, or ended this hold by force.';
    END IF;
    IF NOT EXISTS (SELECT FROM lease_hold h WHERE h.key_id = k.id) THEN
        SELECT * INTO last FROM lease_ending e WHERE e.key_id = k.id AND e.token = shown;
        IF last.how IS NULL OR last.how NOT IN ('expired', 'aged_out', 'yielded') THEN
            RAISE EXCEPTION USING ERRCODE = 'FH002',
                MESSAGE = format('%s: the lease under token %s has ended: it was %s', fence.key, shown,
                    coalesce(replace(last.how, '_', ' '), 'forgotten')),
                HINT = 'Roll back, and acquire the lease anew.';
        END IF;
    END IF;
    -- So that those who find the key locked can be told by whom.
    PERFORM pg_advisory_xact_lock_shared(1179142470, (k.id % 2147483647)::integer);
END
$$;

-- The highest token that was shown for a resource that lives in this database.
CREATE TABLE fence_mark (
    namespace text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL CHECK (octet_length(resource) BETWEEN 1 AND 512),
    token bigint NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
    PRIMARY KEY (namespace, resource)
) WITH (fillfactor = 80);

CREATE FUNCTION fence_stale(of_resource text, shown bigint, newest bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'FH001',
        MESSAGE = format('%s: token %s is stale; %s was shown before', of_resource, coalesce(shown::text, 'null'), newest),
        HINT = 'Roll back: somebody else has taken the lease since.';
END
$$;

-- Raises the mark of a resource: from the commit on, whoever shows a smaller token is refused, also before anything was
-- written under this one. The first thing to do under a new lease.
CREATE FUNCTION raise(resource text, token bigint, namespace text DEFAULT 'default') RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    newest bigint;
BEGIN
    -- Until the transaction ends, everybody else who shows a token for this resource waits.
    PERFORM fence_idle_limit();
    INSERT INTO fence_mark AS m (namespace, resource, token)
    VALUES (raise.namespace, raise.resource, raise.token)
    ON CONFLICT (namespace, resource) DO UPDATE SET token = greatest(m.token, excluded.token)
    RETURNING m.token INTO newest;
    IF newest > raise.token THEN
        PERFORM fence_stale(raise.resource, raise.token, newest);
    END IF;
END
$$;

-- Checks a token against the mark of a resource, and raises it; until the transaction ends, nobody can raise it further. Of one
-- holder's transactions many can pass at once. It is raised before it is shared: two that shared it and then wanted to raise it
-- would wait for each other.
CREATE FUNCTION guard(resource text, token bigint, namespace text DEFAULT 'default') RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    newest bigint;
BEGIN
    PERFORM fence_idle_limit();
    SELECT m.token INTO newest FROM fence_mark m
    WHERE m.namespace = guard.namespace AND m.resource = guard.resource;
    IF newest IS NULL OR newest < guard.token THEN
        PERFORM raise(guard.resource, guard.token, guard.namespace);
    END IF;
    SELECT m.token INTO newest FROM fence_mark m
    WHERE m.namespace = guard.namespace AND m.resource = guard.resource FOR SHARE;
    -- No token at all is refused too.
    IF newest IS DISTINCT FROM guard.token THEN
        PERFORM fence_stale(guard.resource, guard.token, newest);
    END IF;
END
$$;

-- Which of these keys have a fence on them, and who holds them.
CREATE FUNCTION fence_on(of_namespace text, of_keys text[], of_hash bytea)
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

DO $$
BEGIN
    CALL permit('fencehold_reader', 'SELECT ON fence_mark');
    CALL permit('fencehold_worker', 'EXECUTE ON FUNCTION fence(text, bigint, text), raise(text, bigint, text), '
        'guard(text, bigint, text), fence_on(text, text[], bytea)');
END
$$;
