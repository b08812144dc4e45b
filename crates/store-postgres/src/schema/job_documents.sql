-- Jobs as `enqueue_jobs` takes them: documents of the form of the HTTP API, read as strictly as the library reads them, with its defaults and in
-- its words. `a_document_is_taken_and_refused_as_the_library_does` holds the two against each other.

-- What is kept of the terms of a job, as its document has them; null: they are the usual ones.
CREATE OR REPLACE FUNCTION job_terms(p_options json, OUT p_priority smallint, OUT p_terms jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_name     text;
    v_value    json;
    v_seen     text[] := '{}';
    v_failures integer := 10;
    v_crashes  integer := 5;
    v_limit_ms bigint;
    v_retry    jsonb := '{"backoff": "exponential", "base_delay_ms": 1000, "max_delay_ms": 3600000, "jitter_percent": 20}';
    v_usual    CONSTANT jsonb := v_retry;
    v_problem  text;
BEGIN
    p_priority := 0;
    PERFORM json_check_object('options', p_options);
    FOR v_name, v_value IN SELECT o.key, o.value FROM json_each(p_options) AS o LOOP
        v_seen := json_seen(v_seen, v_name);
        CASE v_name
            WHEN 'priority' THEN p_priority := json_whole(v_name, v_value, -32768, 32767);
            WHEN 'max_failures' THEN v_failures := json_whole(v_name, v_value, 0, 65535);
            WHEN 'max_crashes' THEN v_crashes := json_whole(v_name, v_value, 0, 65535);
            WHEN 'attempt_timeout_ms' THEN
                IF json_typeof(v_value) <> 'null' THEN
                    v_limit_ms := json_whole(v_name, v_value, 1, 4294967295);
                END IF;
            WHEN 'retry' THEN
                PERFORM json_check_object(v_name, v_value);
                v_retry := jsonb_build_object(
                    'backoff', json_string('backoff', v_value->'backoff'),
                    'base_delay_ms', json_whole('base_delay_ms', v_value->'base_delay_ms', 0, 4294967295),
                    'max_delay_ms', json_whole('max_delay_ms', v_value->'max_delay_ms', 0, 4294967295),
                    'jitter_percent', json_whole('jitter_percent', v_value->'jitter_percent', 0, 255));
            ELSE PERFORM json_unknown(v_name, '{priority,max_failures,max_crashes,attempt_timeout_ms,retry}');
        END CASE;
    END LOOP;
    -- As `JobOptions::check` has it, in its order and its words.
    v_problem := CASE
        WHEN v_failures NOT BETWEEN 1 AND 10000 THEN format('max_failures is %s; it takes 1 to 10000', v_failures)
        WHEN v_crashes NOT BETWEEN 1 AND 10000 THEN format('max_crashes is %s; it takes 1 to 10000', v_crashes)
        WHEN v_limit_ms > 2592000000 THEN
            format('time limit of an attempt is %s ms; the limit is 2592000000 ms (30 days)', v_limit_ms)
        WHEN v_retry->>'backoff' NOT IN ('fixed', 'linear', 'exponential') THEN
            format('retry %s is not known; it takes fixed, linear or exponential', v_retry->'backoff')
        WHEN v_retry->>'base_delay_ms' = '0' THEN 'retry has a base of 0s; the least is 1ms'
        WHEN (v_retry->>'max_delay_ms')::bigint < (v_retry->>'base_delay_ms')::bigint THEN
            format('retry has a cap of %s, below its base of %s: the base comes first, as in 1s..1h',
                shown_ms((v_retry->>'max_delay_ms')::bigint), shown_ms((v_retry->>'base_delay_ms')::bigint))
        WHEN v_retry->>'backoff' = 'fixed' AND v_retry->'max_delay_ms' <> v_retry->'base_delay_ms' THEN
            format('retry is fixed at %s and has a cap of %s: a fixed delay has none',
                shown_ms((v_retry->>'base_delay_ms')::bigint), shown_ms((v_retry->>'max_delay_ms')::bigint))
        WHEN (v_retry->>'jitter_percent')::integer > 100 THEN
            format('retry has a jitter of %s%%; it takes 0%% to 100%%', v_retry->>'jitter_percent')
    END;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = v_problem;
    END IF;
    IF (v_failures, v_crashes, v_retry) <> (10, 5, v_usual) OR v_limit_ms IS NOT NULL THEN
        p_terms := jsonb_build_object('priority', p_priority, 'max_attempts', v_failures, 'max_crashes', v_crashes, 'attempt_ms', v_limit_ms,
            'retry', jsonb_build_object('backoff', v_retry->'backoff', 'base_ms', v_retry->'base_delay_ms', 'cap_ms', v_retry->'max_delay_ms',
                'jitter_percent', v_retry->'jitter_percent'));
    END IF;
END $$;

-- The labels of a job as they are kept, in the order in which they were given; null: it has none. `p_mask`: see `json_masked`.
CREATE OR REPLACE FUNCTION job_labels(p_labels json, p_mask text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    c_control CONSTANT text := '[\x01-\x1f\x7f-\x9f' || coalesce(p_mask, '') || ']';
    v_name    text;
    v_value   json;
    v_text    text;
    v_seen    text[] := '{}';
    v_pairs   jsonb;
    v_problem text;
BEGIN
    PERFORM json_check_object('labels', p_labels);
    FOR v_name, v_value IN SELECT l.key, l.value FROM json_each(p_labels) AS l LOOP
        v_text := json_string('label', v_value);
        v_problem := CASE
            WHEN v_name = '' OR octet_length(v_name) > 64 OR v_name ~ c_control THEN
                format('label name %s takes 1 to 64 bytes without control characters', to_json(v_name))
            WHEN octet_length(v_text) > 256 OR v_text ~ c_control THEN
                format('label of %s takes up to 256 bytes without control characters', to_json(v_name))
            WHEN v_name = ANY (v_seen) THEN format('label %s is there twice', to_json(v_name))
        END;
        IF v_problem IS NOT NULL THEN
            RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = v_problem;
        END IF;
        v_seen := v_seen || v_name;
        v_pairs := coalesce(v_pairs, '[]') || jsonb_build_array(jsonb_build_array(v_name, v_text));
    END LOOP;
    IF cardinality(v_seen) > 16 THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = format('labels are %s; the limit is 16', cardinality(v_seen));
    END IF;
    RETURN v_pairs;
END $$;

-- A document in which the functions of `json` can look: they refuse any that has the character of code zero in it, escaped, which a payload may
-- have. So another character that the document does not have stands for it.
CREATE OR REPLACE FUNCTION json_masked(p_document json, OUT p_masked json, OUT p_mask text)
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    p_masked := p_document;
    IF position('\u0000' IN p_document::text) > 0 THEN
        SELECT m INTO p_mask FROM (SELECT '\ue' || lpad(to_hex(n), 3, '0') FROM generate_series(0, 4095) AS n) AS masks(m)
            WHERE position(m IN lower(p_document::text)) = 0 LIMIT 1;
        p_masked := regexp_replace(p_document::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1\' || p_mask, 'g')::json;
    END IF;
END $$;

-- A job as its document has it, checked by the rules of `POST /v1/jobs/enqueue`, in the words of the library; and its payload, as it is written.
CREATE OR REPLACE FUNCTION job_document(p_document json, OUT p_job jsonb, OUT p_payload text)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    v_name      text;
    v_value     json;
    v_seen      text[] := '{}';
    v_id        text;
    v_queue     text := 'default';
    v_kind      text;
    v_mask      text;
    v_masked    json;
    v_priority  smallint := 0;
    v_terms     jsonb;
    v_run_at    text;
    v_at_ms     numeric;
    v_after_ms  numeric;
    v_unique    text;
    v_window_ms numeric;
    v_labels    jsonb;
    v_trace     text;
    v_yield_ms  numeric;
    v_problem   text;
BEGIN
    PERFORM json_check_object('job', p_document);
    p_payload := 'null';
    SELECT m.p_masked, m.p_mask INTO v_masked, v_mask FROM json_masked(p_document) AS m;
    FOR v_name, v_value IN SELECT j.key, j.value FROM json_each(v_masked) AS j LOOP
        v_seen := json_seen(v_seen, v_name);
        IF v_name NOT IN ('payload', 'labels') AND position(v_mask IN v_value::text) > 0 THEN
            RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = format('%s has a control character', v_name);
        END IF;
        -- What can be left out can be null, too.
        CONTINUE WHEN json_typeof(v_value) = 'null'
            AND v_name IN ('id', 'run_at', 'delay_ms', 'unique_key', 'unique_window_ms', 'traceparent', 'preempt_within_ms');
        CASE v_name
            WHEN 'id' THEN v_id := json_string('job id', v_value);
            WHEN 'queue' THEN v_queue := json_string(v_name, v_value);
            WHEN 'kind' THEN v_kind := json_string(v_name, v_value);
            WHEN 'payload' THEN p_payload := coalesce(replace(v_value::text, v_mask, '\u0000'), v_value::text);
            WHEN 'options' THEN SELECT t.p_priority, t.p_terms INTO v_priority, v_terms FROM job_terms(v_value) AS t;
            WHEN 'run_at' THEN v_run_at := json_string(v_name, v_value);
            WHEN 'delay_ms' THEN v_after_ms := json_whole(v_name, v_value, 0, 18446744073709551615);
            WHEN 'unique_key' THEN v_unique := json_string('unique key', v_value);
            WHEN 'unique_window_ms' THEN v_window_ms := json_whole(v_name, v_value, 0, 18446744073709551615);
            WHEN 'labels' THEN v_labels := job_labels(v_value, v_mask);
            WHEN 'traceparent' THEN v_trace := json_string(v_name, v_value);
            WHEN 'preempt_within_ms' THEN v_yield_ms := json_whole(v_name, v_value, 0, 18446744073709551615);
            ELSE PERFORM json_unknown(v_name, '{id,queue,kind,payload,options,run_at,delay_ms,unique_key,unique_window_ms,labels,traceparent,'
                'preempt_within_ms}');
        END CASE;
    END LOOP;
    IF v_kind IS NULL THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = 'kind is missing';
    END IF;
    PERFORM job_check_name('queue', v_queue, 128), job_check_name('kind', v_kind, 128);
    IF v_unique IS NOT NULL THEN
        PERFORM job_check_name('unique key', v_unique, 512);
    END IF;
    IF v_run_at IS NOT NULL THEN
        IF v_run_at !~* '^\d{4}-\d\d-\d\d[t ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(z|[+-]\d\d(:?\d\d)?)$' THEN
            RAISE EXCEPTION USING errcode = '22023', constraint = '22023',
                message = format('run_at %s is not a moment: it looks like 2026-11-15T09:20:00Z', to_json(v_run_at));
        END IF;
        v_at_ms := floor(extract(epoch FROM v_run_at::timestamptz) * 1000);
    END IF;
    PERFORM job_check_queue(v_queue), job_check_payload(p_payload);
    v_id := replace(btrim(v_id), '-', '');
    v_problem := CASE
        WHEN v_id !~ '^[0-9a-fA-F]{32}$' THEN format('job id %s is not 32 hexadecimal digits, as `job enqueue` printed them', to_json(v_id))
        WHEN v_id = repeat('0', 32) THEN 'id is the nil UUID, which is no id: give another, or none'
        WHEN v_at_ms < 0 THEN 'run_at is before 1970'
        WHEN v_at_ms IS NOT NULL AND v_after_ms IS NOT NULL THEN 'give `run_at` or `delay_ms`, not both'
        WHEN v_window_ms IS NOT NULL AND v_unique IS NULL THEN '`unique_window_ms` needs a `unique_key`'
        -- As `check_job` has it, in its order and its words.
        WHEN octet_length(v_trace) > 256 THEN 'trace context has more than 256 bytes'
        WHEN v_window_ms NOT BETWEEN 1 AND 31622400000 THEN
            format('dedup window is %s ms; it takes 1 to 31622400000 ms (a year)', v_window_ms)
        WHEN v_yield_ms NOT BETWEEN 1 AND 86400000 THEN 'yield time takes 1 to 86400000 ms'
        WHEN v_after_ms > 31536000000 THEN format('delay is %s ms; the limit is 31536000000 ms (365 days)', v_after_ms)
    END;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = v_problem;
    END IF;
    p_job := jsonb_build_object('id', coalesce(v_id::uuid, job_new_id()), 'id_given', v_id IS NOT NULL, 'queue', v_queue, 'kind', v_kind,
        'priority', v_priority, 'terms', v_terms, 'at_ms', v_at_ms, 'after_ms', v_after_ms, 'unique', v_unique,
        'window_ms', coalesce(v_window_ms, 86400000),
        'extra', jsonb_strip_nulls(jsonb_build_object('labels', v_labels, 'trace', v_trace, 'unique', v_unique, 'yield_within_ms', v_yield_ms)));
END $$;
