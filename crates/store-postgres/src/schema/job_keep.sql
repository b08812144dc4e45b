-- Jobs for the rules of the core: writing what was decided, in the transaction that locked what it was decided upon.

-- Deletes all of these jobs.
CREATE OR REPLACE FUNCTION job_forget(p_arrivals bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_ids   uuid[];
    v_keyed uuid[];
    v_lanes integer[];
    v_found bigint[];
    v_place record;
    v_ready integer[] := '{}';
BEGIN
    SELECT array_agg(b.id), array_agg(b.id) FILTER (WHERE b.extra ? 'unique'), array_agg(b.lane), array_agg(b.arrival)
        INTO v_ids, v_keyed, v_lanes, v_found FROM job_body b WHERE b.arrival = ANY(p_arrivals);
    -- One by one: by several at once, all of a lane may be read.
    FOR v_place IN SELECT p.lane, p.arrival FROM unnest(v_lanes, v_found) AS p (lane, arrival) LOOP
        DELETE FROM job_ready r WHERE r.lane = v_place.lane AND r.arrival = v_place.arrival;
        IF found THEN
            v_ready := v_ready || v_place.lane;
        END IF;
    END LOOP;
    WITH running AS (
        DELETE FROM job_running WHERE id = ANY(v_ids) RETURNING lane
    ), later AS (
        DELETE FROM job_scheduled WHERE arrival = ANY(p_arrivals) RETURNING lane
    ), settled AS (
        DELETE FROM job_settled WHERE arrival = ANY(p_arrivals) RETURNING lane, state
    )
    INSERT INTO job_change (lane, was, count) SELECT g.lane, g.state, count(*) FROM (
        SELECT lane, 0 AS state FROM unnest(v_ready) AS lane
        UNION ALL
        SELECT lane, 1 FROM later
        UNION ALL
        SELECT lane, 2 FROM running
        UNION ALL
        SELECT lane, state FROM settled) AS g
    GROUP BY 1, 2;
    DELETE FROM job_past WHERE arrival = ANY(p_arrivals);
    DELETE FROM job_note WHERE arrival = ANY(p_arrivals);
    DELETE FROM job_effect WHERE arrival = ANY(p_arrivals);
    DELETE FROM job_unique WHERE job = ANY(v_keyed);
    DELETE FROM job_body WHERE arrival = ANY(p_arrivals);
END $$;

-- The lane of this priority in a queue. Both are made if they are not there.
CREATE OR REPLACE FUNCTION job_make_lane(p_namespace text, p_queue text, p_priority smallint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO job_queue (namespace, name) VALUES (p_namespace, p_queue) ON CONFLICT DO NOTHING;
    INSERT INTO job_lane (queue, priority)
        SELECT q.number, p_priority FROM job_queue q WHERE q.namespace = p_namespace AND q.name = p_queue ON CONFLICT DO NOTHING;
    RETURN (SELECT l.lane FROM job_queue q JOIN job_lane l ON l.queue = q.number AND l.priority = p_priority
        WHERE q.namespace = p_namespace AND q.name = p_queue);
END $$;

-- Puts a job into the table that its new record says.
CREATE OR REPLACE FUNCTION job_place(p_job jsonb, p_arrival bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_state smallint := (p_job->>'state')::smallint;
    v_body  record;
    v_claim jsonb := p_job->'claim';
    v_was   smallint;
BEGIN
    SELECT b.id, b.lane, octet_length(b.payload) AS bytes, b.extra, b.terms INTO STRICT v_body
        FROM job_body b WHERE b.arrival = p_arrival;
    IF v_state = 2 THEN
        UPDATE job_running r SET asked = nullif(v_claim->'asked', 'null'), deadline_ms = (p_job->>'deadline_ms')::bigint
            WHERE r.id = v_body.id AND r.token = (p_job->>'token')::bigint;
        IF found THEN
            RETURN;
        END IF;
    END IF;
    SELECT s.state INTO v_was FROM job_settled s WHERE s.arrival = p_arrival;
    DELETE FROM job_running r WHERE r.id = v_body.id;
    v_was := CASE WHEN found THEN 2 ELSE v_was END;
    DELETE FROM job_ready r WHERE r.lane = v_body.lane AND r.arrival = p_arrival;
    v_was := CASE WHEN found THEN 0 ELSE v_was END;
    DELETE FROM job_scheduled c WHERE c.arrival = p_arrival;
    v_was := CASE WHEN found THEN 1 ELSE v_was END;
    IF v_was IS DISTINCT FROM v_state THEN
        INSERT INTO job_change (lane, was, becomes, count) VALUES (v_body.lane, v_was, v_state, 1);
    END IF;
    IF p_job->'past' <> 'null' THEN
        INSERT INTO job_past (arrival, token, failures, crashes, attempts, undo, since_ms, trail)
            SELECT p_arrival, p.token, p.failures, p.crashes, p.attempts, p.undo, p.since_ms, p.trail
            FROM jsonb_to_record(p_job->'past') AS p(token bigint, failures integer, crashes integer, attempts bigint,
                undo smallint, since_ms bigint, trail jsonb)
            ON CONFLICT (arrival) DO UPDATE SET token = excluded.token, failures = excluded.failures,
                crashes = excluded.crashes, attempts = excluded.attempts, undo = excluded.undo,
                since_ms = excluded.since_ms, trail = excluded.trail;
    END IF;
    IF v_state >= 3 THEN
        INSERT INTO job_settled (arrival, lane, state, since_ms, keeps)
            VALUES (p_arrival, v_body.lane, v_state, (p_job->>'since_ms')::bigint, (p_job->>'keeps')::boolean)
            ON CONFLICT (arrival) DO UPDATE SET state = excluded.state, since_ms = excluded.since_ms, keeps = excluded.keeps,
                put_off_ms = NULL, token = NULL, hash = NULL, owner = NULL, began_ms = NULL;
        RETURN;
    END IF;
    DELETE FROM job_settled s WHERE s.arrival = p_arrival;
    IF v_state = 0 THEN
        INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
            VALUES (v_body.lane, p_arrival, v_body.bytes, true, p_job->'past' <> 'null', coalesce(v_body.extra ? 'yield_within_ms', false));
    ELSIF v_state = 1 THEN
        INSERT INTO job_scheduled (arrival, lane, due_ms, bytes, past, urgent)
            VALUES (p_arrival, v_body.lane, (p_job->>'due_ms')::bigint, v_body.bytes, p_job->'past' <> 'null',
                coalesce(v_body.extra ? 'yield_within_ms', false));
    ELSE
        PERFORM namespace_note_ttl(q.namespace, (v_claim->>'ttl_ms')::bigint)
            FROM job_lane l JOIN job_queue q ON q.number = l.queue WHERE l.lane = v_body.lane;
        INSERT INTO job_running
            (id, arrival, lane, token, hash, owner, ttl_ms, since_ms, deadline_ms, limit_ms, plain, asked)
            VALUES (v_body.id, p_arrival, v_body.lane, (p_job->>'token')::bigint, (v_claim->>'hash')::uuid, v_claim->>'owner',
                (v_claim->>'ttl_ms')::bigint, (v_claim->>'since_ms')::bigint, (p_job->>'deadline_ms')::bigint,
                (v_claim->>'since_ms')::bigint + (v_body.terms->>'attempt_ms')::bigint,
                v_body.extra->'undo_of' IS NULL, nullif(v_claim->'asked', 'null'));
    END IF;
END $$;

-- Whether an effect is still as it was when a decision about it was made; no `was`: this decision has changed it before. `record_effect`
-- records effects without waiting for a job's claim, so both take this lock, and the second one looks again.
CREATE OR REPLACE FUNCTION job_effect_stands(p_arrival bigint, p_effect jsonb, p_was jsonb) RETURNS boolean
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
    -- Compensation goes by number: no two effects have the same.
    RETURN p_was <> 'null' OR NOT EXISTS (
        SELECT FROM job_effect e WHERE e.arrival = p_arrival AND e.effect->'nth' = p_effect->'nth');
END $$;

-- Writes what was decided. False: a unique key has another job since it was read, or a user's transaction has recorded an effect, and all
-- must be decided again.
CREATE OR REPLACE FUNCTION job_keep(p_changes jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    c_new CONSTANT bigint := 4611686018427387904; -- from here on, places of jobs that are made here
    v_new      bigint[] := '{}';
    v_arrival  bigint;
    v_change   jsonb;
    v_ids      uuid[] := '{}';
    v_stirred  bigint[] := '{}';
BEGIN
    FOR v_change IN SELECT value FROM jsonb_array_elements(p_changes) LOOP
        v_arrival := (v_change->>'arrival')::bigint;
        IF v_arrival >= c_new THEN
            v_arrival := CASE WHEN v_change->>'what' = 'body' THEN nextval('job_arrival') ELSE v_new[v_arrival - c_new + 1] END;
        END IF;
        CASE v_change->>'what'
        WHEN 'body' THEN
            v_new := v_new || v_arrival;
            INSERT INTO job_body (arrival, id, lane, enqueued_ms, kind, payload, terms, extra)
                VALUES (v_arrival, (v_change->>'id')::uuid,
                    job_make_lane(v_change->>'namespace', v_change->>'queue', (v_change->>'priority')::smallint),
                    (v_change->>'enqueued_ms')::bigint, v_change->>'kind', v_change->>'payload',
                    nullif(v_change->'terms', 'null'), nullif(v_change->'extra', 'null'));
        WHEN 'place' THEN
            PERFORM job_place(v_change, v_arrival);
            IF (v_change->>'state')::smallint IN (0, 1) THEN
                v_stirred := v_stirred || v_arrival;
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
            INSERT INTO job_queue (namespace, name, mode)
                VALUES (v_change->>'namespace', v_change->>'name', (v_change->>'mode')::smallint)
                ON CONFLICT (namespace, name) DO UPDATE SET mode = excluded.mode;
            PERFORM job_stir(v_change->>'namespace', array[v_change->>'name']);
        WHEN 'schedule' THEN
            INSERT INTO job_schedule (namespace, name, spec, next_ms, last_ms)
                VALUES (v_change->>'namespace', v_change->'spec'->>'name', v_change->'spec',
                    (v_change->>'next_ms')::bigint, (v_change->>'last_ms')::bigint)
                ON CONFLICT (namespace, name) DO UPDATE SET spec = excluded.spec, next_ms = excluded.next_ms,
                    last_ms = excluded.last_ms, noted_ms = excluded.noted_ms;
        WHEN 'no_schedule' THEN
            DELETE FROM job_schedule s WHERE s.namespace = v_change->>'namespace' AND s.name = v_change->>'name';
        WHEN 'note_event' THEN
            PERFORM note(v_change->>'namespace', v_change->>'key', v_change->'fact', (v_change->>'at_ms')::bigint);
        END CASE;
    END LOOP;
    IF cardinality(v_stirred) > 0 THEN
        PERFORM job_stir_lanes(array(SELECT b.lane FROM job_body b WHERE b.arrival = ANY(v_stirred)));
    END IF;
    IF cardinality(v_ids) > 0 THEN
        PERFORM job_tell_end(v_ids);
    END IF;
    RETURN true;
END $$;
