-- Jobs: renewing and completing in the usual case, one call for many. What these do not take, they leave as it is and say so: the caller
-- then decides it by the rules of the core, in a transaction of its own (`job_load`, `job_keep`).
--
-- Each claim is found by its id, in a subquery of its own (`LATERAL … OFFSET 0`), and never by its hash, which all that were claimed
-- together share (hence no `=`). Left to choose, the planner compares every claim with every one that is asked about, wherever it
-- believes a table to be empty, because it was so at the last ANALYZE: with a thousand of each, a hundred times slower.
--
-- A few completions are carried out one by one, each statement about one row: a plan for many costs several times as much to begin.

-- Renews claims that are live and have no request to end; returns the numbers (from 1) of those, and what remains; and under the number 0
-- the moment, in place of what remains.
CREATE OR REPLACE FUNCTION job_renew(p_namespace text, p_ids uuid[], p_hashes uuid[], p_tokens bigint[])
RETURNS TABLE (nth bigint, remaining_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now bigint;
BEGIN
    PERFORM notice_server();
    PERFORM job_honour_suspension();
    PERFORM FROM (SELECT DISTINCT n.id FROM unnest(p_ids) AS n(id) ORDER BY n.id OFFSET 0) s
        CROSS JOIN LATERAL (SELECT FROM job_running r WHERE r.id = s.id FOR NO KEY UPDATE) l;
    v_now := now_ms();
    RETURN QUERY
    -- Named twice in one call, an attempt is renewed for one of its names here, and for the others by the rules.
    WITH found AS MATERIALIZED (
        SELECT s.nth, o.tid, o.lane FROM unnest(p_ids, p_hashes, p_tokens) WITH ORDINALITY AS s(id, hash, token, nth)
        CROSS JOIN LATERAL (
            SELECT r.ctid AS tid, r.lane FROM job_running r
            WHERE r.id = s.id AND r.hash IS NOT DISTINCT FROM s.hash AND r.token = s.token AND r.deadline_ms > v_now AND r.asked IS NULL
            OFFSET 0) o
    ), kept AS (
        UPDATE job_running r
            SET deadline_ms = CASE WHEN r.deadline_ms > v_now + r.ttl_ms THEN v_now + r.ttl_ms
                ELSE greatest(r.deadline_ms, v_now + least(r.ttl_ms, coalesce(r.limit_ms - v_now, r.ttl_ms))) END,
                taken_up = true
            FROM found f
            WHERE r.ctid = f.tid AND f.lane = ANY(array(
                SELECT l.lane FROM (SELECT DISTINCT o.lane FROM found o OFFSET 0) d
                JOIN job_lane l ON l.lane = d.lane JOIN job_queue q ON q.number = l.queue WHERE q.namespace = p_namespace))
            RETURNING f.nth, r.deadline_ms - v_now AS remaining_ms
    )
    SELECT k.nth, k.remaining_ms FROM kept k UNION ALL SELECT 0, v_now;
END $$;

-- Completes jobs whose end concerns no other job, under claims that are live, or have expired without the sweep noting it; returns the ids
-- of those, and whether it was late; or, where all were completed in time, as they mostly are, a row without an id. p_drops: jobs of which
-- nothing more needs to be kept are deleted at once.
CREATE OR REPLACE FUNCTION job_complete_batch(
    p_namespace text, p_ids uuid[], p_hashes uuid[], p_tokens bigint[], p_results text[], p_drops boolean DEFAULT false
) RETURNS TABLE (id uuid, late boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_now     bigint;
    v_id      uuid[];
    v_arrival bigint[];
    v_lane    integer[];
    v_token   bigint[];
    v_hash    uuid[];
    v_owner   text[];
    v_since   bigint[];
    v_until   bigint[];
    v_first   bigint; -- when the first of them runs out
    v_light   boolean[];
    v_result  text[];
    v_late    boolean[];
    v_drop    boolean[];
    v_bare    boolean;
    c_few     CONSTANT boolean := cardinality(p_ids) <= 8;
    v_gone    record;
    v_seqs    bigint[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' OR (SELECT timeline FROM store_state) IS DISTINCT FROM serving_timeline() THEN
        PERFORM notice_server();
    END IF;
    -- Taken in the order of the ids, as they are asked for.
    IF cardinality(p_ids) = 1 THEN
        DELETE FROM job_running r WHERE r.id = p_ids[1] AND r.hash IS NOT DISTINCT FROM p_hashes[1] AND r.token = p_tokens[1] AND r.plain
            AND EXISTS (SELECT FROM job_lane l JOIN job_queue q ON q.number = l.queue WHERE l.lane = r.lane AND q.namespace = p_namespace)
            RETURNING r.id, r.arrival, r.lane, r.token, r.hash, r.owner, r.since_ms, r.deadline_ms, r.light, now_ms() AS now INTO v_gone;
        IF found THEN
            IF p_drops AND v_gone.light AND v_gone.deadline_ms > v_gone.now
                AND NOT EXISTS (SELECT FROM job_past p WHERE p.arrival = v_gone.arrival)
                AND NOT EXISTS (SELECT FROM job_note n WHERE n.arrival = v_gone.arrival)
                AND NOT EXISTS (SELECT FROM job_effect e WHERE e.arrival = v_gone.arrival)
                AND NOT EXISTS (SELECT FROM job_awaited a WHERE a.id = v_gone.id) THEN
                -- As most are: nothing of it is kept, and no caller waits for its end.
                DELETE FROM job_body b WHERE b.arrival = v_gone.arrival;
                INSERT INTO job_dropped (at_ms, hash, tokens) VALUES (v_gone.now, v_gone.hash, array[v_gone.token]);
                INSERT INTO job_change (lane, was, becomes, count) VALUES (v_gone.lane, 2, NULL, 1);
                v_first := nextval('event_seq');
                INSERT INTO job_event (last_seq, at_ms, namespace, what, seqs, ids, names, tokens)
                    VALUES (v_first, v_gone.now, p_namespace, 3, array[v_first], array[v_gone.id], array[v_gone.owner], array[v_gone.token]);
                late := false;
                RETURN NEXT;
                RETURN;
            END IF;
            v_id := array[v_gone.id];
            v_arrival := array[v_gone.arrival];
            v_lane := array[v_gone.lane];
            v_token := array[v_gone.token];
            v_hash := array[v_gone.hash];
            v_owner := array[v_gone.owner];
            v_since := array[v_gone.since_ms];
            v_until := array[v_gone.deadline_ms];
            v_first := v_gone.deadline_ms;
            v_light := array[v_gone.light];
            v_result := array[p_results[1]];
        END IF;
    ELSIF c_few THEN
        FOR i IN 1 .. cardinality(p_ids) LOOP
            DELETE FROM job_running r WHERE r.id = p_ids[i] AND r.hash IS NOT DISTINCT FROM p_hashes[i] AND r.token = p_tokens[i] AND r.plain
                AND EXISTS (SELECT FROM job_lane l JOIN job_queue q ON q.number = l.queue WHERE l.lane = r.lane AND q.namespace = p_namespace)
                RETURNING r.id, r.arrival, r.lane, r.token, r.hash, r.owner, r.since_ms, r.deadline_ms, r.light INTO v_gone;
            CONTINUE WHEN NOT found;
            v_id := v_id || v_gone.id;
            v_arrival := v_arrival || v_gone.arrival;
            v_lane := v_lane || v_gone.lane;
            v_token := v_token || v_gone.token;
            v_hash := v_hash || v_gone.hash;
            v_owner := v_owner || v_gone.owner;
            v_since := v_since || v_gone.since_ms;
            v_until := v_until || v_gone.deadline_ms;
            v_first := least(v_first, v_gone.deadline_ms);
            v_light := v_light || v_gone.light;
            v_result := v_result || p_results[i];
        END LOOP;
    ELSE
        -- One that is renewed at this very moment is left to the rules.
        WITH found AS MATERIALIZED (
            SELECT s.result, o.tid, o.lane FROM unnest(p_ids, p_hashes, p_tokens, p_results) AS s(id, hash, token, result)
            CROSS JOIN LATERAL (
                SELECT r.ctid AS tid, r.lane FROM job_running r
                WHERE r.id = s.id AND r.hash IS NOT DISTINCT FROM s.hash AND r.token = s.token AND r.plain
                OFFSET 0) o
        ), gone AS (
            DELETE FROM job_running r USING found f
                WHERE r.ctid = f.tid AND f.lane = ANY(array(
                    SELECT l.lane FROM (SELECT DISTINCT o.lane FROM found o OFFSET 0) d
                    JOIN job_lane l ON l.lane = d.lane JOIN job_queue q ON q.number = l.queue WHERE q.namespace = p_namespace))
                RETURNING r.id, r.arrival, r.lane, r.token, r.hash, r.owner, r.since_ms, r.deadline_ms, r.light, f.result
        )
        SELECT array_agg(g.id), array_agg(g.arrival), array_agg(g.lane), array_agg(g.token), array_agg(g.hash), array_agg(g.owner),
            array_agg(g.since_ms), array_agg(g.deadline_ms), min(g.deadline_ms), array_agg(g.light), array_agg(g.result)
            INTO v_id, v_arrival, v_lane, v_token, v_hash, v_owner, v_since, v_until, v_first, v_light, v_result
            FROM gone g;
    END IF;
    IF v_id IS NOT NULL THEN
        -- They are ours: now the moment counts.
        v_now := now_ms();
        IF v_first > v_now THEN
            v_late := array_fill(false, array[cardinality(v_id)]);
        ELSE
            SELECT array_agg(u <= v_now) INTO v_late FROM unnest(v_until) AS u;
        END IF;
        -- What was begun with the policy to ask a person is known to be done. Operations are never light.
        IF false = ANY(v_light) THEN
            DELETE FROM job_effect e USING unnest(v_arrival, v_lane, v_light) AS g(arrival, lane, light)
                WHERE NOT g.light AND e.arrival = g.arrival AND e.name = 'operation' AND jsonb_typeof(e.effect->'state') = 'object'
                AND EXISTS (SELECT FROM job_lane l JOIN job_queue q ON q.number = l.queue
                    WHERE l.lane = g.lane AND q.name = 'fencehold/operations');
        END IF;
        IF p_drops THEN
            -- Checkpoint and progress stay for people to see. Hardly any job has them.
            v_bare := NOT EXISTS (SELECT FROM job_past) AND NOT EXISTS (SELECT FROM job_note) AND NOT EXISTS (SELECT FROM job_effect)
                AND NOT EXISTS (SELECT FROM job_awaited);
            IF v_bare AND v_first > v_now AND NOT false = ANY(v_light) THEN
                v_drop := array_fill(true, array[cardinality(v_id)]);
                IF c_few THEN
                    FOR i IN 1 .. cardinality(v_id) LOOP
                        DELETE FROM job_body b WHERE b.arrival = v_arrival[i];
                    END LOOP;
                ELSE
                    DELETE FROM job_body b WHERE b.arrival = ANY(v_arrival);
                END IF;
            ELSE
                SELECT array_agg(g.light AND NOT g.late
                    AND (v_bare OR NOT EXISTS (SELECT FROM job_awaited a WHERE a.id = g.id)
                        AND NOT EXISTS (SELECT FROM job_past p WHERE p.arrival = g.arrival)
                        AND NOT EXISTS (SELECT FROM job_note n WHERE n.arrival = g.arrival)
                        AND NOT EXISTS (SELECT FROM job_effect e WHERE e.arrival = g.arrival)))
                    INTO v_drop
                    FROM unnest(v_id, v_arrival, v_light, v_late) AS g(id, arrival, light, late);
                DELETE FROM job_body b WHERE b.arrival = ANY(array(
                    SELECT g.arrival FROM unnest(v_arrival, v_drop) AS g(arrival, dropped) WHERE g.dropped));
            END IF;
            IF true = ALL(v_drop) AND v_hash[1] = ALL(v_hash) THEN
                INSERT INTO job_dropped (at_ms, hash, tokens) VALUES (v_now, v_hash[1], v_token);
            ELSE
                INSERT INTO job_dropped (at_ms, hash, tokens)
                    SELECT v_now, g.hash, array_agg(g.token) FROM unnest(v_hash, v_token, v_drop) AS g(hash, token, dropped)
                    WHERE g.dropped GROUP BY g.hash;
            END IF;
        END IF;
        IF v_drop IS NULL OR false = ANY(v_drop) THEN
            INSERT INTO job_settled (arrival, lane, state, since_ms, keeps, token, hash, owner, began_ms, late, result)
                SELECT g.arrival, g.lane, 3, v_now, false, g.token, g.hash, g.owner, g.since_ms, g.late, g.result
                FROM unnest(v_arrival, v_lane, v_token, v_hash, v_owner, v_since, v_late, v_result, v_drop)
                    AS g(arrival, lane, token, hash, owner, since_ms, late, result, dropped)
                WHERE g.dropped IS NOT TRUE
                ORDER BY g.arrival;
        END IF;
        IF v_lane[1] = ALL(v_lane) AND (v_drop IS NULL OR v_drop[1] = ALL(v_drop)) THEN
            INSERT INTO job_change (lane, was, becomes, count)
                VALUES (v_lane[1], 2, CASE WHEN v_drop[1] THEN NULL ELSE 3 END, cardinality(v_id));
        ELSE
            INSERT INTO job_change (lane, was, becomes, count)
                SELECT g.lane, 2, CASE WHEN g.dropped THEN NULL ELSE 3 END, count(*) FROM unnest(v_lane, v_drop) AS g(lane, dropped)
                GROUP BY g.lane, g.dropped;
        END IF;
        -- As `next_event` has it: first the number of the transaction, then those of its events.
        PERFORM pg_current_xact_id();
        IF c_few THEN
            FOR i IN 1 .. cardinality(v_id) LOOP
                v_seqs := v_seqs || nextval('event_seq');
            END LOOP;
        ELSE
            SELECT array_agg(e) INTO v_seqs FROM (SELECT nextval('event_seq') AS e FROM generate_series(1, cardinality(v_id)) OFFSET 0) s;
        END IF;
        INSERT INTO job_event (last_seq, at_ms, namespace, what, seqs, ids, names, tokens, flags)
            VALUES (v_seqs[cardinality(v_seqs)], v_now, p_namespace, 3, v_seqs, v_id, job_same(v_owner), v_token,
                CASE WHEN v_first <= v_now THEN v_late END);
        IF EXISTS (SELECT FROM job_awaited) THEN
            PERFORM job_tell_end(v_id);
        END IF;
        IF cardinality(v_id) = cardinality(p_ids) AND v_first > v_now THEN
            late := false;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    IF p_drops AND coalesce(cardinality(v_id), 0) < cardinality(p_ids) THEN
        -- The same report again.
        RETURN QUERY SELECT s.id, false FROM unnest(p_ids, p_hashes, p_tokens) AS s(id, hash, token)
            LEFT JOIN unnest(v_id) AS g(id) ON g.id = s.id
            WHERE g.id IS NULL AND EXISTS (
                SELECT FROM job_dropped d WHERE d.hash = s.hash AND s.token = ANY(d.tokens));
    END IF;
    RETURN QUERY SELECT d.id, d.late FROM unnest(v_id, v_late) AS d(id, late);
END $$;
