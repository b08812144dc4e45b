-- Jobs: reading many of them.

-- The jobs that match, in the order of their arrival, of the next p_look ones; then a row without an id that tells where the search ended,
-- and null where there is nothing beyond. Where it ends is settled before anything is read: settled afterwards, it would be further on by
-- as many jobs as went meanwhile, and as many others would be on no page.
CREATE OR REPLACE FUNCTION job_list(
    p_namespace text, p_from bigint, p_queue text, p_kind text, p_states smallint[], p_labels jsonb, p_owner text,
    p_contains text, p_limit integer, p_look integer
) RETURNS TABLE (arrival bigint, id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_last bigint := (SELECT o.arrival FROM job_body o WHERE o.arrival >= p_from ORDER BY o.arrival OFFSET p_look - 1 LIMIT 1);
BEGIN
    RETURN QUERY
    SELECT b.arrival, b.id
    FROM job_body b
    CROSS JOIN LATERAL (SELECT o.queue FROM job_lane o WHERE o.lane = b.lane OFFSET 0) l
    CROSS JOIN LATERAL (SELECT o.namespace, o.name FROM job_queue o WHERE o.number = l.queue OFFSET 0) q
    LEFT JOIN LATERAL (SELECT o.id, o.owner FROM job_running o WHERE o.id = b.id OFFSET 0) r ON true
    LEFT JOIN LATERAL (SELECT o.arrival FROM job_ready o WHERE o.lane = b.lane AND o.arrival = b.arrival OFFSET 0) y ON true
    LEFT JOIN LATERAL (SELECT o.arrival, o.due_ms FROM job_scheduled o WHERE o.arrival = b.arrival OFFSET 0) c ON true
    LEFT JOIN LATERAL (SELECT o.state FROM job_settled o WHERE o.arrival = b.arrival OFFSET 0) s ON true
    WHERE b.arrival BETWEEN p_from AND coalesce(v_last, 9223372036854775807)
        AND q.namespace = p_namespace
        AND (p_queue IS NULL OR q.name = p_queue)
        AND (p_kind IS NULL OR b.kind = p_kind)
        AND (p_states IS NULL OR p_states @> array[CASE WHEN r.id IS NOT NULL THEN 2 WHEN y.arrival IS NOT NULL THEN 0
            WHEN c.due_ms <= now_ms() THEN 0 WHEN c.arrival IS NOT NULL THEN 1 ELSE s.state END::smallint])
        AND (p_owner IS NULL OR r.owner = p_owner)
        AND (p_contains IS NULL OR position(p_contains IN b.payload) > 0)
        AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(p_labels) AS want
            WHERE NOT EXISTS (SELECT FROM jsonb_array_elements(b.extra->'labels') AS has WHERE has = want))
    ORDER BY b.arrival
    LIMIT p_limit;
    RETURN QUERY SELECT v_last, NULL::uuid;
END $$;

-- How many jobs have not ended.
CREATE OR REPLACE FUNCTION job_live() RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT (SELECT count(*) FROM job_ready) + (SELECT count(*) FROM job_scheduled) + (SELECT count(*) FROM job_running)
        + (SELECT count(*) FROM job_settled WHERE state NOT IN (3, 4, 5))
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
