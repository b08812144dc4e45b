-- Jobs: reading many of them.

-- The places of jobs of these lanes from p_from on, in order, of so many at most: of those in these states, or where p_kind is given, of those of
-- this kind. Each lane and state is a range of an index. Of many lanes only those are read whose first jobs are among the first of all. Rows are compared,
-- and sorted, by all columns of the index as it has them (`job_body_kind` says why): else the planner may choose the index of arrivals, and read all jobs.
CREATE OR REPLACE FUNCTION job_places(p_lanes integer[], p_states smallint[], p_kind text, p_from bigint, p_most integer) RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    c_back  CONSTANT smallint := 8; -- in place of a state
    c_kind  CONSTANT smallint := 9;
    v_now   CONSTANT bigint := now_ms();
    v_low   CONSTANT bigint := job_due_low(v_now);
    v_due   CONSTANT boolean := 0 = ANY(p_states); -- delayed jobs that are due are queued
    v_later CONSTANT boolean := 1 = ANY(p_states);
BEGIN
    RETURN array(
        WITH lanes AS MATERIALIZED (
            SELECT n.lane, coalesce(h.head, 0) AS head, coalesce(h.back_low, 0) AS back_low FROM unnest(p_lanes) AS n(lane)
            LEFT JOIN LATERAL (SELECT o.head, o.back_low FROM job_head o WHERE v_due AND o.lane = n.lane OFFSET 0) h ON true
        ), firsts AS (
            SELECT l.lane, 0::smallint AS state, f.arrival, 0::bigint AS up_to FROM lanes l CROSS JOIN LATERAL (
                SELECT r.arrival FROM job_ready r WHERE v_due AND r.lane = l.lane AND r.arrival >= greatest(p_from, l.head + 1)
                ORDER BY r.arrival LIMIT 1) f
            UNION ALL
            SELECT l.lane, c_back, f.arrival, l.head FROM lanes l CROSS JOIN LATERAL (
                SELECT r.arrival FROM job_ready r WHERE v_due AND l.head > 0 AND r.back AND r.lane = l.lane
                    AND r.arrival >= greatest(p_from, l.back_low + 1) AND r.arrival <= l.head
                ORDER BY r.arrival LIMIT 1) f
            UNION ALL
            SELECT l.lane, 1, f.arrival, 0 FROM lanes l CROSS JOIN LATERAL (
                SELECT s.arrival FROM job_scheduled s WHERE v_later AND (s.lane, s.arrival + 0) >= (l.lane, p_from) AND s.lane <= l.lane
                    AND (v_due OR s.due_ms > v_now)
                ORDER BY s.lane, s.arrival + 0 LIMIT 1) f
            UNION ALL
            SELECT l.lane, n.state, f.arrival, 0 FROM lanes l CROSS JOIN unnest(p_states) AS n(state) CROSS JOIN LATERAL (
                SELECT s.arrival FROM job_settled s WHERE n.state > 2 AND (s.lane, s.state, s.arrival + 0) >= (l.lane, n.state, p_from)
                    AND (s.lane, s.state) <= (l.lane, n.state)
                ORDER BY s.lane, s.state, s.arrival + 0 LIMIT 1) f
            UNION ALL
            SELECT l.lane, c_kind, f.arrival, 0 FROM lanes l CROSS JOIN LATERAL (
                SELECT b.arrival FROM job_body b WHERE p_kind IS NOT NULL
                    AND (b.lane, b.kind COLLATE "C", b.arrival + 0) >= (l.lane, p_kind, p_from) AND (b.lane, b.kind COLLATE "C") <= (l.lane, p_kind)
                ORDER BY b.lane, b.kind COLLATE "C", b.arrival + 0 LIMIT 1) f
        )
        SELECT n.arrival FROM (
            SELECT e.arrival FROM (SELECT * FROM firsts f ORDER BY f.arrival LIMIT p_most) f CROSS JOIN LATERAL (
                (SELECT r.arrival FROM job_ready r WHERE f.state = 0 AND r.lane = f.lane AND r.arrival >= f.arrival
                    ORDER BY r.arrival LIMIT p_most)
                UNION ALL
                (SELECT r.arrival FROM job_ready r WHERE f.state = c_back AND r.back AND r.lane = f.lane AND r.arrival >= f.arrival
                    AND r.arrival <= f.up_to ORDER BY r.arrival LIMIT p_most)
                UNION ALL
                (SELECT s.arrival FROM job_scheduled s WHERE f.state = 1 AND (s.lane, s.arrival + 0) >= (f.lane, f.arrival) AND s.lane <= f.lane
                    AND (v_due OR s.due_ms > v_now) ORDER BY s.lane, s.arrival + 0 LIMIT p_most)
                UNION ALL
                (SELECT s.arrival FROM job_settled s WHERE f.state BETWEEN 3 AND 7
                    AND (s.lane, s.state, s.arrival + 0) >= (f.lane, f.state, f.arrival) AND (s.lane, s.state) <= (f.lane, f.state)
                    ORDER BY s.lane, s.state, s.arrival + 0 LIMIT p_most)
                UNION ALL
                (SELECT b.arrival FROM job_body b WHERE f.state = c_kind
                    AND (b.lane, b.kind COLLATE "C", b.arrival + 0) >= (f.lane, p_kind, f.arrival) AND (b.lane, b.kind COLLATE "C") <= (f.lane, p_kind)
                    ORDER BY b.lane, b.kind COLLATE "C", b.arrival + 0 LIMIT p_most)) e
            UNION ALL
            SELECT s.arrival FROM (
                SELECT o.arrival, o.lane FROM job_scheduled o WHERE v_due AND NOT v_later AND o.due_ms > v_low AND o.due_ms <= v_now
                ORDER BY o.due_ms OFFSET 0) s
            WHERE s.arrival >= p_from AND s.lane IN (SELECT l.lane FROM lanes l)
            UNION ALL
            -- There are as many as are worked on.
            SELECT r.arrival FROM job_running r WHERE 2 = ANY(p_states) AND r.arrival >= p_from AND r.lane IN (SELECT l.lane FROM lanes l)) n
        ORDER BY n.arrival LIMIT p_most);
END $$;

-- The jobs that match, in the order of their arrival, of the next p_look ones; then a row without an id that tells where the search ended,
-- and null where there is nothing beyond. All of it in one snapshot: a job that goes meanwhile pushes no other off its page.
--
-- What is looked at is what the most selective condition leaves, as a range of an index: the claims of an owner, the jobs with a label, those
-- of a kind, those in a state. So the first page of a list by one condition, in a queue or a namespace, costs no more than the page. Of several conditions
-- the others are checked job by job; and a search in payloads reads two megabytes of them at most.
CREATE OR REPLACE FUNCTION job_list(
    p_namespace text, p_from bigint, p_queue text, p_kind text, p_states smallint[], p_labels jsonb, p_owner text,
    p_contains text, p_limit integer, p_look integer
) RETURNS TABLE (arrival bigint, id uuid)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    c_all    CONSTANT smallint[] := '{0,1,2,3,4,5,6,7}';
    c_lanes  CONSTANT integer := 1000; -- of more, all jobs are looked through where only the namespace is given
    c_few    CONSTANT integer := 10000;
    c_step   CONSTANT integer := 2500;
    v_label  CONSTANT jsonb := p_labels->0;
    v_lanes  CONSTANT integer[] := array(SELECT l.lane FROM job_queue q JOIN job_lane l ON l.queue = q.number
        WHERE q.namespace = p_namespace AND (p_queue IS NULL OR q.name = p_queue));
    v_by     text; -- what is read in order
    v_kind   text; -- where it is by this
    v_from   bigint := p_from;
    v_left   integer := p_limit;
    v_look   integer; -- how many are looked at yet: as many as take some twenty milliseconds
    v_bytes  bigint := 2097152;
    v_step   integer;
    v_places bigint[];
    v_job    record;
    v_seen   integer; -- of these places
    v_last   bigint;
BEGIN
    IF p_owner IS NOT NULL THEN
        v_by := 'owner';
    ELSIF v_label IS NOT NULL THEN
        v_by := 'label';
    ELSIF p_kind IS NOT NULL AND (p_states IS NULL OR c_few < (SELECT sum(t.count) FROM job_count t WHERE t.state = ANY(p_states)
            AND t.queue IN (SELECT l.queue FROM unnest(v_lanes) AS n(lane) JOIN job_lane l ON l.lane = n.lane))) THEN
        v_by := 'lanes';
        v_kind := p_kind;
    ELSIF p_queue IS NOT NULL OR p_states IS NOT NULL OR p_contains IS NULL AND cardinality(v_lanes) <= c_lanes THEN
        v_by := 'lanes';
    ELSE
        v_by := 'all';
    END IF;
    -- A page, and more at a time where other conditions are left.
    v_look := least(p_look, CASE v_by WHEN 'all' THEN 2 * c_step ELSE c_step END);
    v_step := least(greatest(p_limit, CASE WHEN p_contains IS NULL THEN 0 ELSE c_step END), v_look);
    LOOP
        v_places := CASE v_by
            WHEN 'owner' THEN array(SELECT r.arrival FROM job_running r WHERE r.owner = p_owner AND r.arrival >= v_from
                AND r.lane IN (SELECT unnest(v_lanes)) AND (p_states IS NULL OR 2 = ANY(p_states)) ORDER BY r.arrival LIMIT v_step)
            WHEN 'label' THEN array(SELECT l.arrival FROM job_label l WHERE l.namespace = p_namespace AND l.name = v_label->>0
                AND l.value = v_label->>1 AND l.arrival >= v_from ORDER BY l.arrival LIMIT v_step)
            WHEN 'lanes' THEN job_places(v_lanes, CASE WHEN v_kind IS NULL THEN coalesce(p_states, c_all) ELSE '{}' END, v_kind, v_from, v_step)
            END;
        v_last := NULL;
        v_seen := 0;
        FOR v_job IN
            SELECT b.arrival, b.id, CASE WHEN p_contains IS NULL THEN 0 ELSE octet_length(b.payload) END AS bytes,
                (v_by IN ('owner', 'lanes') OR b.lane IN (SELECT unnest(v_lanes)))
                AND (p_kind IS NULL OR b.kind = p_kind)
                AND (p_states IS NULL OR v_by = 'owner' OR v_by = 'lanes' AND v_kind IS NULL
                    OR job_state(b.id, b.lane, b.arrival) = ANY(p_states))
                AND (v_label IS NULL OR NOT EXISTS (
                    SELECT FROM jsonb_array_elements(p_labels) AS want
                    WHERE NOT EXISTS (SELECT FROM jsonb_array_elements(b.extra->'labels') AS has WHERE has = want)))
                AND (p_contains IS NULL OR position(p_contains IN b.payload) > 0) AS matches
            FROM (
                (SELECT o.* FROM job_body o WHERE v_by = 'all' AND o.arrival >= v_from ORDER BY o.arrival LIMIT v_step)
                UNION ALL
                (SELECT o.* FROM unnest(v_places) WITH ORDINALITY AS p(arrival, nth)
                    CROSS JOIN LATERAL (SELECT o.* FROM job_body o WHERE o.arrival = p.arrival OFFSET 0) o ORDER BY p.nth)) b
        LOOP
            v_last := v_job.arrival;
            v_seen := v_seen + 1;
            v_bytes := v_bytes - v_job.bytes;
            IF v_job.matches THEN
                arrival := v_job.arrival;
                id := v_job.id;
                RETURN NEXT;
                v_left := v_left - 1;
            END IF;
            EXIT WHEN v_left <= 0 OR v_bytes <= 0;
        END LOOP;
        v_look := v_look - v_seen;
        v_from := v_last + 1;
        -- Fewer than asked for, and all of them were looked at: there is nothing beyond.
        EXIT WHEN v_seen < v_step AND v_seen = coalesce(cardinality(v_places), v_seen) AND v_left > 0 AND v_bytes > 0;
        IF v_left <= 0 OR v_look <= 0 OR v_bytes <= 0 THEN
            arrival := v_last;
            id := NULL;
            RETURN NEXT;
            RETURN;
        END IF;
        v_step := least(c_step, v_look);
    END LOOP;
    arrival := NULL;
    id := NULL;
    RETURN NEXT;
END $$;

-- The state of a job by its place. One that is due is queued.
CREATE OR REPLACE FUNCTION job_state(p_id uuid, p_lane integer, p_arrival bigint) RETURNS smallint
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce(
        (SELECT 2 FROM job_running r WHERE r.id = p_id),
        (SELECT 0 FROM job_ready r WHERE r.lane = p_lane AND r.arrival = p_arrival),
        (SELECT CASE WHEN s.due_ms <= now_ms() THEN 0 ELSE 1 END FROM job_scheduled s WHERE s.arrival = p_arrival),
        (SELECT s.state FROM job_settled s WHERE s.arrival = p_arrival));
END $$;

-- How many jobs have not ended.
CREATE OR REPLACE FUNCTION job_live() RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT coalesce(sum(c.count), 0)::bigint FROM job_counts_now(NULL) AS c WHERE c.state NOT IN (3, 4, 5)
$$;

-- Jobs that have effects, in the order of their arrival.
CREATE OR REPLACE FUNCTION job_with_effects(p_namespace text, p_from bigint, p_limit bigint) RETURNS TABLE (arrival bigint, id uuid)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT b.arrival, b.id FROM job_body b
    JOIN job_lane l ON l.lane = b.lane
    JOIN job_queue q ON q.number = l.queue AND q.namespace = p_namespace
    WHERE b.arrival >= p_from AND EXISTS (SELECT FROM job_effect e WHERE e.arrival = b.arrival)
    ORDER BY b.arrival LIMIT p_limit
$$;
