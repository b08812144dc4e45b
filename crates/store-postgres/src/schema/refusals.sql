-- Stale writes that are refused in users' own transactions leave a trace all the same.
--
-- A refusal is an error, and what an error rolls back is not recorded. So there are two ways: the library reports what it was refused on a
-- connection of its own (`write_refused`), and the functions that begin with `try_` answer instead of raising an error, and record it with
-- the transaction, which goes on.

-- Records that a stale write was refused, unless the token is that of a live holder. The key of a job is `job/ID`.
CREATE OR REPLACE FUNCTION write_refused(p_namespace text, p_key text, p_token bigint, p_action text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now    CONSTANT bigint := now_ms();
    v_newest bigint;
    v_how    text;
    v_live   boolean;
BEGIN
    PERFORM job_check_name('namespace', p_namespace, 64), job_check_name('key', p_key, 512);
    IF p_token IS NULL OR p_token NOT BETWEEN 1 AND limit_token() OR p_action IS NULL OR p_action <> ALL (
        '{renew,release,complete,fail,snooze,hand_back,checkpoint,progress,intent,outcome,write}'::text[]) THEN
        RAISE EXCEPTION USING errcode = '22023', message = 'a token that a store can give, and what was tried under it, are needed';
    END IF;
    IF p_key ~ '^job/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN
        SELECT coalesce(r.token, s.token, p.token, 0), r.token = p_token AND job_deadline(r, v_now) > v_now
        INTO v_newest, v_live
        FROM job_body b JOIN job_lane l ON l.lane = b.lane JOIN job_queue q ON q.number = l.queue
        LEFT JOIN job_running r ON r.id = b.id
        LEFT JOIN job_settled s ON s.arrival = b.arrival
        LEFT JOIN job_past p ON p.arrival = b.arrival
        WHERE b.id = substr(p_key, 5)::uuid AND q.namespace = p_namespace;
    ELSE
        SELECT k.counter, e.how, h.token = p_token AND lease_left(h, (SELECT o.suspended_from_ms FROM store_state o), v_now) > 0
        INTO v_newest, v_how, v_live
        FROM lease_key k LEFT JOIN lease_hold h ON h.key_id = k.id
        LEFT JOIN lease_ending e ON e.key_id = k.id AND e.token = p_token
        WHERE k.namespace = p_namespace AND k.key = p_key;
    END IF;
    IF v_live THEN
        RETURN false;
    END IF;
    PERFORM note(p_namespace, p_key, jsonb_build_object('stale_write_blocked', jsonb_build_object('stale_token', p_token,
        'current_token', greatest(v_newest, p_token), 'attempted', p_action, 'how', v_how)), v_now);
    RETURN true;
END $$;

-- The same as `fence`, with an answer: false, where it would be refused as stale or ended. That is recorded once the transaction commits.
CREATE OR REPLACE FUNCTION try_fence(key text, token bigint, namespace text DEFAULT 'default') RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM fence(try_fence.key, try_fence.token, try_fence.namespace);
    RETURN true;
EXCEPTION
    WHEN SQLSTATE 'FH001' OR SQLSTATE 'FH002' THEN
        PERFORM write_refused(try_fence.namespace, try_fence.key, try_fence.token, 'write');
        RETURN false;
END $$;

-- The namespace of a job; null: there is no such job.
CREATE OR REPLACE FUNCTION job_namespace(p_job uuid) RETURNS text LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (SELECT q.namespace FROM job_body b JOIN job_lane l ON l.lane = b.lane JOIN job_queue q ON q.number = l.queue WHERE b.id = p_job);
END $$;

-- The same as `complete_job`, with an answer: false, where it would be refused as stale or ended.
CREATE OR REPLACE FUNCTION try_complete_job(job_id uuid, hold_id text, token bigint, result jsonb DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM complete_job(try_complete_job.job_id, try_complete_job.hold_id, try_complete_job.token, try_complete_job.result);
    RETURN true;
EXCEPTION
    WHEN SQLSTATE 'FH001' OR SQLSTATE 'FH002' THEN
        PERFORM write_refused(job_namespace(try_complete_job.job_id), 'job/' || try_complete_job.job_id, try_complete_job.token, 'complete')
            WHERE job_namespace(try_complete_job.job_id) IS NOT NULL;
        RETURN false;
END $$;

-- The same as `record_effect`, with an answer: null, where it would be refused as stale or ended.
CREATE OR REPLACE FUNCTION try_record_effect(job_id uuid, hold_id text, token bigint, effect text, value jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN record_effect(try_record_effect.job_id, try_record_effect.hold_id, try_record_effect.token, try_record_effect.effect,
        try_record_effect.value);
EXCEPTION
    WHEN SQLSTATE 'FH001' OR SQLSTATE 'FH002' THEN
        PERFORM write_refused(job_namespace(try_record_effect.job_id), 'job/' || try_record_effect.job_id, try_record_effect.token, 'outcome')
            WHERE job_namespace(try_record_effect.job_id) IS NOT NULL;
        RETURN NULL;
END $$;
