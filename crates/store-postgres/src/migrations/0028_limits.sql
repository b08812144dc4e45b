-- What a namespace may have: limits that are set for one namespace or for every one, and kept by every call that adds something.
--
-- No counter is kept: each producer would wait for the open transactions of the others. What a namespace has is counted by the call that
-- adds to it, up to 1 000 of each; of more than that, the maintenance counts all every few seconds, and calls go by its last count.
-- Namespaces in which no limit was ever set are not counted.

-- The limits that were set; namespace '': for every one. Null: as the next wider setting has it.
CREATE TABLE namespace_limit (
    namespace text COLLATE "C" PRIMARY KEY,
    queues    bigint,
    keys      bigint,
    jobs      bigint,
    bytes     bigint,
    schedules bigint,
    ttl_ms    bigint
);

-- What the maintenance has counted.
CREATE TABLE namespace_use (
    namespace text COLLATE "C" PRIMARY KEY,
    queues    bigint NOT NULL,
    keys      bigint NOT NULL,
    jobs      bigint NOT NULL,
    bytes     bigint NOT NULL,
    at        timestamptz NOT NULL,
    took      interval NOT NULL
) WITH (fillfactor = 50);

-- Jobs that wait for a person: they count as not done. Few have a row here.
CREATE INDEX job_settled_waits ON job_settled (lane) WHERE state > 5;

-- The limits in a namespace, where any was set: its own before those of every one, and those before the usual ones (`Limits::USUAL`).
CREATE FUNCTION namespace_limits(p_namespace text)
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
CREATE FUNCTION namespace_jobs(p_namespace text, p_most bigint, OUT jobs bigint, OUT bytes bigint)
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
CREATE FUNCTION namespace_queues_unused(p_namespace text, p_names text[]) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_numbers integer[];
BEGIN
    v_numbers := array(SELECT q.number FROM job_queue q
        WHERE q.namespace = p_namespace AND (p_names IS NULL OR q.name = ANY(p_names)) AND q.mode = 0 AND NOT EXISTS (
            SELECT FROM job_lane l
            LEFT JOIN LATERAL (SELECT o.head, o.back_low FROM job_head o WHERE o.lane = l.lane OFFSET 0) h ON true
            CROSS JOIN LATERAL (
                (SELECT FROM job_ready r WHERE r.lane = l.lane AND r.arrival > coalesce(h.head, 0) LIMIT 1)
                UNION ALL
                (SELECT FROM job_ready r WHERE r.lane = l.lane AND r.back AND r.arrival > h.back_low AND r.arrival <= h.head LIMIT 1)
                UNION ALL
                (SELECT FROM job_scheduled s WHERE s.lane = l.lane LIMIT 1)) j
            WHERE l.queue = q.number));
    -- Those two are in no order of lanes: they are read only for queues in which nothing waits.
    IF cardinality(v_numbers) > 0 THEN
        RETURN QUERY SELECT q.name FROM job_queue q WHERE q.number = ANY(v_numbers) AND q.number NOT IN (
            SELECT l.queue FROM job_lane l
            WHERE l.queue = ANY(v_numbers) AND l.lane IN (SELECT r.lane FROM job_running r UNION SELECT s.lane FROM job_settled s));
    END IF;
END $$;

-- The last count of the maintenance, unless it is old: then it counts for nothing.
CREATE FUNCTION namespace_counted(p_namespace text) RETURNS SETOF namespace_use
LANGUAGE sql STABLE AS $$
    SELECT u.* FROM namespace_use u WHERE u.namespace = p_namespace AND u.at > clock_timestamp() - interval '1 minute' - 40 * u.took
$$;

-- How many lease keys a namespace has.
CREATE FUNCTION namespace_keys(p_namespace text) RETURNS bigint
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
CREATE FUNCTION namespace_room(p_namespace text, p_queues text[]) RETURNS jsonb
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
CREATE FUNCTION namespace_full(p_namespace text, p_queues text[], p_jobs bigint, p_bytes bigint) RETURNS text
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

-- How many schedules a namespace may have.
CREATE FUNCTION job_schedules_most(p_namespace text) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce((SELECT l.schedules FROM namespace_limits(p_namespace) AS l), 10000);
END $$;

-- Counts what one limited namespace has, the one that was counted longest ago. At most a twentieth of the time is spent on that. False: none
-- is due.
CREATE FUNCTION namespace_count() RETURNS boolean
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
CREATE FUNCTION store_limits_set(
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
CREATE FUNCTION store_limits(p_namespace text) RETURNS jsonb
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

DO $$
DECLARE
    -- The function, what is in it, and what is to be there.
    c_changes CONSTANT text[] := ARRAY[
        ARRAY['job_rows', '''uniques'', (', '''room'', CASE WHEN cardinality(p_queues) > 0 THEN namespace_room(p_namespace, p_queues) END,
        ''uniques'', ('],
        -- What does not fit is decided one by one by the rules: what is there already is told again, whatever the limits are.
        ARRAY['job_enqueue', '    IF cardinality(p_ids) = 1 AND p_keys IS NULL THEN',
            '    IF EXISTS (SELECT FROM namespace_limit l WHERE l.namespace = ANY (ARRAY['''', p_namespace])) AND namespace_full(p_namespace, p_queues,
        cardinality(p_ids), (SELECT sum(octet_length(n)) FROM unnest(p_payloads) AS n)) IS NOT NULL THEN
        RETURN;
    END IF;
    IF cardinality(p_ids) = 1 AND p_keys IS NULL THEN'],
        ARRAY['enqueue', '            DELETE FROM job_unique u WHERE u.namespace = enqueue.namespace AND u.key = v_key;
        END IF;', '            DELETE FROM job_unique u WHERE u.namespace = enqueue.namespace AND u.key = v_key;
        END IF;
        v_full := namespace_full(enqueue.namespace, array[enqueue.queue], 1, octet_length(v_text));
        IF v_full IS NOT NULL THEN
            RAISE EXCEPTION USING errcode = ''FH006'', message = v_full;
        END IF;'],
        ARRAY['enqueue', '    v_differs text;', '    v_differs text;
    v_full   text;'],
        -- A ttl that is refused is not noted as the longest.
        ARRAY['job_claim', '    IF v_longer THEN', '    SELECT l.ttl_ms INTO v_longest FROM namespace_limits(p_namespace) AS l;
    IF v_longer AND p_ttl_ms <= coalesce(v_longest, p_ttl_ms) THEN'],
        ARRAY['job_claim', '    v_longer  boolean;', '    v_longer  boolean;
    v_longest bigint;     -- ttl of this namespace, where it is limited'],
        ARRAY['job_claim', '            queue := 2;
            RETURN NEXT;
        END IF;
        RETURN;
    END IF;', '            queue := 2;
            RETURN NEXT;
        END IF;
        RETURN;
    END IF;
    IF p_ttl_ms > v_longest THEN
        token := v_now;
        queue := -5;
        remaining_ms := v_longest;
        RETURN NEXT;
        RETURN;
    END IF;'],
        ARRAY['lease_acquire', '    said jsonb;', '    said jsonb;
    limits record;
    room bigint; -- null: there is no limit, or none of the keys is new'],
        ARRAY['lease_acquire', '    PERFORM lease_begin(lock_ms);
    IF cardinality(of_keys) = 1 THEN', '    PERFORM lease_begin(lock_ms);
    SELECT * INTO limits FROM namespace_limits(of_namespace);
    IF limits.keys IS NOT NULL AND EXISTS (SELECT FROM unnest(of_keys) AS a(key)
        WHERE NOT EXISTS (SELECT FROM lease_key l WHERE l.namespace = of_namespace AND l.key = a.key)) THEN
        room := limits.keys - namespace_keys(of_namespace);
    END IF;
    IF room < cardinality(of_keys) THEN
        -- Each is made when its turn comes, as long as there is room.
        NULL;
    ELSIF cardinality(of_keys) = 1 THEN'],
        ARRAY['lease_acquire', '    IF own IS NOT NULL THEN
        -- What was seen', '    IF own IS NULL AND with_ttl > limits.ttl_ms THEN
        PERFORM lease_drop_unused(ids);
        RETURN jsonb_build_object(''Err'', jsonb_build_object(''BadInput'', jsonb_build_object(''field'', ''ttl'', ''problem'', format(
            ''is %s ms; the longest in namespace %s is %s ms: renew a shorter one, or ask an operator (`fencehold store limits`)'',
            with_ttl, of_namespace, limits.ttl_ms))));
    END IF;
    IF own IS NOT NULL THEN
        -- What was seen'],
        ARRAY['lease_acquire', '        k := lease_lock_key(of_namespace, one, true);
        IF NOT k.id', '        IF room < cardinality(of_keys) AND NOT EXISTS (SELECT FROM lease_key l WHERE l.namespace = of_namespace AND l.key = one) THEN
            IF room <= 0 THEN
                said := jsonb_build_object(''Err'', jsonb_build_object(''Full'', jsonb_build_object(''limit'', limits.keys, ''what'', format(
                    ''lease keys of namespace %s (use fewer, or wait until free ones are collected; an operator can set --max-keys by `fencehold store limits`)'',
                    of_namespace))));
                EXIT;
            END IF;
            room := room - 1;
        END IF;
        k := lease_lock_key(of_namespace, one, true);
        IF NOT k.id']];
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

-- Who may call what is new.
DO $$
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION role_grants() RETURNS TABLE (name text, lowest text)
        LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS %L',
        (SELECT prosrc FROM pg_proc WHERE oid = 'role_grants()'::regprocedure)
            || ' UNION ALL SELECT ''store_limits'', ''reader''
                UNION ALL SELECT unnest(''{job_schedules_most,namespace_count}''::text[]), ''worker''
                UNION ALL SELECT ''store_limits_set'', ''admin''');
END
$$;

-- As all functions before are planned. Not `namespace_queues_unused`: it reads all of two tables.
DO $$
DECLARE
    ours regprocedure;
BEGIN
    FOREACH ours IN ARRAY ARRAY['namespace_jobs(text, bigint)', 'namespace_keys(text)', 'namespace_room(text, text[])',
        'namespace_full(text, text[], bigint, bigint)', 'job_schedules_most(text)', 'namespace_count()',
        'store_limits_set(text, bigint, bigint, bigint, bigint, bigint, bigint)', 'store_limits(text)']::regprocedure[]
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET jit = off SET max_parallel_workers_per_gather = 0', ours);
    END LOOP;
    EXECUTE 'ALTER FUNCTION namespace_queues_unused(text, text[]) SET enable_seqscan = on SET jit = off SET max_parallel_workers_per_gather = 0';
END
$$;
