-- Enqueueing in users' own transactions, from any language: what is rolled back there has not happened here either. `enqueue_job` is for the
-- usual job, `enqueue_jobs` for sets of jobs with every option. The defaults, the checks and the words are the library's.

-- An id as the library makes them: a UUID of version 7.
CREATE OR REPLACE FUNCTION job_new_id() RETURNS uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT encode(set_byte(overlay(uuid_send(gen_random_uuid()) placing substr(int8send(now_ms()), 3) FROM 1 FOR 6),
        6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112), 'hex')::uuid
$$;

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

CREATE OR REPLACE FUNCTION job_check_queue(p_queue text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF starts_with(p_queue, 'fencehold/') THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023',
            message = format('queue %s is reserved: names that start with fencehold/ are', p_queue);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION job_check_payload(p_payload text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF octet_length(p_payload) > 1048576 THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = format('payload has %s bytes; the limit is 1048576', octet_length(p_payload));
    END IF;
    PERFORM json_check_depth('payload', p_payload);
END $$;

-- By what a unique key, or a payload, is recognised: as in the library, the first half of the SHA-256.
CREATE OR REPLACE FUNCTION job_digest(p_text text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(substr(sha256(convert_to(p_text, 'UTF8')), 1, 16), 'hex')::uuid
$$;

-- Notifies the claims that wait in these queues.
CREATE OR REPLACE FUNCTION job_announce(p_namespace text, p_queues text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'serializable' THEN
        -- What is ready is not looked at: others add to it, and each would fail the other.
        PERFORM tell('line/' || f.hash) FROM (
            SELECT w.hash FROM job_waiter w
            WHERE w.namespace = p_namespace AND w.queue = ANY (p_queues)
                AND w.beat > clock_timestamp() - interval '5 seconds' AND w.until_ms > now_ms()
            ORDER BY w.since_ms, w.place LIMIT 8) f;
    ELSE
        PERFORM job_stir(p_namespace, p_queues);
    END IF;
END $$;

-- Enqueues jobs whose input was checked, each as `job_document` gives it, and returns the numbers of those that are new. What others are
-- about to make is waited for until a bound (`job_producer_bound`).
CREATE OR REPLACE FUNCTION job_enqueue_bounded(p_namespace text, p_jobs jsonb[], p_payloads text[]) RETURNS bigint[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_before CONSTANT text := current_setting('lock_timeout');
    v_ids uuid[];
    v_queues text[];
    v_priorities smallint[];
    v_kinds text[];
    v_terms jsonb[];
    v_extras jsonb[];
    v_at_ms bigint[];
    v_after_ms bigint[];
    v_urgent boolean[];
    v_unique text[];
    v_keys uuid[];
    v_digests uuid[];
    v_windows bigint[];
    v_made bigint[];
BEGIN
    SELECT array_agg((j.job->>'id')::uuid ORDER BY j.nth), array_agg(j.job->>'queue' ORDER BY j.nth),
        array_agg((j.job->>'priority')::smallint ORDER BY j.nth), array_agg(j.job->>'kind' ORDER BY j.nth),
        array_agg(nullif(j.job->'terms', 'null') ORDER BY j.nth), array_agg(nullif(j.job->'extra', '{}') ORDER BY j.nth),
        array_agg((j.job->>'at_ms')::bigint ORDER BY j.nth), array_agg((j.job->>'after_ms')::bigint ORDER BY j.nth),
        array_agg(j.job->'extra' ? 'yield_within_ms' ORDER BY j.nth),
        array_agg(DISTINCT j.job->>'unique') FILTER (WHERE j.job->>'unique' IS NOT NULL),
        array_agg(job_digest('job:' || (j.job->>'unique')) ORDER BY j.nth),
        array_agg(CASE WHEN j.job->>'unique' IS NOT NULL THEN job_digest(j.payload) END ORDER BY j.nth),
        array_agg((j.job->>'window_ms')::bigint ORDER BY j.nth)
    INTO v_ids, v_queues, v_priorities, v_kinds, v_terms, v_extras, v_at_ms, v_after_ms, v_urgent, v_unique, v_keys, v_digests, v_windows
    FROM unnest(p_jobs, p_payloads) WITH ORDINALITY AS j(job, payload, nth);
    IF v_unique IS NULL THEN
        v_keys := NULL;
    END IF;
    -- Where nothing can be waited for, nothing has to be caught.
    IF cardinality(p_jobs) = 1 AND v_unique IS NULL AND NOT (p_jobs[1]->>'id_given')::boolean AND EXISTS (
        SELECT FROM job_queue q JOIN job_lane l ON l.queue = q.number
        WHERE q.namespace = p_namespace AND q.name = v_queues[1] AND l.priority = v_priorities[1])
    THEN
        RETURN array(SELECT e FROM job_enqueue_batch(p_namespace, v_ids, v_queues, v_priorities, v_kinds, p_payloads, v_terms, v_extras,
            v_at_ms, v_after_ms, v_urgent, v_keys, v_digests, v_windows) AS e);
    END IF;
    BEGIN
        PERFORM set_config('lock_timeout', job_producer_bound(), true);
        v_made := array(SELECT e FROM job_enqueue_batch(p_namespace, v_ids, v_queues, v_priorities, v_kinds, p_payloads, v_terms, v_extras,
            v_at_ms, v_after_ms, v_urgent, v_keys, v_digests, v_windows) AS e);
        PERFORM set_config('lock_timeout', v_before, true);
    EXCEPTION
        WHEN lock_not_available OR deadlock_detected THEN
            RAISE EXCEPTION USING errcode = SQLSTATE, constraint = SQLSTATE,
                message = job_held_up(p_namespace, v_queues, v_priorities, v_unique),
                hint = 'Roll back, and try again when that transaction has ended. fencehold.enqueue_wait_ms says how long to wait for it.';
    END;
    RETURN v_made;
END $$;

-- Enqueues one job whose input was checked, and says what became of it.
CREATE OR REPLACE FUNCTION job_enqueue_one(p_namespace text, p_job jsonb, p_payload text, OUT p_id uuid, OUT p_existed boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_id      CONSTANT uuid := p_job->>'id';
    v_queue   CONSTANT text := p_job->>'queue';
    v_kind    CONSTANT text := p_job->>'kind';
    v_key     CONSTANT uuid := job_digest('job:' || (p_job->>'unique'));
    v_first   record;
    v_differs text;
    v_full    text;
BEGIN
    FOR attempt IN 1 .. 3 LOOP
        IF cardinality(job_enqueue_bounded(p_namespace, array[p_job], array[p_payload])) > 0 THEN
            p_id := v_id;
            p_existed := false;
            RETURN;
        END IF;
        IF EXISTS (SELECT FROM job_body b WHERE b.id = v_id) THEN
            v_differs := job_differs(v_id, p_namespace, v_queue, v_kind, p_payload);
            IF v_differs IS NULL THEN
                p_id := v_id;
                p_existed := true;
                RETURN;
            END IF;
            RAISE EXCEPTION USING errcode = '23505', constraint = '23505',
                message = format('the id is taken by job %s, which has another %s', v_id, v_differs);
        END IF;
        IF EXISTS (SELECT FROM job_queue q WHERE q.namespace = p_namespace AND q.name = v_queue AND q.mode = 2) THEN
            RAISE EXCEPTION USING errcode = 'FH004', constraint = 'FH004',
                message = format('queue %s is being drained and takes no new jobs', v_queue), hint = '`queue resume` opens it again.';
        END IF;
        -- Another job has the key: for its window, and until it has ended.
        SELECT u.* INTO v_first FROM job_unique u WHERE u.namespace = p_namespace AND u.key = v_key FOR UPDATE;
        IF found THEN
            IF v_first.until_ms > now_ms() OR NOT job_is_over(v_first.job) THEN
                v_differs := job_differs(v_first.job, p_namespace, v_queue, v_kind, p_payload);
                IF v_differs IS NOT NULL THEN
                    RAISE EXCEPTION USING errcode = '23505', constraint = '23505',
                        message = format('the unique key is taken by job %s, which has another %s', v_first.job, v_differs);
                END IF;
                p_id := v_first.job;
                p_existed := true;
                RETURN;
            END IF;
            DELETE FROM job_unique u WHERE u.namespace = p_namespace AND u.key = v_key;
        END IF;
        v_full := namespace_full(p_namespace, array[v_queue], 1, octet_length(p_payload));
        IF v_full IS NOT NULL THEN
            RAISE EXCEPTION USING errcode = 'FH006', constraint = 'FH006', message = v_full;
        END IF;
    END LOOP;
    RAISE EXCEPTION USING errcode = '40001', constraint = '40001', message = 'others enqueue the same job again and again; try the transaction again';
END $$;

-- Enqueues a job, and returns its id; of one with the same unique key, the first one's. `run_at` delays it. The identity of a request is
-- its queue, kind and payload. Every wait has a bound (`job_producer_bound`). `enqueue_jobs` takes every option.
CREATE OR REPLACE FUNCTION enqueue_job(
    queue text, kind text, payload jsonb, priority integer DEFAULT 0, run_at timestamptz DEFAULT NULL,
    unique_key text DEFAULT NULL, unique_window interval DEFAULT '1 day', labels jsonb DEFAULT NULL,
    namespace text DEFAULT 'default', id uuid DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_text    CONSTANT text := enqueue_job.payload::text;
    v_at_ms   CONSTANT numeric := floor(extract(epoch FROM enqueue_job.run_at) * 1000);
    v_window  CONSTANT numeric := floor(extract(epoch FROM enqueue_job.unique_window) * 1000);
    v_labels  jsonb;
    v_problem text;
    v_job     record;
BEGIN
    PERFORM job_check_name('queue', enqueue_job.queue, 128), job_check_name('kind', enqueue_job.kind, 128),
        job_check_name('namespace', enqueue_job.namespace, 64), job_check_queue(enqueue_job.queue), job_check_payload(v_text);
    IF enqueue_job.labels IS NOT NULL THEN
        PERFORM json_check_object('labels', enqueue_job.labels::json);
        v_labels := job_labels(coalesce((SELECT json_object_agg(l.key, l.value ORDER BY l.key) FROM jsonb_each(enqueue_job.labels) AS l), '{}'), NULL);
    END IF;
    IF enqueue_job.unique_key IS NOT NULL THEN
        PERFORM job_check_name('unique key', enqueue_job.unique_key, 512);
    END IF;
    v_problem := CASE
        WHEN v_text IS NULL THEN 'payload is missing'
        WHEN enqueue_job.priority IS NULL OR enqueue_job.priority NOT BETWEEN -32768 AND 32767 THEN
            format('priority takes a whole number from -32768 to 32767, not %s', coalesce(enqueue_job.priority::text, 'null'))
        WHEN enqueue_job.id = '00000000-0000-0000-0000-000000000000' THEN 'id is the nil UUID, which is no id: give another, or none'
        WHEN v_at_ms < 0 THEN 'run_at is before 1970'
        WHEN v_at_ms > 253402300799999 THEN 'run_at is after the year 9999'
        WHEN enqueue_job.unique_key IS NOT NULL AND (v_window IS NULL OR v_window NOT BETWEEN 1 AND 31622400000) THEN
            format('dedup window is %s ms; it takes 1 to 31622400000 ms (a year)', coalesce(v_window::text, 'null'))
    END;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = v_problem;
    END IF;
    SELECT * INTO v_job FROM job_enqueue_one(enqueue_job.namespace, jsonb_build_object('id', coalesce(enqueue_job.id, job_new_id()),
        'id_given', enqueue_job.id IS NOT NULL, 'queue', enqueue_job.queue, 'kind', enqueue_job.kind, 'priority', enqueue_job.priority,
        'terms', NULL, 'at_ms', v_at_ms, 'after_ms', NULL, 'unique', enqueue_job.unique_key, 'window_ms', v_window,
        'extra', jsonb_strip_nulls(jsonb_build_object('labels', v_labels, 'unique', enqueue_job.unique_key))), v_text);
    IF NOT v_job.p_existed THEN
        PERFORM job_announce(enqueue_job.namespace, array[enqueue_job.queue]);
    END IF;
    RETURN v_job.p_id;
END $$;

-- Enqueues jobs, all of them or none, and returns for each, in their order, its id and whether it was there already. Each is an object of the
-- form that `POST /v1/jobs/enqueue` takes. `json`, and not `jsonb`: a payload is kept as it was written.
CREATE OR REPLACE FUNCTION enqueue_jobs(jobs json, namespace text DEFAULT 'default') RETURNS TABLE (job_id uuid, existed boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_count    integer;
    v_bytes    bigint := 0;
    v_document json;
    v_read     record;
    v_jobs     jsonb[] := '{}';
    v_payloads text[] := '{}';
    v_made     bigint[] := '{}';
    v_is_new   boolean[];
    v_queues   text[];
    v_nth      integer := 0;
BEGIN
    PERFORM job_check_name('namespace', enqueue_jobs.namespace, 64);
    IF json_typeof(enqueue_jobs.jobs) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = 'jobs are an array of objects, one for each job';
    END IF;
    v_count := json_array_length(enqueue_jobs.jobs);
    IF v_count > 10000 THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = format('jobs are %s; the limit of one call is 10000', v_count);
    END IF;
    BEGIN
        FOR v_document IN SELECT d.value FROM json_array_elements(enqueue_jobs.jobs) AS d LOOP
            v_nth := v_nth + 1;
            SELECT * INTO v_read FROM job_document(v_document);
            v_jobs := v_jobs || v_read.p_job;
            v_payloads := v_payloads || v_read.p_payload;
            v_bytes := v_bytes + octet_length(v_read.p_payload);
        END LOOP;
    EXCEPTION
        WHEN data_exception THEN
            RAISE EXCEPTION USING errcode = SQLSTATE, constraint = SQLSTATE, message = SQLERRM,
                detail = format('It is job %s of %s.', v_nth, v_count);
    END;
    IF v_bytes > 16777216 THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = format('jobs have %s bytes; the limit of one call is 16777216', v_bytes);
    END IF;
    IF v_count > 1 THEN
        BEGIN
            v_made := job_enqueue_bounded(enqueue_jobs.namespace, v_jobs, v_payloads);
        EXCEPTION
            -- Another transaction enqueued one of them at this moment: each by itself is found to be there.
            WHEN unique_violation THEN v_made := '{}';
        END;
    END IF;
    v_is_new := array(SELECT m.nth IS NOT NULL FROM generate_series(1, v_count) AS s LEFT JOIN unnest(v_made) AS m(nth) ON m.nth = s ORDER BY s);
    FOR v_nth IN 1 .. v_count LOOP
        IF v_is_new[v_nth] THEN
            job_id := (v_jobs[v_nth]->>'id')::uuid;
            existed := false;
        ELSE
            SELECT o.p_id, o.p_existed INTO job_id, existed
                FROM job_enqueue_one(enqueue_jobs.namespace, v_jobs[v_nth], v_payloads[v_nth]) AS o;
        END IF;
        IF NOT existed THEN
            v_queues := v_queues || (v_jobs[v_nth]->>'queue');
        END IF;
        RETURN NEXT;
    END LOOP;
    IF v_queues IS NOT NULL THEN
        PERFORM job_announce(enqueue_jobs.namespace, array(SELECT DISTINCT q FROM unnest(v_queues) AS q));
    END IF;
END $$;
