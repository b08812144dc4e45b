-- Producers: what makes two requests the same, and for how long one of them waits for another's open transaction. Leases: keys that are wanted
-- together are locked in one order, and one with a fence on it is held for everybody who looks.

-- Whether two texts are the same JSON. One that `jsonb` cannot keep is compared as text.
CREATE FUNCTION json_same(p_one text, p_other text) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF p_one IS NOT DISTINCT FROM p_other THEN
        RETURN true;
    END IF;
    RETURN coalesce(p_one::jsonb = p_other::jsonb, false);
EXCEPTION
    WHEN data_exception OR program_limit_exceeded THEN
        RETURN false;
END $$;

-- Refuses JSON that is nested more deeply than every client can read: `fencehold_core::limits::JSON_DEPTH_MAX`. A level takes two
-- characters and a bracket that opens it, so most need no closer look. Every round removes the innermost pairs.
CREATE FUNCTION json_check_depth(p_what text, p_json text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    c_depth_max CONSTANT integer := 127;
    v_left text;
BEGIN
    IF p_json IS NULL OR length(p_json) - length(translate(p_json, '[{', '')) <= c_depth_max THEN
        RETURN;
    END IF;
    v_left := regexp_replace(p_json, '"(?:[^"\\]|\\.)*"', '', 'g');
    v_left := translate(regexp_replace(v_left, '[^][{}]', '', 'g'), '{}', '[]');
    FOR level IN 1 .. c_depth_max LOOP
        EXIT WHEN v_left = '';
        v_left := replace(v_left, '[]', '');
    END LOOP;
    IF v_left <> '' THEN
        RAISE EXCEPTION USING errcode = '22023', message = format('%s is nested more than %s levels deep', p_what, c_depth_max);
    END IF;
END $$;

-- In what a job differs from what is asked for under its id or its unique key; null: in nothing.
CREATE FUNCTION job_differs(p_job uuid, p_namespace text, p_queue text, p_kind text, p_payload text) RETURNS text
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

-- For how long a producer waits for another's open transaction, as `lock_timeout` takes it: the setting `fencehold.producer_wait_ms`, and
-- never longer than what is in force already.
CREATE FUNCTION job_producer_bound() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    wanted   bigint := greatest(coalesce(nullif(current_setting('fencehold.producer_wait_ms', true), '')::bigint, 2000), 1);
    in_force bigint := extract(epoch FROM current_setting('lock_timeout')::interval) * 1000;
BEGIN
    RETURN CASE WHEN in_force > 0 AND in_force < wanted THEN in_force ELSE wanted END::text;
END $$;

-- What a producer waited for in vain, and the oldest transaction that may be in its way: one that has written where it wants to write.
CREATE FUNCTION job_held_up(p_namespace text, p_queues text[], p_priorities smallint[], p_keys text[]) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_queue text;
    v_what  text;
    v_table regclass := 'job_body';
    v_by    text;
BEGIN
    SELECT n.name INTO v_queue FROM unnest(p_queues, p_priorities) AS n(name, priority)
        WHERE NOT EXISTS (SELECT FROM job_queue q JOIN job_lane l ON l.queue = q.number
            WHERE q.namespace = p_namespace AND q.name = n.name AND l.priority = n.priority)
        ORDER BY n.name LIMIT 1;
    IF v_queue IS NOT NULL THEN
        v_what := format('queue %s is used for the first time, or at a new priority,', v_queue);
        v_table := 'job_lane';
    ELSIF cardinality(p_keys) = 1 THEN
        v_what := format('the unique key %s is used', p_keys[1]);
        v_table := 'job_unique';
    ELSIF cardinality(p_keys) > 1 THEN
        v_what := format('one of the unique keys %s is used', array_to_string(p_keys[1:8], ', '));
        v_table := 'job_unique';
    ELSE
        v_what := 'the id of a job is used';
    END IF;
    SELECT format('backend %s', l.pid) || coalesce(format(', open for %s ms',
            floor(extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)), '') INTO v_by
        FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'relation' AND l.relation = v_table AND l.mode = 'RowExclusiveLock' AND l.granted
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.pid <> pg_backend_pid()
        ORDER BY a.xact_start NULLS LAST, l.pid LIMIT 1;
    RETURN format('%s by a transaction that has not ended (%s)', v_what, coalesce(v_by, 'it has ended since'));
END $$;

-- As before, and with a bound on every wait; the identity of a request is its queue, kind and payload.
CREATE OR REPLACE FUNCTION enqueue(
    queue text, kind text, payload jsonb, priority smallint DEFAULT 0, run_at timestamptz DEFAULT NULL,
    unique_key text DEFAULT NULL, unique_window interval DEFAULT '1 day', labels jsonb DEFAULT NULL,
    namespace text DEFAULT 'default', id uuid DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_id     uuid := coalesce(enqueue.id, job_new_id());
    v_digest uuid;
    v_key    uuid;
    v_text   text := enqueue.payload::text;
    v_first  record;
    v_pairs  jsonb;
    v_made   bigint;
    v_waits  boolean;
    v_differs text;
    v_bound  CONSTANT text := job_producer_bound();
    v_before CONSTANT text := current_setting('lock_timeout');
BEGIN
    PERFORM job_check_name('queue', enqueue.queue, 128), job_check_name('kind', enqueue.kind, 128),
        job_check_name('namespace', enqueue.namespace, 64);
    IF enqueue.queue LIKE 'fencehold/%' THEN
        RAISE EXCEPTION USING errcode = '22023', message = format('queue %s is reserved: names that start with fencehold/ are', enqueue.queue);
    END IF;
    IF v_text IS NULL OR octet_length(v_text) > 1048576 THEN
        RAISE EXCEPTION USING errcode = '22023', message = format('payload takes JSON of up to 1048576 bytes, and this has %s',
            coalesce(octet_length(v_text), 0));
    END IF;
    PERFORM json_check_depth('payload', v_text);
    IF enqueue.labels IS NOT NULL THEN
        IF jsonb_typeof(enqueue.labels) <> 'object'
            OR EXISTS (SELECT FROM jsonb_each(enqueue.labels) AS l WHERE jsonb_typeof(l.value) <> 'string'
                OR octet_length(l.key) NOT BETWEEN 1 AND 64 OR octet_length(l.value #>> '{}') > 256)
            OR (SELECT count(*) FROM jsonb_object_keys(enqueue.labels)) > 16 THEN
            RAISE EXCEPTION USING errcode = '22023',
                message = 'labels take an object of up to 16 texts: names of up to 64 bytes, values of up to 256';
        END IF;
        SELECT jsonb_agg(jsonb_build_array(l.key, l.value) ORDER BY l.key) INTO v_pairs FROM jsonb_each(enqueue.labels) AS l;
    END IF;
    IF enqueue.unique_key IS NOT NULL THEN
        PERFORM job_check_name('unique key', enqueue.unique_key, 512);
        -- As the library has it: the first half of the SHA-256.
        v_key := encode(substr(sha256(convert_to('job:' || enqueue.unique_key, 'UTF8')), 1, 16), 'hex')::uuid;
        v_digest := encode(substr(sha256(convert_to(v_text, 'UTF8')), 1, 16), 'hex')::uuid;
    END IF;
    FOR attempt IN 1 .. 3 LOOP
        -- What others are about to make is waited for until a bound. Where that cannot be, nothing has to be caught.
        v_waits := v_key IS NOT NULL OR enqueue.id IS NOT NULL OR NOT EXISTS (
            SELECT FROM job_queue q JOIN job_lane l ON l.queue = q.number
            WHERE q.namespace = enqueue.namespace AND q.name = enqueue.queue AND l.priority = enqueue.priority);
        IF v_waits THEN
            BEGIN
                PERFORM set_config('lock_timeout', v_bound, true);
                SELECT e INTO v_made FROM job_enqueue(enqueue.namespace, array[v_id], array[enqueue.queue], array[enqueue.priority],
                    array[enqueue.kind], array[v_text], array[NULL::jsonb],
                    array[nullif(jsonb_strip_nulls(jsonb_build_object('labels', v_pairs, 'unique', enqueue.unique_key)), '{}')],
                    array[floor(extract(epoch FROM enqueue.run_at) * 1000)::bigint], array[NULL::bigint], array[false],
                    CASE WHEN v_key IS NULL THEN NULL ELSE array[v_key] END, array[v_digest],
                    array[floor(extract(epoch FROM enqueue.unique_window) * 1000)::bigint]) AS e;
                PERFORM set_config('lock_timeout', v_before, true);
            EXCEPTION
                WHEN lock_not_available OR deadlock_detected THEN
                    RAISE EXCEPTION USING errcode = SQLSTATE,
                        message = job_held_up(enqueue.namespace, array[enqueue.queue], array[enqueue.priority],
                            CASE WHEN enqueue.unique_key IS NULL THEN NULL ELSE array[enqueue.unique_key] END),
                        hint = 'Roll back, and try again when that transaction has ended. fencehold.producer_wait_ms says how long to wait for it.';
            END;
        ELSE
            SELECT e INTO v_made FROM job_enqueue(enqueue.namespace, array[v_id], array[enqueue.queue], array[enqueue.priority],
                array[enqueue.kind], array[v_text], array[NULL::jsonb],
                array[nullif(jsonb_strip_nulls(jsonb_build_object('labels', v_pairs, 'unique', enqueue.unique_key)), '{}')],
                array[floor(extract(epoch FROM enqueue.run_at) * 1000)::bigint], array[NULL::bigint], array[false],
                CASE WHEN v_key IS NULL THEN NULL ELSE array[v_key] END, array[v_digest],
                array[floor(extract(epoch FROM enqueue.unique_window) * 1000)::bigint]) AS e;
        END IF;
        IF v_made IS NOT NULL THEN
            IF current_setting('transaction_isolation') = 'serializable' THEN
                -- What is ready is not looked at: others add to it, and each would fail the other.
                PERFORM tell('line/' || f.hash) FROM (
                    SELECT w.hash FROM job_waiter w
                    WHERE w.namespace = enqueue.namespace AND w.queue = enqueue.queue
                        AND w.beat > clock_timestamp() - interval '5 seconds' AND w.until_ms > now_ms()
                    ORDER BY w.since_ms, w.place LIMIT 8) f;
            ELSE
                PERFORM job_stir(enqueue.namespace, array[enqueue.queue]);
            END IF;
            RETURN v_id;
        END IF;
        IF EXISTS (SELECT FROM job_body b WHERE b.id = v_id) THEN
            v_differs := job_differs(v_id, enqueue.namespace, enqueue.queue, enqueue.kind, v_text);
            IF v_differs IS NULL THEN
                RETURN v_id;
            END IF;
            RAISE EXCEPTION USING errcode = '23505', message = format('the id is taken by job %s, which has another %s', v_id, v_differs);
        END IF;
        IF EXISTS (SELECT FROM job_queue q WHERE q.namespace = enqueue.namespace AND q.name = enqueue.queue AND q.mode = 2) THEN
            RAISE EXCEPTION USING errcode = 'FH004',
                message = format('queue %s is being drained and takes no new jobs', enqueue.queue), hint = '`queue resume` opens it again.';
        END IF;
        -- Somebody has the key: for its window, and until its job has come to its end.
        SELECT u.* INTO v_first FROM job_unique u WHERE u.namespace = enqueue.namespace AND u.key = v_key FOR UPDATE;
        IF found THEN
            IF v_first.until_ms > now_ms() OR NOT job_is_over(v_first.job) THEN
                v_differs := job_differs(v_first.job, enqueue.namespace, enqueue.queue, enqueue.kind, v_text);
                IF v_differs IS NOT NULL THEN
                    RAISE EXCEPTION USING errcode = '23505',
                        message = format('the unique key is taken by job %s, which has another %s', v_first.job, v_differs);
                END IF;
                RETURN v_first.job;
            END IF;
            DELETE FROM job_unique u WHERE u.namespace = enqueue.namespace AND u.key = v_key;
        END IF;
    END LOOP;
    RAISE EXCEPTION USING errcode = '40001', message = 'others enqueue the same job again and again; try the transaction again';
END $$;

CREATE OR REPLACE FUNCTION job_complete_hashed(p_job uuid, p_hash uuid, p_token bigint, p_result text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_namespace text;
    v_settled   job_settled;
    v_run       job_running;
BEGIN
    PERFORM read_committed();
    -- From here on the job is locked until the transaction ends.
    PERFORM fence_idle_limit();
    SELECT q.namespace INTO v_namespace FROM job_body b JOIN job_lane l ON l.lane = b.lane JOIN job_queue q ON q.number = l.queue
        WHERE b.id = p_job;
    IF octet_length(p_result) > 1048576 THEN
        RAISE EXCEPTION USING errcode = '22023', message = 'result takes JSON of up to 1048576 bytes';
    END IF;
    PERFORM json_check_depth('result', p_result);
    PERFORM job_before_failover(p_job, p_token);
    IF EXISTS (SELECT FROM job_complete(v_namespace, array[p_job], array[p_hash], array[p_token], array[p_result])) THEN
        RETURN;
    END IF;
    -- The same completion again: the same answer. With another result it is not the same.
    SELECT s.* INTO v_settled FROM job_settled s JOIN job_body b ON b.arrival = s.arrival WHERE b.id = p_job FOR KEY SHARE OF s;
    IF v_settled.state = 3 AND v_settled.token = p_token AND v_settled.hash = p_hash THEN
        IF json_same(v_settled.result, p_result) THEN
            RETURN;
        END IF;
        RAISE EXCEPTION USING errcode = '23505',
            message = format('job %s: it was completed under token %s with another result', p_job, p_token),
            hint = 'The first result stands. Read it, or roll back.';
    END IF;
    PERFORM fence_job(p_job, p_token);
    SELECT * INTO v_run FROM job_running r WHERE r.id = p_job;
    IF v_run.id IS NOT NULL AND v_run.hash <> p_hash THEN
        RAISE EXCEPTION USING errcode = 'FH002', message = format('job %s: the hold id is not the one that token %s was given to', p_job, p_token);
    END IF;
    RAISE EXCEPTION USING errcode = 'FH002',
        message = format('job %s: the claim under token %s has run out, or its end concerns other jobs', p_job, p_token),
        hint = 'Commit the work, and report the completion outside: it is accepted late while nobody else has had the job.';
END $$;

CREATE OR REPLACE FUNCTION job_once_hashed(p_job uuid, p_hash uuid, p_token bigint, p_effect text, p_value jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_run   job_running;
    v_found jsonb;
    v_nth   integer;
BEGIN
    PERFORM job_check_name('effect', p_effect, 128);
    IF p_value IS NULL OR octet_length(p_value::text) > 65536 THEN
        RAISE EXCEPTION USING errcode = '22023', message = 'value of the effect takes JSON of up to 65536 bytes';
    END IF;
    PERFORM json_check_depth('value of the effect', p_value::text);
    PERFORM fence_job(p_job, p_token);
    SELECT * INTO v_run FROM job_running r WHERE r.id = p_job;
    IF v_run.hash IS DISTINCT FROM p_hash THEN
        RAISE EXCEPTION USING errcode = 'FH002',
            message = format('job %s: no claim under token %s is live for this hold id', p_job, p_token), hint = 'Roll back.';
    END IF;
    -- Effects of one job are recorded one after the other.
    PERFORM pg_advisory_xact_lock(hashtextextended(p_job::text, 7463));
    SELECT e.effect INTO v_found FROM job_effect e WHERE e.arrival = v_run.arrival AND e.name = p_effect;
    IF v_found IS NOT NULL AND jsonb_typeof(v_found->'state') = 'string' THEN
        RETURN (v_found->>'value')::jsonb;
    END IF;
    SELECT coalesce((v_found->>'nth')::integer, max((e.effect->>'nth')::integer) + 1, 0) INTO v_nth
        FROM job_effect e WHERE e.arrival = v_run.arrival;
    IF v_nth >= 1000 THEN
        RAISE EXCEPTION USING errcode = '54000', message = format('job %s: the limit of 1000 effects is reached', p_job);
    END IF;
    INSERT INTO job_effect (arrival, name, effect)
        VALUES (v_run.arrival, p_effect, jsonb_build_object('name', p_effect, 'nth', v_nth, 'token', p_token, 'at_wall_ms', now_ms(),
            'state', 'done', 'value', p_value::text, 'undo', NULL, 'undo_job', NULL))
        ON CONFLICT (arrival, name) DO UPDATE SET effect = excluded.effect;
    INSERT INTO job_past (arrival, token, failures, crashes, attempts, undo, since_ms)
        VALUES (v_run.arrival, p_token, 0, 0, 0, 0, v_run.since_ms) ON CONFLICT DO NOTHING;
    RETURN p_value;
END $$;

CREATE OR REPLACE FUNCTION lease_acquire(
    of_namespace text, of_keys text[], of_hash bytea, hold_age bigint, by_owner text, for_task text,
    with_ttl bigint, with_max_age bigint, wait bigint, waited_before bigint, with_priority smallint,
    yield_within bigint, seen bigint, through_party bigint, lock_ms bigint)
RETURNS jsonb LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint;
    closed bigint;
    ids bigint[];
    k lease_key;
    own text;
    forgets text;
    one text;
    w lease_waiter;
    earlier lease_waiter;
    said jsonb;
BEGIN
    PERFORM lease_begin(lock_ms);
    IF cardinality(of_keys) = 1 THEN
        -- Made at once, if it is new: of two that want it, one waits here for the other.
        k := lease_lock_key(of_namespace, of_keys[1], true);
    ELSE
        -- Whoever wants several makes them in one order, whatever the order of its wishes, and before it locks any that is there already.
        FOR one IN SELECT DISTINCT a.key COLLATE "C" FROM unnest(of_keys) AS a(key) ORDER BY 1 LOOP
            IF NOT EXISTS (SELECT FROM lease_key l WHERE l.namespace = of_namespace AND l.key = one) THEN
                PERFORM make_namespace(of_namespace);
                INSERT INTO lease_key (namespace, key, look_at_ms) VALUES (of_namespace, one, now_ms() + limit_free_ms())
                ON CONFLICT DO NOTHING;
            END IF;
        END LOOP;
    END IF;
    ids := lease_lock(of_namespace, of_keys);
    now := now_ms();
    SELECT closed_until_ms - now INTO closed FROM store_state;
    PERFORM lease_time_outs(id, now) FROM unnest(ids) AS id;
    IF closed > 0 THEN
        PERFORM lease_drop_unused(ids);
        RETURN lease_unavailable(format(
            'after `store advance` nobody is granted anything for another %s ms', closed));
    END IF;
    -- What has run out goes to those who stand in line already, this one's own earlier sending among them; except that a
    -- hold id that comes back to its own key must be judged by the rules first.
    FOREACH one IN ARRAY of_keys LOOP
        SELECT * INTO k FROM lease_key WHERE namespace = of_namespace AND key = one AND id = ANY (ids);
        IF k.id IS NOT NULL AND NOT lease_knows(k.id, of_hash) THEN
            PERFORM lease_settle(k.id, now);
        END IF;
    END LOOP;
    -- The same hold id again gets the lease that it has, or learns how it ended: on whichever key that was. One key after the
    -- other: in a join, every key that there is might be asked whether it knows the hold id. Also a key that is not among those
    -- locked: the same request, sent at the same time, may have made it.
    FOREACH one IN ARRAY of_keys LOOP
        SELECT * INTO k FROM lease_key WHERE namespace = of_namespace AND key = one;
        CONTINUE WHEN k.id IS NULL;
        IF lease_knows(k.id, of_hash) THEN
            own := one;
            EXIT;
        END IF;
        IF forgets IS NULL AND lease_may_have_forgotten(k.forgotten_at_ms, now, hold_age) THEN
            forgets := one;
        END IF;
    END LOOP;
    SELECT * INTO earlier FROM lease_waiter
    WHERE namespace = of_namespace AND hash = of_hash AND answer IS NULL FOR UPDATE;
    IF own IS NULL AND earlier.id IS NULL AND forgets IS NOT NULL THEN
        PERFORM lease_drop_unused(ids);
        RETURN lease_refused(forgets, '{"Ended": {"token": null, "how": null}}');
    END IF;
    IF own IS NOT NULL THEN
        -- What was seen of the first key says nothing of another.
        seen := CASE WHEN own = of_keys[1] THEN seen END;
        of_keys := ARRAY[own];
    END IF;
    IF earlier.id IS NOT NULL THEN
        -- It stands in line already: the later sending takes the place of the earlier.
        waited_before := greatest(waited_before, least(
            greatest(now - earlier.arrived_ms, 0)::numeric + earlier.waited_before_ms, 9223372036854775807)::bigint);
        -- Whoever stands in line was never granted anything, whatever has been forgotten since.
        hold_age := 0;
        PERFORM lease_answer(earlier,
            lease_unavailable('the same request was sent again, and the later one stands in line'), now);
    END IF;
    w.party := through_party;
    w.namespace := of_namespace;
    w.keys := of_keys;
    w.hash := of_hash;
    w.owner := by_owner;
    w.task := for_task;
    w.ttl_ms := with_ttl;
    w.max_age_ms := with_max_age;
    w.priority := with_priority;
    w.yield_within_ms := yield_within;
    w.seen_token := seen;
    w.arrived_ms := now;
    w.waited_before_ms := waited_before;
    w.until_ms := now + wait;
    FOREACH one IN ARRAY of_keys LOOP
        k := lease_lock_key(of_namespace, one, true);
        IF NOT k.id = ANY (ids) THEN
            ids := ids || k.id;
        END IF;
        said := lease_try(k.id, w, hold_age, 0, now);
        IF said IS NOT NULL THEN
            PERFORM lease_pass_on(k.id, now);
            EXIT;
        END IF;
    END LOOP;
    IF said IS NULL AND wait = 0 THEN
        said := lease_held(w, now);
    ELSIF said IS NULL THEN
        said := lease_stand_in_line(w, now);
    END IF;
    IF earlier.id IS NOT NULL THEN
        -- Unless the later sending stands there now, nobody asks for what the earlier one asked for.
        PERFORM lease_refresh_notices(earlier, now);
    END IF;
    PERFORM lease_drop_unused(ids);
    PERFORM lease_note_longest(ids);
    RETURN said;
END
$$;

-- Whether an open transaction has a fence on this key. Until it ends nobody is granted the key, also after the holder's deadline: then the
-- key is held, for everybody who looks as for everybody who asks.
CREATE FUNCTION lease_fenced(of_key bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = 1179142470
            AND l.objid = (of_key % 2147483647)
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()));
END $$;

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

CREATE OR REPLACE FUNCTION lease_list(
    of_namespace text, of_prefix text, of_owner text, of_task text, free_too boolean, after_id bigint, most integer,
    looks integer, OUT leases jsonb, OUT next bigint)
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
            AND (of_prefix IS NULL OR starts_with(k.key, of_prefix))
        ORDER BY k.id LIMIT most + 1) AS found;
    SELECT coalesce(jsonb_agg(lease_view(k, now) ORDER BY k.id), '[]') INTO leases
    FROM lease_key k WHERE k.id = ANY (ids[:most]);
    next := CASE
        WHEN cardinality(ids) > most THEN ids[most]
        WHEN cardinality(seen) = looks THEN seen[looks]
    END;
END
$$;

DO $$
DECLARE
    ours regprocedure;
BEGIN
    CALL permit('fencehold_worker', 'EXECUTE ON FUNCTION job_held_up(text, text[], smallint[], text[])');
    -- As `0021_plans.sql` has it: what is made anew has only the settings that it is made with.
    FOREACH ours IN ARRAY ARRAY['json_same(text, text)', 'json_check_depth(text, text)', 'job_differs(uuid, text, text, text, text)',
        'job_held_up(text, text[], smallint[], text[])',
        'enqueue(text, text, jsonb, smallint, timestamptz, text, interval, jsonb, text, uuid)',
        'job_complete_hashed(uuid, uuid, bigint, text)', 'job_once_hashed(uuid, uuid, bigint, text, jsonb)',
        'lease_list(text, text, text, text, boolean, bigint, integer, integer)',
        'lease_acquire(text, text[], bytea, bigint, text, text, bigint, bigint, bigint, bigint, smallint, bigint, bigint, bigint, bigint)'
        ]::regprocedure[]
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET jit = off SET max_parallel_workers_per_gather = 0', ours);
    END LOOP;
    ALTER FUNCTION lease_acquire SET plan_cache_mode = force_generic_plan SET enable_bitmapscan = off;
END
$$;
