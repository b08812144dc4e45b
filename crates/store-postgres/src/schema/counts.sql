-- What is counted of events: how many of each kind there ever were, and how the leases of a namespace ended, by the minute.
--
-- Every event is counted once, and its writer does nothing for it. While it is in `event` or `job_event`, a caller that asks counts it there; the
-- statement that takes it out (`events_remove`) adds it to `event_total` and `lease_ended_count`. So no count is a row that all writers
-- wait for, and what was rolled back is never counted.

-- The bound of `fencehold_core::limits`: for so long, endings are counted by the minute.
CREATE OR REPLACE FUNCTION limit_stats_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 86400000 $$;

-- As what an event counts; none: it is not counted.
CREATE OR REPLACE FUNCTION event_kinds(p_fact jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_fact ? 'lease_acquired' THEN '{lease_acquired}'
        WHEN p_fact ? 'lease_ended' THEN ARRAY['lease_ended/' || (p_fact->'lease_ended'->>'how')]
        WHEN p_fact ? 'job_attempt_ended' THEN ARRAY['job_attempt_ended/' || (p_fact->'job_attempt_ended'->>'how')]
            || CASE WHEN p_fact->'job_attempt_ended'->>'state' = 'quarantined' THEN '{job_quarantined}'::text[] END
        -- Not a renewal that its holder's own release has overtaken (`is_renewal_after_release` in `fencehold-core`).
        WHEN p_fact ? 'stale_write_blocked' AND NOT p_fact->'stale_write_blocked' @> '{"attempted": "renew", "how": "released"}'
            THEN '{stale_write_blocked}'
        WHEN p_fact ? 'job_enqueued' THEN '{job_enqueued}'
        WHEN p_fact ? 'job_claimed' THEN '{job_claimed}'
        WHEN p_fact ? 'schedule_fired' THEN '{schedule_fired}'
        WHEN p_fact ? 'store_rewound' THEN '{store_rewound}'
    END
$$;

-- The same of the events of one row of `job_event`, with how many of them there are.
CREATE OR REPLACE FUNCTION job_event_kinds(e job_event) RETURNS TABLE (kind text, count bigint) LANGUAGE sql STABLE AS $$
    SELECT CASE e.what WHEN 1 THEN 'job_enqueued' WHEN 2 THEN 'job_claimed'
            ELSE 'job_attempt_ended/completed' || CASE WHEN f.late THEN '_late' ELSE '' END END,
        CASE WHEN f.late THEN f.late_count ELSE cardinality(e.seqs) - f.late_count END
    FROM (SELECT l.late, CASE WHEN e.what = 3 THEN coalesce(cardinality(array_positions(e.flags, true)), 0) ELSE 0 END::bigint AS late_count
        FROM unnest(ARRAY[false, true]) AS l(late)) AS f
$$;

-- The first number that `event` and `job_event` may still have.
CREATE OR REPLACE FUNCTION events_low() RETURNS bigint LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    -- What is late has a low number, and is not removed.
    RETURN (SELECT least(s.events_removed_to, (SELECT min(g.first_seq) - 1 FROM event_gap g)) FROM store_state s);
END $$;

-- How many events of each kind there ever were, in all namespaces.
CREATE OR REPLACE FUNCTION event_counts() RETURNS TABLE (kind text, count bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    -- One statement: an event that is being taken out is seen in one place.
    RETURN QUERY SELECT n.kind COLLATE "C", sum(n.count)::bigint FROM (
        SELECT t.kind, t.count FROM event_total t
        UNION ALL
        SELECT k.kind, 1 FROM event e CROSS JOIN LATERAL unnest(event_kinds(e.fact)) AS k(kind) WHERE e.seq > events_low()
        UNION ALL
        SELECT k.kind, k.count FROM job_event e CROSS JOIN LATERAL job_event_kinds(e) AS k WHERE e.last_seq > events_low()) AS n
    GROUP BY 1 HAVING sum(n.count) > 0;
END $$;

-- The same as an object, with the event that this stands for, where there is one (`events_seen_to`).
CREATE OR REPLACE FUNCTION event_totals(OUT counts jsonb, OUT event_seq bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_told CONSTANT bigint := events_told();
BEGIN
    SELECT coalesce(jsonb_object_agg(c.kind, c.count), '{}'), events_seen_to(v_told) INTO counts, event_seq FROM event_counts() AS c;
END $$;

-- How the leases of a namespace ended in the last so many milliseconds: from when on they are counted, whether that is all of the time; how many
-- ended how in which minute (`[[minute_ms, how, count]]`); and the event that this stands for, where there is one (`events_seen_to`).
CREATE OR REPLACE FUNCTION lease_ended_counts(p_namespace text, p_since_ms bigint,
    OUT from_ms bigint, OUT to_ms bigint, OUT complete boolean, OUT counts jsonb, OUT event_seq bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_told   CONSTANT bigint := events_told();
    -- Whole minutes.
    c_wanted CONSTANT bigint := (now_ms() - p_since_ms) / 60000 * 60000;
    -- A schema that was brought up to date has counted since then.
    c_began  CONSTANT bigint := (SELECT ceil(extract(epoch FROM min(m.carried_out_at)) / 60) * 60000 FROM migration m
        WHERE m.version >= 32 AND EXISTS (SELECT FROM migration e WHERE e.version < 32));
BEGIN
    from_ms := greatest(c_wanted, c_began);
    to_ms := now_ms();
    complete := from_ms = c_wanted;
    -- One statement: an event that is being taken out is seen in one place.
    SELECT coalesce(jsonb_agg(jsonb_build_array(n.minute_ms, n.how, n.count)), '[]'), events_seen_to(v_told) INTO counts, event_seq FROM (
        SELECT u.minute_ms, u.how, sum(u.count) AS count FROM (
            SELECT c.minute_ms, c.how, c.count FROM lease_ended_count c WHERE c.namespace = p_namespace AND c.minute_ms >= from_ms
            UNION ALL
            SELECT e.at_ms / 60000 * 60000, e.fact->'lease_ended'->>'how', 1 FROM event e
            WHERE e.seq > events_low() AND e.namespace = p_namespace AND e.at_ms >= from_ms AND e.fact ? 'lease_ended') AS u
        GROUP BY 1, 2) AS n;
END $$;

-- The same for programs before schema 38, of the whole time.
CREATE OR REPLACE FUNCTION lease_stats(p_namespace text, p_since_ms bigint, OUT from_ms bigint, OUT complete boolean, OUT counts jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    SELECT c.from_ms, c.complete, coalesce((SELECT jsonb_object_agg(n.how, n.count)
            FROM (SELECT j->>1 AS how, sum((j->2)::bigint) AS count FROM jsonb_array_elements(c.counts) AS j GROUP BY 1) AS n), '{}')
    INTO from_ms, complete, counts FROM lease_ended_counts(p_namespace, p_since_ms) AS c;
END $$;
