-- Jobs in transactions of users' own, from any language: what is rolled back there has not happened here either.
--
-- The SQLSTATEs are those of the fences: FH001 stale, FH002 ended, FH003 unknown; FH004 where a queue takes no new jobs; and FH005 where nobody
-- knows whether an effect happened.

-- Enqueues a job, and returns its id; of one with the same unique key, the first one's. `run_at` puts it off.
CREATE FUNCTION enqueue(
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
        SELECT e INTO v_made FROM job_enqueue(enqueue.namespace, array[v_id], array[enqueue.queue], array[enqueue.priority],
            array[enqueue.kind], array[v_text], array[NULL::jsonb],
            array[nullif(jsonb_strip_nulls(jsonb_build_object('labels', v_pairs, 'unique', enqueue.unique_key)), '{}')],
            array[floor(extract(epoch FROM enqueue.run_at) * 1000)::bigint], array[NULL::bigint], array[false],
            CASE WHEN v_key IS NULL THEN NULL ELSE array[v_key] END, array[v_digest],
            array[floor(extract(epoch FROM enqueue.unique_window) * 1000)::bigint]) AS e;
        IF v_made IS NOT NULL THEN
            PERFORM job_stir(enqueue.namespace, array[enqueue.queue]);
            RETURN v_id;
        END IF;
        SELECT b.payload, b.kind, q.name, q.namespace INTO v_first
            FROM job_body b JOIN job_lane l ON l.lane = b.lane JOIN job_queue q ON q.number = l.queue WHERE b.id = v_id;
        IF found THEN
            IF v_first.payload = v_text AND v_first.kind = enqueue.kind AND v_first.name = enqueue.queue
                AND v_first.namespace = enqueue.namespace THEN
                RETURN v_id;
            END IF;
            RAISE EXCEPTION USING errcode = '23505', message = format('the id is taken by job %s, which has another payload', v_id);
        END IF;
        IF EXISTS (SELECT FROM job_queue q WHERE q.namespace = enqueue.namespace AND q.name = enqueue.queue AND q.mode = 2) THEN
            RAISE EXCEPTION USING errcode = 'FH004',
                message = format('queue %s is being drained and takes no new jobs', enqueue.queue), hint = '`queue resume` opens it again.';
        END IF;
        -- Somebody has the key: for its window, and until its job has come to its end.
        SELECT u.* INTO v_first FROM job_unique u WHERE u.namespace = enqueue.namespace AND u.key = v_key FOR UPDATE;
        IF found THEN
            IF v_first.until_ms > now_ms() OR NOT job_is_over(v_first.job) THEN
                IF v_first.payload <> v_digest THEN
                    RAISE EXCEPTION USING errcode = '23505',
                        message = format('the unique key is taken by job %s, which has another payload', v_first.job);
                END IF;
                RETURN v_first.job;
            END IF;
            DELETE FROM job_unique u WHERE u.namespace = enqueue.namespace AND u.key = v_key;
        END IF;
    END LOOP;
    RAISE EXCEPTION USING errcode = '40001', message = 'others enqueue the same job again and again; try the transaction again';
END $$;

-- An id as the library makes them: a UUID of version 7.
CREATE FUNCTION job_new_id() RETURNS uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT encode(set_byte(overlay(uuid_send(gen_random_uuid()) placing substr(int8send(now_ms()), 3) FROM 1 FOR 6),
        6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112), 'hex')::uuid
$$;

CREATE FUNCTION job_check_name(p_what text, p_name text, p_most integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF p_name IS NULL OR octet_length(p_name) NOT BETWEEN 1 AND p_most OR p_name ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION USING errcode = '22023',
            message = format('%s takes 1 to %s bytes without control characters', p_what, p_most);
    END IF;
END $$;

-- Passes under the newest token of a job, unless its attempt has ended; one that ran out passes, as long as nobody has had the
-- job since. Until the transaction ends, nobody is given the job; its holder's renewals go on.
CREATE FUNCTION fence_job(job uuid, token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_body    job_body;
    v_newest  bigint;
    v_past    job_past;
    v_settled job_settled;
    v_last    jsonb;
BEGIN
    PERFORM read_committed();
    PERFORM fence_idle_limit();
    PERFORM job_before_failover(fence_job.job, fence_job.token);
    SELECT * INTO v_body FROM job_body b WHERE b.id = fence_job.job;
    IF NOT found THEN
        RAISE EXCEPTION USING errcode = 'FH002', message = format('job %s: there is no such job', fence_job.job),
            hint = 'Roll back. It never was, or it was deleted, or pruned after its time.';
    END IF;
    IF fence_job.token > job_newest() THEN
        RAISE EXCEPTION USING errcode = 'FH003',
            message = format('job %s: token %s was never given here; the newest is %s', fence_job.job, fence_job.token, job_newest()),
            hint = 'Roll back. The store was rewound, or this token is another store''s: see `fencehold store advance`.';
    END IF;
    LOOP
        -- A renewal goes past a lock like this; whatever ends the claim waits for it.
        SELECT r.token INTO v_newest FROM job_running r WHERE r.id = fence_job.job FOR KEY SHARE;
        IF found THEN
            EXIT WHEN v_newest = fence_job.token;
            PERFORM job_stale(fence_job.job, fence_job.token, v_newest);
        END IF;
        PERFORM FROM job_ready r WHERE r.lane = v_body.lane AND r.arrival = v_body.arrival FOR KEY SHARE;
        IF NOT found THEN
            PERFORM FROM job_scheduled c WHERE c.arrival = v_body.arrival FOR KEY SHARE;
        END IF;
        IF NOT found THEN
            SELECT * INTO v_settled FROM job_settled s WHERE s.arrival = v_body.arrival FOR KEY SHARE;
        END IF;
        -- It may have moved while it was looked for.
        CONTINUE WHEN NOT found AND EXISTS (SELECT FROM job_body b WHERE b.id = fence_job.job);
        SELECT * INTO v_past FROM job_past p WHERE p.arrival = v_body.arrival;
        v_newest := coalesce(v_settled.token, v_past.token, 0);
        IF v_newest <> fence_job.token THEN
            PERFORM job_stale(fence_job.job, fence_job.token, v_newest);
        END IF;
        v_last := v_past.trail->'attempts'->-1;
        EXIT WHEN coalesce(v_settled.state, 6) = 6 AND (v_last->>'token')::bigint = fence_job.token
            AND v_last->>'how' IN ('crashed', 'timed_out', 'yielded');
        RAISE EXCEPTION USING errcode = 'FH002',
            message = format('job %s: the attempt under token %s is over', fence_job.job, fence_job.token),
            hint = 'Roll back: what it had to say of its job has been said, or somebody ended it.';
    END LOOP;
    -- So that those who find the job locked can be told by whom.
    PERFORM pg_advisory_xact_lock_shared(1179142471, (v_body.arrival % 2147483647)::integer);
END $$;

-- Which transactions have a fence on what, of every namespace. For how long they have been open is not to be seen for everybody: null then.
CREATE FUNCTION fences_open() RETURNS TABLE (namespace text, key text, owner text, task text, job text, pid integer, open_ms bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH mark AS (
        SELECT l.classid, l.objid::bigint AS rest, l.pid,
            CASE WHEN a.xact_start <= clock_timestamp()
                THEN floor(extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint END AS open_ms
        FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid IN (1179142470, 1179142471)
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
    SELECT k.namespace, k.key, h.owner, h.task, NULL, m.pid, m.open_ms
    FROM mark m CROSS JOIN LATERAL generate_series(0, (SELECT max(id) FROM lease_key) / 2147483647) AS lap
    JOIN lease_key k ON k.id = m.rest + lap * 2147483647
    LEFT JOIN lease_hold h ON h.key_id = k.id
    WHERE m.classid = 1179142470
    UNION ALL
    SELECT q.namespace, NULL, NULL, NULL, b.id::text, m.pid, m.open_ms
    FROM mark m CROSS JOIN LATERAL generate_series(0, (SELECT max(arrival) FROM job_body) / 2147483647) AS lap
    JOIN job_body b ON b.arrival = m.rest + lap * 2147483647
    JOIN job_lane l ON l.lane = b.lane
    JOIN job_queue q ON q.number = l.queue
    WHERE m.classid = 1179142471
    ORDER BY 7 DESC NULLS LAST, 6
$$;

-- Refuses everybody once another server has taken over, until the first call of a store has noticed that and lifted all tokens: what was
-- given in the time that was lost is not known here. The lifting is not done here, for it would lock everything until the user commits.
CREATE FUNCTION job_before_failover(p_job uuid, p_shown bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF (SELECT timeline <> serving_timeline() FROM store_state) THEN
        RAISE EXCEPTION USING errcode = 'FH001',
            message = format('job %s: token %s is stale; another server has taken over since', p_job, p_shown),
            hint = 'Roll back: the job is given to somebody anew.';
    END IF;
END $$;

CREATE FUNCTION job_stale(p_job uuid, p_shown bigint, p_newest bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION USING errcode = 'FH001',
        message = format('job %s: token %s is stale; the newest is %s', p_job, p_shown, p_newest),
        hint = 'Roll back: the job went on without this attempt.';
END $$;

-- Completes a job in the transaction that does its work: either both are there afterwards, or neither. The hold id is the one
-- that the claim was made with, as 32 hexadecimal digits.
CREATE FUNCTION complete(job uuid, hold text, token bigint, result jsonb DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    PERFORM job_complete_hashed(complete.job, encode(substr(sha256(decode(complete.hold, 'hex')), 1, 16), 'hex')::uuid,
        complete.token, complete.result::text);
END $$;

CREATE FUNCTION job_complete_hashed(p_job uuid, p_hash uuid, p_token bigint, p_result text) RETURNS void
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
    PERFORM job_before_failover(p_job, p_token);
    IF EXISTS (SELECT FROM job_complete(v_namespace, array[p_job], array[p_hash], array[p_token], array[p_result])) THEN
        RETURN;
    END IF;
    -- The same word again.
    SELECT s.* INTO v_settled FROM job_settled s JOIN job_body b ON b.arrival = s.arrival WHERE b.id = p_job FOR KEY SHARE OF s;
    IF v_settled.state = 3 AND v_settled.token = p_token AND v_settled.hash = p_hash THEN
        RETURN;
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

-- Until when a claim lasts, where the clock has jumped: see `job_honour_suspension`, which writes that down.
CREATE FUNCTION job_deadline(r job_running, p_now bigint) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT CASE WHEN s.suspended_from_ms BETWEEN 1 AND p_now AND r.deadline_ms - r.ttl_ms < s.suspended_from_ms
        THEN greatest(r.deadline_ms, least(s.suspended_from_ms + r.ttl_ms, r.limit_ms)) ELSE r.deadline_ms END
    FROM store_state s
$$;

-- An attempt is about to have an effect, and its job is under its fence for the rest of the transaction. What the effect gave, where it is
-- recorded: that, whoever may speak of the job at all may know. Null: it may go ahead. As `fencehold_core::ledger::begin` has it, one whose
-- claim has run out begins nothing new, and nobody goes ahead where another attempt may have had the effect and a person must look.
CREATE FUNCTION job_recorded(p_job uuid, p_hash uuid, p_token bigint, p_effect text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_run   job_running;
    v_found jsonb;
BEGIN
    PERFORM fence_job(p_job, p_token);
    SELECT * INTO v_run FROM job_running r WHERE r.id = p_job;
    IF coalesce(v_run.hash <> p_hash, NOT EXISTS (
        SELECT FROM job_past p JOIN job_body b ON b.arrival = p.arrival
        WHERE b.id = p_job AND p.trail->'attempts'->-1->'hash' = (
            SELECT jsonb_agg(get_byte(uuid_send(p_hash), i) ORDER BY i) FROM generate_series(0, 15) AS i)))
    THEN
        RAISE EXCEPTION USING errcode = 'FH002',
            message = format('job %s: the hold id is not the one that token %s was given to', p_job, p_token), hint = 'Roll back.';
    END IF;
    SELECT e.effect INTO v_found FROM job_effect e JOIN job_body b ON b.arrival = e.arrival
        WHERE b.id = p_job AND e.name = p_effect;
    IF jsonb_typeof(v_found->'state') = 'string' THEN
        RETURN (v_found->>'value')::jsonb;
    END IF;
    IF v_run.id IS NULL OR job_deadline(v_run, now_ms()) <= now_ms() THEN
        RAISE EXCEPTION USING errcode = 'FH002',
            message = format('job %s: the claim under token %s has run out, and begins no new effect', p_job, p_token),
            hint = 'Roll back: the job is given to somebody anew.';
    END IF;
    IF v_found->'state'->>'intended' = 'ask' AND (v_found->>'token')::bigint <> p_token THEN
        RAISE EXCEPTION USING errcode = 'FH005',
            message = format('job %s: nobody knows whether the effect %s happened: the attempt under token %s announced it, and said no more',
                p_job, p_effect, v_found->>'token'),
            hint = 'Roll back, and have a person look: see `fencehold reconcile`.';
    END IF;
    RETURN NULL;
END $$;

-- Records an effect of a live attempt in the transaction that has it. The value: as it was said, or as the first one said it.
CREATE FUNCTION once(job uuid, hold text, token bigint, effect text, value jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_hash uuid := encode(substr(sha256(decode(once.hold, 'hex')), 1, 16), 'hex')::uuid;
BEGIN
    -- The effect is in this transaction: so this is where it begins, too.
    RETURN coalesce(job_recorded(once.job, v_hash, once.token, once.effect),
        job_once_hashed(once.job, v_hash, once.token, once.effect, once.value));
END $$;

-- The same for one that has asked `job_recorded` before it had the effect: what came of it may be said late.
CREATE FUNCTION job_once_hashed(p_job uuid, p_hash uuid, p_token bigint, p_effect text, p_value jsonb) RETURNS jsonb
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

DO $$
BEGIN
    CALL permit('fencehold_worker', 'EXECUTE ON FUNCTION '
        'enqueue(text, text, jsonb, smallint, timestamptz, text, interval, jsonb, text, uuid), fence_job(uuid, bigint), '
        'complete(uuid, text, bigint, jsonb), once(uuid, text, bigint, text, jsonb), '
        'job_complete_hashed(uuid, uuid, bigint, text), job_once_hashed(uuid, uuid, bigint, text, jsonb), '
        'job_recorded(uuid, uuid, bigint, text), fences_open()');
END
$$;
