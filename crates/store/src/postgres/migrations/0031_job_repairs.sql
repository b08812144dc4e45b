-- Jobs: repairs. A claim is given back only while nobody else was told of it; what the sweep holds against the clock is as new as
-- the clock; effects that users' transactions record and those that the rules record know of each other.

-- Somebody besides the first asker knows of it: the same claim, sent again, was told that it has the job, or it was renewed. From
-- then on only its holder gives it back, or its ttl does.
ALTER TABLE job_running ADD COLUMN taken_up boolean NOT NULL DEFAULT false;

-- Which of these claims nobody but their first asker was told of, locked: only those may be given back for somebody who has gone.
CREATE FUNCTION job_unheard(p_ids uuid[], p_tokens bigint[]) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT r.id FROM job_running r JOIN unnest(p_ids, p_tokens) AS g(id, token) ON g.id = r.id AND g.token = r.token
    WHERE NOT r.taken_up ORDER BY r.id FOR NO KEY UPDATE OF r
$$;

-- Renews claims that are live and of which nobody asks anything; returns the numbers (from 1) of those, and what remains.
CREATE OR REPLACE FUNCTION job_renew(p_namespace text, p_ids uuid[], p_hashes uuid[], p_tokens bigint[])
RETURNS TABLE (nth bigint, remaining_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now bigint;
BEGIN
    PERFORM job_honour_suspension();
    PERFORM FROM job_running r WHERE r.id = ANY(p_ids) ORDER BY r.id FOR NO KEY UPDATE;
    v_now := now_ms();
    RETURN QUERY
    -- Named twice in one call, an attempt is renewed for one of its names here, and for the others by the rules.
    WITH kept AS (
        UPDATE job_running r
            SET deadline_ms = CASE WHEN r.deadline_ms > v_now + r.ttl_ms THEN v_now + r.ttl_ms
                ELSE greatest(r.deadline_ms, v_now + least(r.ttl_ms, coalesce(r.limit_ms - v_now, r.ttl_ms))) END,
                taken_up = true
            FROM unnest(p_ids, p_hashes, p_tokens) WITH ORDINALITY AS s(id, hash, token, nth), job_lane l, job_queue q
            WHERE r.id = s.id AND r.hash = s.hash AND r.token = s.token AND r.deadline_ms > v_now AND r.asked IS NULL
                AND l.lane = r.lane AND q.number = l.queue AND q.namespace = p_namespace
            RETURNING s.nth, r.deadline_ms - v_now AS remaining_ms
    )
    SELECT k.nth, k.remaining_ms FROM kept k;
END $$;

-- Claims that have run out, to be decided upon by the rules. Those that were renewed since are put off.
CREATE OR REPLACE FUNCTION job_run_out(p_most integer) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now bigint := now_ms();
BEGIN
    PERFORM job_honour_suspension();
    -- A clock that was set back leaves deadlines that are further away than they can be. Held against the clock as it is when the
    -- row is looked at: a renewal may have come since this began.
    UPDATE job_running r SET deadline_ms = now_ms() + r.ttl_ms, look_ms = now_ms() + r.ttl_ms
        WHERE r.id IN (SELECT o.id FROM job_running o WHERE o.deadline_ms > now_ms() + o.ttl_ms LIMIT p_most FOR UPDATE SKIP LOCKED);
    UPDATE job_running r SET look_ms = r.deadline_ms
        WHERE r.id IN (SELECT o.id FROM job_running o WHERE o.look_ms <= v_now AND o.deadline_ms > v_now
            ORDER BY o.look_ms LIMIT p_most FOR NO KEY UPDATE SKIP LOCKED);
    RETURN QUERY
    SELECT o.id FROM job_running o WHERE o.look_ms <= v_now AND o.deadline_ms <= v_now
        ORDER BY o.look_ms LIMIT p_most FOR UPDATE SKIP LOCKED;
END $$;

-- After `store advance`, and when another server has taken over, nothing from before speaks for a job any more.
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
            -- It was called off: the sweep says so, and has its effects undone. Under a token of its own, so that nobody who
            -- knows the old one speaks for it until then.
            UPDATE job_running SET token = nextval('job_token'), deadline_ms = 0, look_ms = 0 WHERE id = v_run.id;
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

-- The job of this namespace that is worked on under a token: another's jobs are nobody's business here.
DROP FUNCTION job_under(bigint);
CREATE FUNCTION job_under(p_namespace text, p_token bigint) RETURNS uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT r.id FROM job_running r JOIN job_lane l ON l.lane = r.lane
    JOIN job_queue q ON q.number = l.queue AND q.namespace = p_namespace
    WHERE r.token = p_token
$$;

-- Whether an effect is still as it was when a decision about it was made; no `was`: this decision has changed it before. `once`
-- records effects without waiting for a job's claim, so both take this lock, and whoever is second looks again.
CREATE FUNCTION job_effect_stands(p_arrival bigint, p_effect jsonb, p_was jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF p_was IS NULL THEN
        RETURN true;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended((SELECT b.id::text FROM job_body b WHERE b.arrival = p_arrival), 7463));
    IF coalesce((SELECT e.effect->'state' FROM job_effect e WHERE e.arrival = p_arrival AND e.name = p_effect->>'name'), 'null')
        <> p_was THEN
        RETURN false;
    END IF;
    -- The order of undoing goes by number: no two effects have the same.
    RETURN p_was <> 'null' OR NOT EXISTS (
        SELECT FROM job_effect e WHERE e.arrival = p_arrival AND e.effect->'nth' = p_effect->'nth');
END $$;

-- Keeps what was decided. False: a unique key has changed hands since it was looked at, or a user's transaction has recorded an effect,
-- and all must be decided again.
CREATE OR REPLACE FUNCTION job_keep(p_changes jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    c_new CONSTANT bigint := 4611686018427387904; -- from here on, places of jobs that are made here
    v_new      bigint[] := '{}';
    v_arrival  bigint;
    v_change   jsonb;
    v_ids      uuid[] := '{}';
    v_stirred  jsonb := '{}';
    v_space    record;
BEGIN
    FOR v_change IN SELECT value FROM jsonb_array_elements(p_changes) LOOP
        v_arrival := (v_change->>'arrival')::bigint;
        IF v_arrival >= c_new THEN
            v_arrival := CASE WHEN v_change->>'what' = 'body' THEN nextval('job_arrival') ELSE v_new[v_arrival - c_new + 1] END;
        END IF;
        CASE v_change->>'what'
        WHEN 'body' THEN
            v_new := v_new || v_arrival;
            INSERT INTO job_queue (namespace, name) VALUES (v_change->>'namespace', v_change->>'queue') ON CONFLICT DO NOTHING;
            INSERT INTO job_lane (queue, priority)
                SELECT q.number, (v_change->>'priority')::smallint FROM job_queue q
                WHERE q.namespace = v_change->>'namespace' AND q.name = v_change->>'queue'
                ON CONFLICT DO NOTHING;
            INSERT INTO job_body (arrival, id, lane, enqueued_ms, kind, payload, terms, extra)
                SELECT v_arrival, (v_change->>'id')::uuid, l.lane, (v_change->>'enqueued_ms')::bigint, v_change->>'kind',
                    v_change->>'payload', nullif(v_change->'terms', 'null'), nullif(v_change->'extra', 'null')
                FROM job_queue q JOIN job_lane l ON l.queue = q.number AND l.priority = (v_change->>'priority')::smallint
                WHERE q.namespace = v_change->>'namespace' AND q.name = v_change->>'queue';
        WHEN 'place' THEN
            PERFORM job_place(v_change, v_arrival);
            IF (v_change->>'state')::smallint IN (0, 1) THEN
                v_stirred := v_stirred || jsonb_build_object(v_arrival::text, 1);
            ELSIF (v_change->>'state')::smallint >= 3 THEN
                v_ids := v_ids || (v_change->>'id')::uuid;
            END IF;
        WHEN 'term' THEN
            UPDATE job_running r SET deadline_ms = (v_change->>'deadline_ms')::bigint, taken_up = true
                FROM job_body b WHERE b.arrival = v_arrival AND r.id = b.id AND r.token = (v_change->>'token')::bigint;
        WHEN 'drop' THEN
            v_ids := v_ids || array(SELECT b.id FROM job_body b WHERE b.arrival = v_arrival);
            PERFORM job_forget(array[v_arrival]);
        WHEN 'result' THEN
            UPDATE job_settled s SET result = v_change->>'text' WHERE s.arrival = v_arrival;
        WHEN 'note' THEN
            INSERT INTO job_note (arrival, what, bytes)
                VALUES (v_arrival, (v_change->>'note')::smallint, decode(v_change->>'hex', 'hex'))
                ON CONFLICT (arrival, what) DO UPDATE SET bytes = excluded.bytes;
        WHEN 'effect' THEN
            IF NOT job_effect_stands(v_arrival, v_change->'effect', v_change->'was') THEN
                RETURN false;
            END IF;
            INSERT INTO job_effect (arrival, name, effect)
                VALUES (v_arrival, v_change->'effect'->>'name', v_change->'effect')
                ON CONFLICT (arrival, name) DO UPDATE SET effect = excluded.effect;
        WHEN 'no_effect' THEN
            IF NOT job_effect_stands(v_arrival, v_change, v_change->'was') THEN
                RETURN false;
            END IF;
            DELETE FROM job_effect e WHERE e.arrival = v_arrival AND e.name = v_change->>'name';
        WHEN 'unique' THEN
            INSERT INTO job_unique (namespace, key, job, payload, until_ms)
                VALUES (v_change->>'namespace', (v_change->>'key')::uuid, (v_change->>'job')::uuid,
                    (v_change->>'payload')::uuid, (v_change->>'until_ms')::bigint)
                ON CONFLICT (namespace, key) DO UPDATE SET job = excluded.job, payload = excluded.payload,
                    until_ms = excluded.until_ms
                    WHERE job_unique.job = (v_change->>'was')::uuid;
            IF NOT found THEN
                RETURN false;
            END IF;
        WHEN 'no_unique' THEN
            DELETE FROM job_unique u WHERE u.namespace = v_change->>'namespace' AND u.key = (v_change->>'key')::uuid;
        WHEN 'queue' THEN
            INSERT INTO job_queue (namespace, name, MODE)
                VALUES (v_change->>'namespace', v_change->>'name', (v_change->>'mode')::smallint)
                ON CONFLICT (namespace, name) DO UPDATE SET MODE = excluded.mode;
            PERFORM job_stir(v_change->>'namespace', array[v_change->>'name']);
        WHEN 'schedule' THEN
            INSERT INTO job_schedule (namespace, name, spec, next_ms, last_ms)
                VALUES (v_change->>'namespace', v_change->'spec'->>'name', v_change->'spec',
                    (v_change->>'next_ms')::bigint, (v_change->>'last_ms')::bigint)
                ON CONFLICT (namespace, name) DO UPDATE SET spec = excluded.spec, next_ms = excluded.next_ms,
                    last_ms = excluded.last_ms;
        WHEN 'no_schedule' THEN
            DELETE FROM job_schedule s WHERE s.namespace = v_change->>'namespace' AND s.name = v_change->>'name';
        WHEN 'note_event' THEN
            PERFORM note(v_change->>'namespace', v_change->>'key', v_change->'fact', (v_change->>'at_ms')::bigint);
        END CASE;
    END LOOP;
    FOR v_space IN
        SELECT q.namespace, array_agg(DISTINCT q.name) AS names
        FROM jsonb_object_keys(v_stirred) AS k JOIN job_body b ON b.arrival = k::bigint
        JOIN job_lane l ON l.lane = b.lane JOIN job_queue q ON q.number = l.queue
        GROUP BY q.namespace
    LOOP
        PERFORM job_stir(v_space.namespace, v_space.names);
    END LOOP;
    IF cardinality(v_ids) > 0 THEN
        PERFORM job_tell_end(v_ids);
    END IF;
    RETURN true;
END $$;

DO $$
BEGIN
    CALL permit('fencehold_worker', 'execute on function job_unheard(uuid[], bigint[]), job_under(text, bigint)');
END $$;
