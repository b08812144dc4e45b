-- Jobs in users' own transactions, from any language: what is rolled back there has not happened here either.
--
-- The SQLSTATEs are those of the fences: FH001 stale, FH002 ended, FH003 unknown; FH004 where a queue takes no new jobs; FH005 where it is
-- not known whether an effect happened; and FH006 where a limit of the namespace is reached.

-- An id as the library makes them: a UUID of version 7.
CREATE OR REPLACE FUNCTION job_new_id() RETURNS uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT encode(set_byte(overlay(uuid_send(gen_random_uuid()) placing substr(int8send(now_ms()), 3) FROM 1 FOR 6),
        6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112), 'hex')::uuid
$$;

CREATE OR REPLACE FUNCTION job_check_name(p_what text, p_name text, p_most integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF p_name IS NULL OR octet_length(p_name) NOT BETWEEN 1 AND p_most OR p_name ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION USING errcode = '22023',
            message = format('%s takes 1 to %s bytes without control characters', p_what, p_most);
    END IF;
END $$;

-- For how long a producer waits for another's open transaction, as `lock_timeout` takes it: the setting `fencehold.enqueue_wait_ms`, and
-- never longer than what is in force already.
CREATE OR REPLACE FUNCTION job_producer_bound() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    wanted   bigint := greatest(coalesce(nullif(current_setting('fencehold.enqueue_wait_ms', true), '')::bigint, 2000), 1);
    in_force bigint := extract(epoch FROM current_setting('lock_timeout')::interval) * 1000;
BEGIN
    RETURN CASE WHEN in_force > 0 AND in_force < wanted THEN in_force ELSE wanted END::text;
END $$;

-- What a producer waited for in vain, and the oldest transaction that may block it: one that has written where it wants to write.
CREATE OR REPLACE FUNCTION job_held_up(p_namespace text, p_queues text[], p_priorities smallint[], p_keys text[]) RETURNS text
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

-- Enqueues a job, and returns its id; of one with the same unique key, the first one's. `run_at` delays it. The identity of a request is
-- its queue, kind and payload. Every wait has a bound (`job_producer_bound`).
CREATE OR REPLACE FUNCTION enqueue_job(
    queue text, kind text, payload jsonb, priority integer DEFAULT 0, run_at timestamptz DEFAULT NULL,
    unique_key text DEFAULT NULL, unique_window interval DEFAULT '1 day', labels jsonb DEFAULT NULL,
    namespace text DEFAULT 'default', id uuid DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_id     uuid := coalesce(enqueue_job.id, job_new_id());
    v_digest uuid;
    v_key    uuid;
    v_text   text := enqueue_job.payload::text;
    v_first  record;
    v_pairs  jsonb;
    v_made   bigint;
    v_waits  boolean;
    v_differs text;
    v_full   text;
    v_bound  CONSTANT text := job_producer_bound();
    v_before CONSTANT text := current_setting('lock_timeout');
BEGIN
    PERFORM job_check_name('queue', enqueue_job.queue, 128), job_check_name('kind', enqueue_job.kind, 128),
        job_check_name('namespace', enqueue_job.namespace, 64);
    IF enqueue_job.queue LIKE 'fencehold/%' THEN
        RAISE EXCEPTION USING errcode = '22023', message = format('queue %s is reserved: names that start with fencehold/ are', enqueue_job.queue);
    END IF;
    IF v_text IS NULL OR octet_length(v_text) > 1048576 THEN
        RAISE EXCEPTION USING errcode = '22023', message = format('payload takes JSON of up to 1048576 bytes, and this has %s',
            coalesce(octet_length(v_text), 0));
    END IF;
    PERFORM json_check_depth('payload', v_text);
    IF enqueue_job.labels IS NOT NULL THEN
        IF jsonb_typeof(enqueue_job.labels) <> 'object'
            OR EXISTS (SELECT FROM jsonb_each(enqueue_job.labels) AS l WHERE jsonb_typeof(l.value) <> 'string'
                OR octet_length(l.key) NOT BETWEEN 1 AND 64 OR octet_length(l.value #>> '{}') > 256)
            OR (SELECT count(*) FROM jsonb_object_keys(enqueue_job.labels)) > 16 THEN
            RAISE EXCEPTION USING errcode = '22023',
                message = 'labels take an object of up to 16 texts: names of up to 64 bytes, values of up to 256';
        END IF;
        SELECT jsonb_agg(jsonb_build_array(l.key, l.value) ORDER BY l.key) INTO v_pairs FROM jsonb_each(enqueue_job.labels) AS l;
    END IF;
    IF enqueue_job.unique_key IS NOT NULL THEN
        PERFORM job_check_name('unique key', enqueue_job.unique_key, 512);
        -- As the library has it: the first half of the SHA-256.
        v_key := encode(substr(sha256(convert_to('job:' || enqueue_job.unique_key, 'UTF8')), 1, 16), 'hex')::uuid;
        v_digest := encode(substr(sha256(convert_to(v_text, 'UTF8')), 1, 16), 'hex')::uuid;
    END IF;
    FOR attempt IN 1 .. 3 LOOP
        -- What others are about to make is waited for until a bound. Where that cannot be, nothing has to be caught.
        v_waits := v_key IS NOT NULL OR enqueue_job.id IS NOT NULL OR NOT EXISTS (
            SELECT FROM job_queue q JOIN job_lane l ON l.queue = q.number
            WHERE q.namespace = enqueue_job.namespace AND q.name = enqueue_job.queue AND l.priority = enqueue_job.priority);
        IF v_waits THEN
            BEGIN
                PERFORM set_config('lock_timeout', v_bound, true);
                SELECT e INTO v_made FROM job_enqueue_batch(enqueue_job.namespace, array[v_id], array[enqueue_job.queue],
                    array[enqueue_job.priority::smallint], array[enqueue_job.kind], array[v_text], array[NULL::jsonb],
                    array[nullif(jsonb_strip_nulls(jsonb_build_object('labels', v_pairs, 'unique', enqueue_job.unique_key)), '{}')],
                    array[floor(extract(epoch FROM enqueue_job.run_at) * 1000)::bigint], array[NULL::bigint], array[false],
                    CASE WHEN v_key IS NULL THEN NULL ELSE array[v_key] END, array[v_digest],
                    array[floor(extract(epoch FROM enqueue_job.unique_window) * 1000)::bigint]) AS e;
                PERFORM set_config('lock_timeout', v_before, true);
            EXCEPTION
                WHEN lock_not_available OR deadlock_detected THEN
                    RAISE EXCEPTION USING errcode = SQLSTATE,
                        message = job_held_up(enqueue_job.namespace, array[enqueue_job.queue], array[enqueue_job.priority::smallint],
                            CASE WHEN enqueue_job.unique_key IS NULL THEN NULL ELSE array[enqueue_job.unique_key] END),
                        hint = 'Roll back, and try again when that transaction has ended. fencehold.enqueue_wait_ms says how long to wait for it.';
            END;
        ELSE
            SELECT e INTO v_made FROM job_enqueue_batch(enqueue_job.namespace, array[v_id], array[enqueue_job.queue],
                array[enqueue_job.priority::smallint], array[enqueue_job.kind], array[v_text], array[NULL::jsonb],
                array[nullif(jsonb_strip_nulls(jsonb_build_object('labels', v_pairs, 'unique', enqueue_job.unique_key)), '{}')],
                array[floor(extract(epoch FROM enqueue_job.run_at) * 1000)::bigint], array[NULL::bigint], array[false],
                CASE WHEN v_key IS NULL THEN NULL ELSE array[v_key] END, array[v_digest],
                array[floor(extract(epoch FROM enqueue_job.unique_window) * 1000)::bigint]) AS e;
        END IF;
        IF v_made IS NOT NULL THEN
            IF current_setting('transaction_isolation') = 'serializable' THEN
                -- What is ready is not looked at: others add to it, and each would fail the other.
                PERFORM tell('line/' || f.hash) FROM (
                    SELECT w.hash FROM job_waiter w
                    WHERE w.namespace = enqueue_job.namespace AND w.queue = enqueue_job.queue
                        AND w.beat > clock_timestamp() - interval '5 seconds' AND w.until_ms > now_ms()
                    ORDER BY w.since_ms, w.place LIMIT 8) f;
            ELSE
                PERFORM job_stir(enqueue_job.namespace, array[enqueue_job.queue]);
            END IF;
            RETURN v_id;
        END IF;
        IF EXISTS (SELECT FROM job_body b WHERE b.id = v_id) THEN
            v_differs := job_differs(v_id, enqueue_job.namespace, enqueue_job.queue, enqueue_job.kind, v_text);
            IF v_differs IS NULL THEN
                RETURN v_id;
            END IF;
            RAISE EXCEPTION USING errcode = '23505', message = format('the id is taken by job %s, which has another %s', v_id, v_differs);
        END IF;
        IF EXISTS (SELECT FROM job_queue q WHERE q.namespace = enqueue_job.namespace AND q.name = enqueue_job.queue AND q.mode = 2) THEN
            RAISE EXCEPTION USING errcode = 'FH004',
                message = format('queue %s is being drained and takes no new jobs', enqueue_job.queue), hint = '`queue resume` opens it again.';
        END IF;
        -- Another job has the key: for its window, and until it has ended.
        SELECT u.* INTO v_first FROM job_unique u WHERE u.namespace = enqueue_job.namespace AND u.key = v_key FOR UPDATE;
        IF found THEN
            IF v_first.until_ms > now_ms() OR NOT job_is_over(v_first.job) THEN
                v_differs := job_differs(v_first.job, enqueue_job.namespace, enqueue_job.queue, enqueue_job.kind, v_text);
                IF v_differs IS NOT NULL THEN
                    RAISE EXCEPTION USING errcode = '23505',
                        message = format('the unique key is taken by job %s, which has another %s', v_first.job, v_differs);
                END IF;
                RETURN v_first.job;
            END IF;
            DELETE FROM job_unique u WHERE u.namespace = enqueue_job.namespace AND u.key = v_key;
        END IF;
        v_full := namespace_full(enqueue_job.namespace, array[enqueue_job.queue], 1, octet_length(v_text));
        IF v_full IS NOT NULL THEN
            RAISE EXCEPTION USING errcode = 'FH006', message = v_full;
        END IF;
    END LOOP;
    RAISE EXCEPTION USING errcode = '40001', message = 'others enqueue the same job again and again; try the transaction again';
END $$;

-- Refuses all calls once another server has taken over, until the first call of a store has noticed that and lifted all tokens: what was
-- given in the time that was lost is not known here. The lifting is not done here, for it would lock everything until the user commits.
CREATE OR REPLACE FUNCTION job_before_failover(p_job uuid, p_shown bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF (SELECT timeline <> serving_timeline() FROM store_state) THEN
        RAISE EXCEPTION USING errcode = 'FH001',
            message = format('job %s: token %s is stale; another server has taken over since', p_job, p_shown),
            hint = 'Roll back: the job is given to somebody anew.';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION job_stale(p_job uuid, p_shown bigint, p_newest bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION USING errcode = 'FH001',
        message = format('job %s: token %s is stale; the newest is %s', p_job, p_shown, p_newest),
        hint = 'Roll back: the job went on without this attempt.';
END $$;

-- Passes under the newest token of a job, unless its attempt has ended; one that expired passes, as long as the job was not claimed since.
-- Until the transaction ends, the job is not claimed; its holder's renewals go on.
CREATE OR REPLACE FUNCTION fence_job(job_id uuid, token bigint) RETURNS void
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
    PERFORM job_before_failover(fence_job.job_id, fence_job.token);
    SELECT * INTO v_body FROM job_body b WHERE b.id = fence_job.job_id;
    IF NOT found THEN
        RAISE EXCEPTION USING errcode = 'FH002', message = format('job %s: there is no such job', fence_job.job_id),
            hint = 'Roll back. It never was, or it was deleted, or pruned after its time.';
    END IF;
    IF fence_job.token > job_newest() THEN
        RAISE EXCEPTION USING errcode = 'FH003',
            message = format('job %s: token %s was never given here; the newest is %s', fence_job.job_id, fence_job.token, job_newest()),
            hint = 'Roll back. The store was rewound, or this token is another store''s: see `fencehold store advance`.';
    END IF;
    LOOP
        -- A renewal goes past a lock like this; whatever ends the claim waits for it.
        SELECT r.token INTO v_newest FROM job_running r WHERE r.id = fence_job.job_id FOR KEY SHARE;
        IF found THEN
            EXIT WHEN v_newest = fence_job.token;
            PERFORM job_stale(fence_job.job_id, fence_job.token, v_newest);
        END IF;
        PERFORM FROM job_ready r WHERE r.lane = v_body.lane AND r.arrival = v_body.arrival FOR KEY SHARE;
        IF NOT found THEN
            PERFORM FROM job_scheduled c WHERE c.arrival = v_body.arrival FOR KEY SHARE;
        END IF;
        IF NOT found THEN
            SELECT * INTO v_settled FROM job_settled s WHERE s.arrival = v_body.arrival FOR KEY SHARE;
        END IF;
        -- It may have moved while it was looked for.
        CONTINUE WHEN NOT found AND EXISTS (SELECT FROM job_body b WHERE b.id = fence_job.job_id);
        SELECT * INTO v_past FROM job_past p WHERE p.arrival = v_body.arrival;
        v_newest := coalesce(v_settled.token, v_past.token, 0);
        IF v_newest <> fence_job.token THEN
            PERFORM job_stale(fence_job.job_id, fence_job.token, v_newest);
        END IF;
        v_last := v_past.trail->'attempts'->-1;
        EXIT WHEN coalesce(v_settled.state, 6) = 6 AND (v_last->>'token')::bigint = fence_job.token
            AND v_last->>'how' IN ('crashed', 'timed_out', 'yielded');
        RAISE EXCEPTION USING errcode = 'FH002',
            message = format('job %s: the attempt under token %s is over', fence_job.job_id, fence_job.token),
            hint = 'Roll back: what it had to say of its job has been said, or somebody ended it.';
    END LOOP;
    -- So that those who find the job locked can learn by whom.
    PERFORM fence_listed(1179142471, v_body.arrival);
END $$;

-- Completes a job in the transaction that does its work: either both are there afterwards, or neither. The hold id is the one
-- that the claim was made with, as 32 hexadecimal digits.
CREATE OR REPLACE FUNCTION complete_job(job_id uuid, hold_id text, token bigint, result jsonb DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    PERFORM job_complete_hashed(complete_job.job_id, encode(substr(sha256(decode(complete_job.hold_id, 'hex')), 1, 16), 'hex')::uuid,
        complete_job.token, complete_job.result::text);
END $$;

-- The same for a caller that has the hash of the hold id.
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
    IF EXISTS (SELECT FROM job_complete_batch(v_namespace, array[p_job], array[p_hash], array[p_token], array[p_result])) THEN
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

-- Until when a claim lasts, where the clock has jumped: see `job_honour_suspension`, which writes that down.
CREATE OR REPLACE FUNCTION job_deadline(r job_running, p_now bigint) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT CASE WHEN s.suspended_from_ms BETWEEN 1 AND p_now AND r.deadline_ms - r.ttl_ms < s.suspended_from_ms
        THEN greatest(r.deadline_ms, least(s.suspended_from_ms + r.ttl_ms, r.limit_ms)) ELSE r.deadline_ms END
    FROM store_state s
$$;

-- An attempt is about to have an effect, and its job is under its fence for the rest of the transaction. Gives the result of the effect
-- where it is recorded: any attempt that passes the fence may read that. Null: it may go ahead. As `fencehold_core::ledger::begin` has it,
-- an attempt whose claim has expired begins nothing new, and none goes ahead where another attempt may have had the effect and a person
-- must look.
CREATE OR REPLACE FUNCTION job_recorded(p_job uuid, p_hash uuid, p_token bigint, p_effect text) RETURNS jsonb
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
            hint = 'Roll back, and have a person look: see `fencehold effect resolve`.';
    END IF;
    RETURN NULL;
END $$;

-- Records an effect of a live attempt in the transaction that has it. The value: this one, or the one that was recorded first.
CREATE OR REPLACE FUNCTION record_effect(job_id uuid, hold_id text, token bigint, effect text, value jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_hash uuid := encode(substr(sha256(decode(record_effect.hold_id, 'hex')), 1, 16), 'hex')::uuid;
BEGIN
    -- The effect is in this transaction: so this is where it begins, too.
    RETURN coalesce(job_recorded(record_effect.job_id, v_hash, record_effect.token, record_effect.effect),
        job_once_hashed(record_effect.job_id, v_hash, record_effect.token, record_effect.effect, record_effect.value));
END $$;

-- The same for a caller that has called `job_recorded` before the effect: its result may be recorded late.
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
