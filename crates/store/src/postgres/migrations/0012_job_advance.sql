-- After `store advance` nothing from before speaks for a job any more: the part of jobs in it.

-- The attempts of a job that ended, with one more, as `fencehold_core::job::Trail` is written in JSON.
CREATE FUNCTION job_trail_with(p_trail jsonb, p_run job_running, p_how text, p_ended_ms bigint) RETURNS jsonb
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH kept AS (
        SELECT coalesce(p_trail->'attempts', '[]'::jsonb) AS attempts, coalesce((p_trail->>'forgotten')::bigint, 0) AS forgotten
    ), room AS (
        -- As many as the core remembers.
        SELECT CASE WHEN jsonb_array_length(attempts) >= 16 THEN attempts - 0 ELSE attempts END AS attempts,
            forgotten + CASE WHEN jsonb_array_length(attempts) >= 16 THEN 1 ELSE 0 END AS forgotten
        FROM kept
    )
    SELECT jsonb_build_object('forgotten', forgotten, 'attempts', attempts || jsonb_build_object(
        'token', p_run.token, 'owner', p_run.owner, 'how', p_how, 'error', NULL,
        'hash', (SELECT jsonb_agg(get_byte(uuid_send(p_run.hash), i) ORDER BY i) FROM generate_series(0, 15) AS i),
        'since', jsonb_build_object('store_ms', p_run.since_ms, 'wall_ms', p_run.since_ms),
        'ended', jsonb_build_object('store_ms', p_ended_ms, 'wall_ms', p_ended_ms)))
    FROM room
$$;

CREATE OR REPLACE FUNCTION advance_jobs(lift bigint, by_owner text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now    bigint;
    v_newest bigint;
    v_run    job_running;
    v_past   job_past;
    v_name   record;
BEGIN
    LOCK TABLE job_running, job_ready, job_scheduled, job_settled IN EXCLUSIVE MODE;
    v_now := now_ms();
    v_newest := job_newest() + lift;
    IF v_newest > 9007199254740991 THEN
        RETURN 'the tokens of jobs';
    END IF;
    PERFORM setval('job_token', v_newest);
    FOR v_run IN SELECT * FROM job_running ORDER BY id LOOP
        IF v_run.asked->'cancel' IS NOT NULL THEN
            -- It was called off: the sweep says so, and has its effects undone.
            UPDATE job_running SET deadline_ms = 0, look_ms = 0 WHERE id = v_run.id;
            CONTINUE;
        END IF;
        SELECT * INTO v_past FROM job_past p WHERE p.arrival = v_run.arrival;
        INSERT INTO job_past (arrival, token, failures, crashes, attempts, undo, since_ms, trail)
            VALUES (v_run.arrival, v_newest, coalesce(v_past.failures, 0), coalesce(v_past.crashes, 0),
                coalesce(v_past.attempts, 0) + 1, coalesce(v_past.undo, 0), v_now,
                job_trail_with(v_past.trail, v_run, 'advanced', v_now))
            ON CONFLICT (arrival) DO UPDATE SET token = excluded.token, attempts = excluded.attempts,
                since_ms = excluded.since_ms, trail = excluded.trail;
        DELETE FROM job_running WHERE id = v_run.id;
        INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
            SELECT b.lane, b.arrival, octet_length(b.payload), true, true, coalesce(b.extra ? 'yield_within_ms', false)
            FROM job_body b WHERE b.arrival = v_run.arrival;
        SELECT q.namespace INTO v_name FROM job_lane l JOIN job_queue q ON q.number = l.queue WHERE l.lane = v_run.lane;
        PERFORM note(v_name.namespace, 'job/' || v_run.id, jsonb_build_object('job_attempt_ended', jsonb_build_object(
            'token', v_run.token, 'owner', v_run.owner, 'how', 'advanced', 'state', 'queued', 'again_in_ms', 0)), v_now);
    END LOOP;
    -- Somebody may have had the job in the time that was lost, so what was late before is stale now.
    UPDATE job_past p SET token = v_newest
        WHERE p.token < v_newest AND (p.trail->'attempts'->-1->>'token')::bigint = p.token
            AND p.trail->'attempts'->-1->>'how' IN ('crashed', 'timed_out', 'yielded')
            AND NOT EXISTS (SELECT FROM job_settled s WHERE s.arrival = p.arrival AND s.state IN (3, 4, 5));
    PERFORM tell('line/' || w.hash) FROM (SELECT DISTINCT hash FROM job_waiter) w;
    RETURN NULL;
END $$;

-- How many jobs have not come to their end.
CREATE FUNCTION job_live() RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT (SELECT count(*) FROM job_ready) + (SELECT count(*) FROM job_scheduled) + (SELECT count(*) FROM job_running)
        + (SELECT count(*) FROM job_settled WHERE state NOT IN (3, 4, 5))
$$;
