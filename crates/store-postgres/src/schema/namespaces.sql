-- What a namespace may have, and until when it is closed after `store advance`.
--
-- No counter is kept: each producer would wait for the open transactions of the others. What a namespace has is counted by the call that
-- adds to it, up to 1 000 of each; of more than that, the maintenance counts all every few seconds, and calls go by its last count.
-- Namespaces in which no limit was ever set are not counted.

-- Notes a ttl that is granted in a namespace, where it is the longest.
CREATE OR REPLACE FUNCTION namespace_note_ttl(p_namespace text, p_ttl_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF EXISTS (SELECT FROM namespace_ttl t WHERE t.namespace = p_namespace AND t.ttl_ms >= p_ttl_ms) THEN
        RETURN;
    END IF;
    INSERT INTO namespace_ttl (namespace, ttl_ms) VALUES (p_namespace, p_ttl_ms);
    -- Rows that another transaction is removing are left to it.
    DELETE FROM namespace_ttl t WHERE t.id = ANY(array(
        SELECT o.id FROM namespace_ttl o WHERE o.namespace = p_namespace AND o.ttl_ms < p_ttl_ms FOR UPDATE SKIP LOCKED));
END $$;

-- The longest ttl that was granted in any namespace.
CREATE OR REPLACE FUNCTION longest_ttl() RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT greatest(s.longest_ttl_ms, (SELECT max(t.ttl_ms) FROM namespace_ttl t)) FROM store_state s
$$;

-- Until when nothing is granted in a namespace after `store advance`.
CREATE OR REPLACE FUNCTION namespace_closed_until(p_namespace text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT c.until_ms FROM namespace_closed c WHERE c.namespace = p_namespace), (SELECT s.closed_until_ms FROM store_state s))
$$;

-- For how long nothing is granted in a namespace after `store advance`. It is called often, so it counts nothing.
CREATE OR REPLACE FUNCTION store_closed_ms(p_namespace text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN greatest(namespace_closed_until(p_namespace) - now_ms(), 0);
END $$;

-- Opens a store that `store advance` has closed, before its time.
CREATE OR REPLACE FUNCTION store_open_now() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE store_state SET closed_until_ms = 0;
    DELETE FROM namespace_closed;
$$;

-- The limits in a namespace, where any was set: its own before those of every one, and those before the usual ones (`Limits::USUAL`).
CREATE OR REPLACE FUNCTION namespace_limits(p_namespace text)
RETURNS TABLE (queues bigint, keys bigint, jobs bigint, bytes bigint, schedules bigint, ttl_ms bigint)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(max(l.queues) FILTER (WHERE l.namespace <> ''), max(l.queues), 10000),
        coalesce(max(l.keys) FILTER (WHERE l.namespace <> ''), max(l.keys), 10000000),
        coalesce(max(l.jobs) FILTER (WHERE l.namespace <> ''), max(l.jobs), 50000000),
        coalesce(max(l.bytes) FILTER (WHERE l.namespace <> ''), max(l.bytes), 68719476736),
        coalesce(max(l.schedules) FILTER (WHERE l.namespace <> ''), max(l.schedules), 10000),
        coalesce(max(l.ttl_ms) FILTER (WHERE l.namespace <> ''), max(l.ttl_ms), 86400000)
    FROM namespace_limit l WHERE l.namespace = ANY (ARRAY['', p_namespace]) HAVING count(*) > 0
$$;

-- How many jobs of a namespace are not done, and the bytes of their payloads: of so many at most; null: of all.
CREATE OR REPLACE FUNCTION namespace_jobs(p_namespace text, p_most bigint, OUT jobs bigint, OUT bytes bigint)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    WITH lanes AS MATERIALIZED (
        SELECT l.lane FROM job_queue q JOIN job_lane l ON l.queue = q.number WHERE q.namespace = p_namespace
    )
    SELECT count(*), coalesce(sum(n.bytes), 0)::bigint FROM (
        SELECT j.bytes FROM lanes l
        LEFT JOIN LATERAL (SELECT o.head, o.back_low FROM job_head o WHERE o.lane = l.lane OFFSET 0) h ON true
        CROSS JOIN LATERAL (
            SELECT r.bytes FROM job_ready r WHERE r.lane = l.lane AND r.arrival > coalesce(h.head, 0)
            UNION ALL
            SELECT r.bytes FROM job_ready r WHERE r.lane = l.lane AND r.back AND r.arrival > h.back_low AND r.arrival <= h.head
            UNION ALL
            SELECT s.bytes FROM job_scheduled s WHERE s.lane = l.lane
            UNION ALL
            SELECT octet_length(b.payload) FROM job_settled s
            CROSS JOIN LATERAL (SELECT o.payload FROM job_body o WHERE o.arrival = s.arrival OFFSET 0) b
            WHERE s.lane = l.lane AND s.state > 5) j
        UNION ALL
        SELECT octet_length(b.payload) FROM job_running r
        CROSS JOIN LATERAL (SELECT o.payload FROM job_body o WHERE o.arrival = r.arrival OFFSET 0) b
        WHERE r.lane IN (SELECT l.lane FROM lanes l)
        LIMIT p_most) n
$$;

-- Those queues of a namespace, of these or of all, that are open and have no job, finished ones included: they do not count.
CREATE OR REPLACE FUNCTION namespace_queues_unused(p_namespace text, p_names text[]) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_numbers CONSTANT integer[] := array(SELECT q.number FROM job_queue q
        WHERE q.namespace = p_namespace AND (p_names IS NULL OR q.name = ANY(p_names)) AND q.mode = 0);
BEGIN
    RETURN QUERY SELECT q.name FROM job_queue q
        WHERE q.number = ANY(v_numbers) AND q.number NOT IN (SELECT c.queue FROM job_counts_now(v_numbers) AS c);
END $$;

-- The last count of the maintenance, unless it is old: then it counts for nothing.
CREATE OR REPLACE FUNCTION namespace_counted(p_namespace text) RETURNS SETOF namespace_use
LANGUAGE sql STABLE AS $$
    SELECT u.* FROM namespace_use u WHERE u.namespace = p_namespace AND u.at > clock_timestamp() - interval '1 minute' - 40 * u.took
$$;

-- How many lease keys a namespace has.
CREATE OR REPLACE FUNCTION namespace_keys(p_namespace text) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_counted bigint := (SELECT u.keys FROM namespace_counted(p_namespace) AS u);
BEGIN
    IF v_counted > 1000 THEN
        RETURN v_counted;
    END IF;
    RETURN (SELECT count(*) FROM (SELECT FROM lease_key k WHERE k.namespace = p_namespace LIMIT 1001) AS n);
END $$;

-- What a namespace may have and has of jobs and queues, and which of these queues are unused; null: no limit was set. Under SERIALIZABLE only
-- the maintenance counts: producers that count each other's jobs would fail each other.
CREATE OR REPLACE FUNCTION namespace_room(p_namespace text, p_queues text[]) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_limits  record;
    v_used    namespace_use;
    v_new     bigint;
    v_unused  text[] := '{}';
BEGIN
    SELECT * INTO v_limits FROM namespace_limits(p_namespace);
    IF NOT found THEN
        RETURN NULL;
    END IF;
    SELECT * INTO v_used FROM namespace_counted(p_namespace);
    IF current_setting('transaction_isolation') <> 'serializable' THEN
        IF v_used.jobs IS NULL OR v_used.jobs <= 1000 THEN
            SELECT n.jobs, n.bytes INTO v_used.jobs, v_used.bytes FROM namespace_jobs(p_namespace, 1001) AS n;
        END IF;
        SELECT count(DISTINCT n.name) INTO v_new FROM unnest(p_queues) AS n(name)
            WHERE NOT EXISTS (SELECT FROM job_queue q WHERE q.namespace = p_namespace AND q.name = n.name);
        -- Where all of them are there, it only matters whether there may be too many that are unused.
        IF v_new > 0 OR v_used.queues IS NULL OR v_used.queues >= v_limits.queues THEN
            SELECT count(*) INTO v_used.queues FROM job_queue q WHERE q.namespace = p_namespace;
        END IF;
        IF v_used.queues + v_new > v_limits.queues THEN
            v_unused := array(SELECT u FROM namespace_queues_unused(p_namespace, p_queues) AS u);
            IF v_new + cardinality(v_unused) > 0 THEN
                v_used.queues := v_used.queues - (SELECT count(*) FROM namespace_queues_unused(p_namespace, NULL));
            END IF;
        END IF;
    END IF;
    RETURN jsonb_build_object('limits', to_jsonb(v_limits), 'unused', to_jsonb(v_unused), 'used', jsonb_build_object(
        'queues', coalesce(v_used.queues, 0), 'keys', 0, 'jobs', coalesce(v_used.jobs, 0), 'bytes', coalesce(v_used.bytes, 0), 'schedules', 0));
END $$;

-- Why a namespace has no room for so many jobs of so many bytes in these queues; null: it has. The words are those of `Limited::of`.
CREATE OR REPLACE FUNCTION namespace_full(p_namespace text, p_queues text[], p_jobs bigint, p_bytes bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_room  jsonb := namespace_room(p_namespace, p_queues);
    v_new   bigint;
    v_what  text;
    v_next  text := 'have jobs worked on, or delete some';
BEGIN
    IF v_room IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT count(DISTINCT n.name) INTO v_new FROM unnest(p_queues) AS n(name) WHERE v_room->'unused' ? n.name
        OR NOT EXISTS (SELECT FROM job_queue q WHERE q.namespace = p_namespace AND q.name = n.name);
    IF v_new > 0 AND (v_room->'used'->>'queues')::bigint + v_new > (v_room->'limits'->>'queues')::bigint THEN
        v_what := 'queues';
        v_next := 'remove queues';
    ELSIF (v_room->'used'->>'jobs')::bigint + p_jobs > (v_room->'limits'->>'jobs')::bigint THEN
        v_what := 'jobs';
    ELSIF (v_room->'used'->>'bytes')::bigint + p_bytes > (v_room->'limits'->>'bytes')::bigint THEN
        v_what := 'bytes';
    ELSE
        RETURN NULL;
    END IF;
    RETURN format('%s of namespace %s (%s; an operator can set --max-%s by `fencehold store limits`): the limit of %s is reached',
        CASE v_what WHEN 'jobs' THEN 'jobs that are not done' WHEN 'bytes' THEN 'bytes of payload' ELSE v_what END,
        p_namespace, v_next, v_what, v_room->'limits'->>v_what);
END $$;

-- Counts what one limited namespace has, the one that was counted longest ago. At most a twentieth of the time is spent on that. False: none
-- is due.
CREATE OR REPLACE FUNCTION namespace_count() RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    c_every CONSTANT interval := interval '5 seconds';
    v_began CONSTANT timestamptz := clock_timestamp();
    v_space text;
    v_count namespace_use;
BEGIN
    IF NOT EXISTS (SELECT FROM namespace_limit) OR NOT pg_try_advisory_xact_lock(1179142485, hashtext(current_schema())) THEN
        RETURN false;
    END IF;
    WITH limited AS MATERIALIZED (
        SELECT l.namespace FROM namespace_limit l WHERE l.namespace <> ''
        UNION
        SELECT n.namespace COLLATE "C" FROM (SELECT o.name AS namespace FROM namespace o UNION SELECT q.namespace FROM job_queue q) AS n
        WHERE EXISTS (SELECT FROM namespace_limit e WHERE e.namespace = '')
    )
    SELECT l.namespace INTO v_space FROM limited l LEFT JOIN namespace_use u ON u.namespace = l.namespace
    WHERE u.at IS NULL OR u.at + greatest(c_every, 20 * u.took, (SELECT count(*) FROM limited) * interval '20 milliseconds') < v_began
    ORDER BY u.at NULLS FIRST LIMIT 1;
    IF v_space IS NULL THEN
        RETURN false;
    END IF;
    SELECT n.jobs, n.bytes INTO v_count.jobs, v_count.bytes FROM namespace_jobs(v_space, NULL) AS n;
    SELECT count(*) INTO v_count.keys FROM lease_key k WHERE k.namespace = v_space;
    SELECT count(*) INTO v_count.queues FROM job_queue q WHERE q.namespace = v_space;
    INSERT INTO namespace_use AS u (namespace, queues, keys, jobs, bytes, at, took)
        VALUES (v_space, v_count.queues, v_count.keys, v_count.jobs, v_count.bytes, clock_timestamp(), clock_timestamp() - v_began)
        ON CONFLICT (namespace) DO UPDATE SET queues = excluded.queues, keys = excluded.keys, jobs = excluded.jobs, bytes = excluded.bytes,
            at = excluded.at, took = excluded.took;
    RETURN true;
END $$;

-- Sets limits; null leaves one as it is. Namespace '': for every one.
CREATE OR REPLACE FUNCTION store_limits_set(
    p_namespace text, p_queues bigint, p_keys bigint, p_jobs bigint, p_bytes bigint, p_schedules bigint, p_ttl_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO namespace_limit AS l (namespace, queues, keys, jobs, bytes, schedules, ttl_ms)
        VALUES (p_namespace, p_queues, p_keys, p_jobs, p_bytes, p_schedules, p_ttl_ms)
        ON CONFLICT (namespace) DO UPDATE SET queues = coalesce(excluded.queues, l.queues), keys = coalesce(excluded.keys, l.keys),
            jobs = coalesce(excluded.jobs, l.jobs), bytes = coalesce(excluded.bytes, l.bytes),
            schedules = coalesce(excluded.schedules, l.schedules), ttl_ms = coalesce(excluded.ttl_ms, l.ttl_ms);
END $$;

-- The limits of a namespace that were set, and what it has, all of it counted.
CREATE OR REPLACE FUNCTION store_limits(p_namespace text) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (SELECT jsonb_build_object('limits', (SELECT to_jsonb(l) FROM namespace_limits(p_namespace) AS l),
        'used', jsonb_build_object('jobs', n.jobs, 'bytes', n.bytes,
            'keys', (SELECT count(*) FROM lease_key k WHERE k.namespace = p_namespace),
            'queues', (SELECT count(*) FROM job_queue q WHERE q.namespace = p_namespace)
                - (SELECT count(*) FROM namespace_queues_unused(p_namespace, NULL)),
            'schedules', (SELECT count(*) FROM job_schedule s WHERE s.namespace = p_namespace)))
        FROM namespace_jobs(p_namespace, NULL) AS n);
END $$;
