-- The ends and the effects of jobs in users' own transactions, from any language: what is rolled back there has not happened here either.
-- `job_producers` has how jobs are enqueued there.
--
-- The SQLSTATEs are those of the fences: FH001 stale, FH002 ended, FH003 unknown; FH004 where a queue takes no new jobs; FH005 where it is
-- not known whether an effect happened; and FH006 where a limit of the namespace is reached.

-- Refuses a name as `fencehold_core` does, in its words.
CREATE OR REPLACE FUNCTION job_check_name(p_what text, p_name text, p_most integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    c_control CONSTANT text := '[\x01-\x1f\x7f-\x9f]';
    v_problem text;
BEGIN
    IF coalesce(p_name, '') = '' THEN
        v_problem := 'must not be empty';
    ELSIF octet_length(p_name) > p_most THEN
        v_problem := format('has %s bytes; the limit is %s', octet_length(p_name), p_most);
    ELSIF p_name ~ c_control THEN
        v_problem := format('has a control character at byte %s', octet_length(regexp_replace(p_name, c_control || '.*$', '')));
    ELSE
        RETURN;
    END IF;
    RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = format('%s %s', p_what, v_problem);
END $$;

-- Refuses all calls once another server has taken over, until the first call of a store has noticed that and lifted all tokens: what was
-- given in the time that was lost is not known here. The lifting is not done here, for it would lock everything until the user commits.
CREATE OR REPLACE FUNCTION job_before_failover(p_job uuid, p_shown bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF (SELECT timeline <> serving_timeline() FROM store_state) THEN
        RAISE EXCEPTION USING errcode = 'FH001', constraint = 'FH001',
            message = format('job %s: token %s is stale; another server has taken over since', p_job, p_shown),
            hint = 'Roll back: the job is given to somebody anew.';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION job_stale(p_job uuid, p_shown bigint, p_newest bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION USING errcode = 'FH001', constraint = 'FH001',
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
        RAISE EXCEPTION USING errcode = 'FH002', constraint = 'FH002', message = format('job %s: there is no such job', fence_job.job_id),
            hint = 'Roll back. It never was, or it was deleted, or pruned after its time.';
    END IF;
    IF fence_job.token > job_newest() THEN
        RAISE EXCEPTION USING errcode = 'FH003', constraint = 'FH003',
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
        RAISE EXCEPTION USING errcode = 'FH002', constraint = 'FH002',
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
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = 'result takes JSON of up to 1048576 bytes';
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
        RAISE EXCEPTION USING errcode = '23505', constraint = '23505',
            message = format('job %s: it was completed under token %s with another result', p_job, p_token),
            hint = 'The first result stands. Read it, or roll back.';
    END IF;
    PERFORM fence_job(p_job, p_token);
    SELECT * INTO v_run FROM job_running r WHERE r.id = p_job;
    IF v_run.id IS NOT NULL AND v_run.hash <> p_hash THEN
        RAISE EXCEPTION USING errcode = 'FH002', constraint = 'FH002', message = format('job %s: the hold id is not the one that token %s was given to', p_job, p_token);
    END IF;
    RAISE EXCEPTION USING errcode = 'FH002', constraint = 'FH002',
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
        RAISE EXCEPTION USING errcode = 'FH002', constraint = 'FH002',
            message = format('job %s: the hold id is not the one that token %s was given to', p_job, p_token), hint = 'Roll back.';
    END IF;
    SELECT e.effect INTO v_found FROM job_effect e JOIN job_body b ON b.arrival = e.arrival
        WHERE b.id = p_job AND e.name = p_effect;
    IF jsonb_typeof(v_found->'state') = 'string' THEN
        RETURN (v_found->>'value')::jsonb;
    END IF;
    IF v_run.id IS NULL OR job_deadline(v_run, now_ms()) <= now_ms() THEN
        RAISE EXCEPTION USING errcode = 'FH002', constraint = 'FH002',
            message = format('job %s: the claim under token %s has run out, and begins no new effect', p_job, p_token),
            hint = 'Roll back: the job is given to somebody anew.';
    END IF;
    IF v_found->'state'->>'intended' = 'ask' AND (v_found->>'token')::bigint <> p_token THEN
        RAISE EXCEPTION USING errcode = 'FH005', constraint = 'FH005',
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
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = 'value of the effect takes JSON of up to 65536 bytes';
    END IF;
    PERFORM json_check_depth('value of the effect', p_value::text);
    PERFORM fence_job(p_job, p_token);
    SELECT * INTO v_run FROM job_running r WHERE r.id = p_job;
    IF v_run.hash IS DISTINCT FROM p_hash THEN
        RAISE EXCEPTION USING errcode = 'FH002', constraint = 'FH002',
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
