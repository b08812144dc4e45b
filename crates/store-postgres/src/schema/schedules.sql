-- Schedules.

CREATE OR REPLACE FUNCTION job_schedule_text(p_schedule job_schedule) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('namespace', p_schedule.namespace, 'spec', p_schedule.spec, 'next_ms', p_schedule.next_ms,
        'last_ms', p_schedule.last_ms)::text
$$;

CREATE OR REPLACE FUNCTION job_schedules(p_namespace text) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT job_schedule_text(s) FROM job_schedule s WHERE s.namespace = p_namespace ORDER BY s.name COLLATE "C"
$$;

-- A schedule that is about to be made or changed, and how many there are: others that are about to do the same wait. And one that is just
-- firing is waited for: when it is next due is then as that has left it.
CREATE OR REPLACE FUNCTION job_schedule_hold(p_namespace text, p_name text, OUT schedule text, OUT total bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(p_namespace || '/' || p_name, 7462));
    SELECT job_schedule_text(s) INTO schedule FROM job_schedule s WHERE s.namespace = p_namespace AND s.name = p_name FOR UPDATE;
    SELECT count(*) INTO total FROM job_schedule s WHERE s.namespace = p_namespace;
END $$;

CREATE OR REPLACE FUNCTION job_unschedule(p_namespace text, p_name text) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH gone AS (DELETE FROM job_schedule s WHERE s.namespace = p_namespace AND s.name = p_name RETURNING 1)
    SELECT EXISTS (SELECT FROM gone)
$$;

-- How many schedules a namespace may have.
CREATE OR REPLACE FUNCTION job_schedules_most(p_namespace text) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce((SELECT l.schedules FROM namespace_limits(p_namespace) AS l), 10000);
END $$;

-- Schedules that are due, or whose next moment must be looked for again, as JSON. Those who get one hold it until it is kept.
CREATE OR REPLACE FUNCTION job_schedules_due(p_most integer) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT jsonb_build_object('namespace', s.namespace, 'spec', s.spec, 'next_ms', s.next_ms, 'last_ms', s.last_ms)::text
    FROM job_schedule s WHERE s.ctid = ANY(
        array(SELECT o.ctid FROM job_schedule o WHERE o.next_ms <= (SELECT now_ms()) ORDER BY o.next_ms LIMIT p_most)
        || array(SELECT o.ctid FROM job_schedule o WHERE o.noted_ms > (SELECT now_ms()) + 1000 AND o.next_ms IS NOT NULL
            ORDER BY o.noted_ms DESC LIMIT p_most))
    ORDER BY s.next_ms FOR UPDATE SKIP LOCKED
$$;
