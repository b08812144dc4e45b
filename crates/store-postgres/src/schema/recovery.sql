-- After a jump of the clock, after a restore (`store advance`), and after another server has taken over.

-- A client has found that the clock jumped ahead since it said `last_said`, by the boot clock of its own machine: what is held now does not
-- expire for one ttl from now on. Once: if another client has said so since, it was the same jump, and nothing changes. Gives the moment.
--
-- The database cannot check that claim. So three in a row are believed; then what is held gets the time to expire before the next one is:
-- no client keeps the leases of others from expiring for ever.
CREATE OR REPLACE FUNCTION lease_suspend(last_said bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now  bigint;
    s    store_state;
    free boolean;
BEGIN
    SELECT * INTO s FROM store_state FOR UPDATE;
    now := now_ms();
    -- One that lies ahead was noted before the clock was set back.
    IF s.suspended_from_ms > last_said AND s.suspended_from_ms <= now THEN
        RETURN now;
    END IF;
    -- A minute in which a sweep comes by.
    free := s.suspended_from_ms > now OR s.suspended_from_ms + longest_ttl() + 60000 <= now;
    IF free OR s.suspensions < 3 THEN
        UPDATE store_state SET suspended_from_ms = now, suspensions = CASE WHEN free THEN 1 ELSE s.suspensions + 1 END;
    ELSE
        RAISE WARNING 'the clock is said to have jumped ahead again: expiry is not suspended a fourth time in a row';
    END IF;
    RETURN now;
END $$;

-- After a restore or a lossy failover: ends every lease of every namespace and lifts every counter and floor. `exhausted` names a key that
-- could not be lifted so far: then nothing was changed. A key without a token left goes to the cap, and keeps no other from being lifted.
CREATE OR REPLACE FUNCTION lease_advance(lift bigint, by_owner text, lock_ms bigint,
    OUT keys bigint, OUT ended bigint, OUT closed_for_ms bigint, OUT exhausted text, OUT namespaces jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint;
    k lease_key;
    h lease_hold;
    w lease_waiter;
    until bigint;
BEGIN
    PERFORM lease_begin(lock_ms);
    LOCK TABLE lease_key, lease_hold, namespace, job_running, job_ready, job_scheduled, job_settled IN EXCLUSIVE MODE;
    now := now_ms();
    SELECT l.key INTO exhausted FROM lease_key l
    WHERE greatest(l.counter, floor_of(l.namespace)) + lift > limit_token()
        AND greatest(l.counter, floor_of(l.namespace)) < limit_token() - 1 ORDER BY l.id LIMIT 1;
    IF exhausted IS NULL AND (SELECT floor + lift > limit_token() AND floor < limit_token() - 1 FROM store_state) THEN
        exhausted := '*';
    END IF;
    IF exhausted IS NULL THEN
        exhausted := advance_jobs(lift, by_owner);
    END IF;
    IF exhausted IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT count(*) INTO keys FROM lease_key;
    SELECT count(*) INTO ended FROM lease_hold;
    FOR w IN SELECT * FROM lease_waiter WHERE answer IS NULL ORDER BY id FOR UPDATE LOOP
        PERFORM lease_answer(w, lease_unavailable('every lease was ended by `store advance`'), now);
    END LOOP;
    FOR k IN SELECT * FROM lease_key ORDER BY id LOOP
        SELECT * INTO h FROM lease_hold WHERE key_id = k.id;
        IF h.key_id IS NOT NULL THEN
            PERFORM lease_end(k, h, 'advanced', now, by_owner, NULL, now);
        END IF;
    END LOOP;
    -- What ended in the time that was lost is not in the history: every hold id from before is treated as ended.
    UPDATE lease_key l SET counter = least(limit_token(), greatest(l.counter, floor_of(l.namespace)) + lift), forgotten_at_ms = now,
        freed_at_ms = coalesce(freed_at_ms, now);
    UPDATE namespace SET floor = floor + lift WHERE floor + lift <= limit_token();
    UPDATE store_state SET closed_until_ms = greatest(closed_until_ms, now + longest_ttl()), floor = least(limit_token(), floor + lift)
    RETURNING closed_until_ms INTO until;
    closed_for_ms := until - now;
    INSERT INTO namespace_closed (namespace, until_ms)
        SELECT t.namespace, now + greatest(max(t.ttl_ms), (SELECT s.longest_ttl_ms FROM store_state s)) FROM namespace_ttl t GROUP BY t.namespace
        ON CONFLICT (namespace) DO UPDATE SET until_ms = excluded.until_ms;
    -- As many as one answer names.
    SELECT coalesce(jsonb_agg(jsonb_build_object('namespace', c.namespace, 'closed_for_ms', c.until_ms - now)
            ORDER BY c.until_ms DESC, c.namespace), '[]')
        INTO namespaces FROM (SELECT * FROM namespace_closed o ORDER BY o.until_ms DESC, o.namespace LIMIT 1000) AS c;
END $$;

-- Another server has taken over, and may have lost what the one before had granted last: every token from now on is above any that can have
-- been given. Holders keep their leases. Attempts at jobs are ended as `store advance` ends them: another worker may have had the job in
-- the time that was lost, and a report of its earlier worker must not count.
--
-- No table is locked for this, so that no transaction of a user is waited for, be it under a fence or with a job enqueued in it: every call
-- that gives a token, or changes the state of a job, comes here first (`notice_server`) while the timeline is not noted, and from its row
-- on they go one after the other.
CREATE OR REPLACE FUNCTION lease_timeline() RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    lift CONSTANT bigint := 1048576;
    serving bigint := serving_timeline();
    known bigint;
    patience text := current_setting('lock_timeout');
BEGIN
    SELECT timeline INTO known FROM store_state;
    IF known IS NOT DISTINCT FROM serving THEN
        RETURN false;
    END IF;
    -- A session that does this and stalls is not waited for without end.
    IF patience = '0' THEN
        PERFORM set_config('lock_timeout', '2s', true);
    END IF;
    SELECT timeline INTO known FROM store_state FOR UPDATE;
    UPDATE store_state SET timeline = serving WHERE timeline IS DISTINCT FROM serving;
    IF known <> serving THEN
        UPDATE namespace n SET floor = least(limit_token() - 1, lift + greatest(
            n.floor, (SELECT max(counter) FROM lease_key k WHERE k.namespace = n.name)));
        UPDATE store_state SET floor = least(limit_token() - 1, floor + lift);
        IF advance_jobs(lift, 'another server') IS NOT NULL THEN
            RAISE WARNING 'the tokens of jobs are used up: none was lifted after another server took over';
        END IF;
    END IF;
    PERFORM set_config('lock_timeout', patience, true);
    RETURN coalesce(known <> serving, false);
END $$;

-- After a jump of the clock, what was held then does not expire for one ttl: see `lease_suspend`.
CREATE OR REPLACE FUNCTION job_honour_suspension() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now  bigint := now_ms();
    v_from bigint;
    v_till bigint; -- from then on nothing that was held at the jump can be held
BEGIN
    SELECT s.suspended_from_ms, CASE WHEN s.suspended_from_ms > 0 THEN s.suspended_from_ms + longest_ttl() END
        INTO v_from, v_till FROM store_state s;
    IF v_from > 0 AND v_from <= v_now AND v_now < v_till THEN
        UPDATE job_running r SET deadline_ms = least(v_from + r.ttl_ms, r.limit_ms)
            WHERE r.id = ANY(array(SELECT o.id FROM job_running o
                WHERE o.deadline_ms - o.ttl_ms < v_from AND o.deadline_ms < least(v_from + o.ttl_ms, o.limit_ms)
                -- Not those that another transaction changes just now; but those under a fence, which only keeps them from being ended.
                ORDER BY o.id FOR NO KEY UPDATE SKIP LOCKED));
    END IF;
END $$;

-- The attempts of a job that ended, with one more, as `fencehold_core::job::Trail` is written in JSON.
CREATE OR REPLACE FUNCTION job_trail_with(p_trail jsonb, p_run job_running, p_how text, p_ended_ms bigint) RETURNS jsonb
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

-- After `store advance`, and when another server has taken over, no earlier token counts for a job any more. For callers that keep others
-- from changing the state of a job meanwhile.
CREATE OR REPLACE FUNCTION advance_jobs(lift bigint, by_owner text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now    bigint;
    v_newest bigint;
    v_run    job_running;
    v_past   job_past;
    v_name   record;
BEGIN
    v_now := now_ms();
    v_newest := job_newest() + lift;
    IF v_newest > limit_token() THEN
        IF job_newest() < limit_token() - 1 THEN
            RETURN 'the tokens of jobs';
        END IF;
        v_newest := limit_token();
    END IF;
    PERFORM setval('job_token', v_newest);
    FOR v_run IN SELECT * FROM job_running ORDER BY id LOOP
        IF v_run.asked->'cancel' IS NOT NULL THEN
            -- It was cancelled: the sweep ends it, and has its effects compensated. Under a token of its own, so that no report under the
            -- old one counts until then.
            UPDATE job_running SET token = nextval('job_token'), deadline_ms = 0 WHERE id = v_run.id;
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
        INSERT INTO job_change (lane, was, becomes, count) VALUES (v_run.lane, 2, 0, 1);
        SELECT q.namespace INTO v_name FROM job_lane l JOIN job_queue q ON q.number = l.queue WHERE l.lane = v_run.lane;
        PERFORM note(v_name.namespace, 'job/' || v_run.id, jsonb_build_object('job_attempt_ended', jsonb_build_object(
            'token', v_run.token, 'owner', v_run.owner, 'how', 'advanced', 'state', 'queued', 'again_in_ms', 0)), v_now);
    END LOOP;
    -- Another worker may have had the job in the time that was lost, so what was late before is stale now.
    UPDATE job_past p SET token = v_newest
        WHERE p.token < v_newest AND (p.trail->'attempts'->-1->>'token')::bigint = p.token
            AND p.trail->'attempts'->-1->>'how' IN ('crashed', 'timed_out', 'yielded')
            AND NOT EXISTS (SELECT FROM job_settled s WHERE s.arrival = p.arrival AND s.state IN (3, 4, 5));
    PERFORM tell('line/' || w.hash) FROM (SELECT DISTINCT hash FROM job_waiter) w;
    RETURN NULL;
END $$;
