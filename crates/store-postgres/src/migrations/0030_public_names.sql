-- What users call and read has its last name: functions, views and settings. Everything else in this schema is private, which its comment
-- says: any migration may change it. What is stored keeps its words; views show the public ones.

-- These keep their rights, for they only get another name. Their bodies follow below.
ALTER FUNCTION enqueue RENAME TO enqueue_job;
ALTER FUNCTION raise RENAME TO raise_mark;
ALTER FUNCTION guard RENAME TO fence_resource;
-- Public functions are verb and noun, private ones noun and verb; none is another one turned round.
ALTER FUNCTION job_enqueue RENAME TO job_enqueue_batch;
ALTER FUNCTION job_complete RENAME TO job_complete_batch;

-- Completes a job in the transaction that does its work: either both are there afterwards, or neither. The hold id is the one
-- that the claim was made with, as 32 hexadecimal digits.
CREATE FUNCTION complete_job(job_id uuid, hold_id text, token bigint, result jsonb DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    PERFORM job_complete_hashed(complete_job.job_id, encode(substr(sha256(decode(complete_job.hold_id, 'hex')), 1, 16), 'hex')::uuid,
        complete_job.token, complete_job.result::text);
END $$;

-- Records an effect of a live attempt in the transaction that has it. The value: this one, or the one that was recorded first.
CREATE FUNCTION record_effect(job_id uuid, hold_id text, token bigint, effect text, value jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    v_hash uuid := encode(substr(sha256(decode(record_effect.hold_id, 'hex')), 1, 16), 'hex')::uuid;
BEGIN
    -- The effect is in this transaction: so this is where it begins, too.
    RETURN coalesce(job_recorded(record_effect.job_id, v_hash, record_effect.token, record_effect.effect),
        job_once_hashed(record_effect.job_id, v_hash, record_effect.token, record_effect.effect, record_effect.value));
END $$;

-- Which transactions hold a fence, of every namespace. How old they are is not shown to every role: null then.
CREATE FUNCTION open_fences() RETURNS TABLE (namespace text, key text, owner text, task text, job_id uuid, pid integer, age_ms bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH mark AS (
        SELECT l.classid, l.objid::bigint AS rest, l.pid,
            CASE WHEN a.xact_start <= clock_timestamp()
                THEN floor(extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint END AS age_ms
        FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid IN (1179142470, 1179142471)
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
    SELECT k.namespace, k.key, h.owner, h.task, NULL::uuid, m.pid, m.age_ms
    FROM mark m CROSS JOIN LATERAL generate_series(0, (SELECT max(id) FROM lease_key) / 2147483647) AS lap
    JOIN lease_key k ON k.id = m.rest + lap * 2147483647
    LEFT JOIN lease_hold h ON h.key_id = k.id
    WHERE m.classid = 1179142470
    UNION ALL
    SELECT q.namespace, NULL, NULL, NULL, b.id, m.pid, m.age_ms
    FROM mark m CROSS JOIN LATERAL generate_series(0, (SELECT max(arrival) FROM job_body) / 2147483647) AS lap
    JOIN job_body b ON b.arrival = m.rest + lap * 2147483647
    JOIN job_lane l ON l.lane = b.lane
    JOIN job_queue q ON q.number = l.queue
    WHERE m.classid = 1179142471
    ORDER BY 7 DESC NULLS LAST, 6
$$;

-- The jobs that were claimed with this hold id, of which no second sending of the claim was told, and which were not renewed.
CREATE FUNCTION job_untaken(p_namespace text, p_hash uuid) RETURNS TABLE (id uuid, token bigint)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT r.id, r.token FROM job_running r JOIN job_lane l ON l.lane = r.lane JOIN job_queue q ON q.number = l.queue
    WHERE r.hash = p_hash AND NOT r.taken_up AND q.namespace = p_namespace
$$;

-- A moment, as views show it: beyond the year 9999, the last moment of that year. Parsed here, and not where it is called.
CREATE FUNCTION shown_time(ms bigint) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN ms < 253402300799999 THEN to_timestamp(ms / 1000) + ms % 1000 * interval '1 millisecond'
    WHEN ms IS NOT NULL THEN timestamptz '9999-12-31 23:59:59.999+00' END;

CREATE FUNCTION shown_state(state integer) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (ARRAY['queued', 'scheduled', 'running', 'completed', 'failed', 'cancelled', 'quarantined', 'in_doubt'])[state + 1];

CREATE FUNCTION shown_event_type(fact jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT CASE k
    WHEN 'yield_asked' THEN 'yield_requested'
    WHEN 'row_set_aside' THEN 'row_unreadable'
    WHEN 'effect_undone' THEN 'effect_compensation_ended'
    ELSE k END FROM jsonb_object_keys(fact) AS k LIMIT 1);

-- What else is known of an event, without what has no value.
CREATE FUNCTION shown_event_data(fact jsonb) RETURNS jsonb LANGUAGE sql STABLE PARALLEL SAFE
RETURN (SELECT coalesce(jsonb_object_agg(
    CASE m.key
        WHEN 'how' THEN 'outcome'
        WHEN 'stale_token' THEN 'token'
        WHEN 'shown_token' THEN 'token'
        WHEN 'attempted' THEN 'action'
        WHEN 'problem' THEN 'message'
        WHEN 'again_in_ms' THEN 'retry_in_ms'
        WHEN 'undone' THEN 'compensated'
        WHEN 'due_wall_ms' THEN 'due_at'
        ELSE m.key END,
    CASE m.key || ' ' || (m.value #>> '{}')
        WHEN 'how indeterminate' THEN '"in_doubt"'
        WHEN 'state indeterminate' THEN '"in_doubt"'
        WHEN 'how handed_back' THEN '"released"'
        WHEN 'attempted hand_back' THEN '"release"'
        WHEN 'attempted intent' THEN '"begin_effect"'
        WHEN 'attempted outcome' THEN '"record_effect"'
        ELSE CASE m.key
            WHEN 'due_wall_ms' THEN to_jsonb(to_char(shown_time((m.value #>> '{}')::bigint) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
            ELSE m.value END
        END), '{}')
    FROM jsonb_each(fact) AS f CROSS JOIN LATERAL jsonb_each(f.value) AS m WHERE m.value <> 'null');

CREATE FUNCTION shown_labels(extra jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT coalesce(jsonb_object_agg(l.value ->> 0, l.value -> 1), '{}') FROM jsonb_array_elements(extra -> 'labels') AS l);

-- Every key that is known. One whose holder's deadline has passed is held while a transaction has a fence on it: nobody is granted it.
CREATE VIEW leases AS
SELECT k.namespace, k.key, k.counter AS token, h.owner, h.task, h.ttl_ms, h.max_age_ms, h.priority,
    shown_time(h.since_ms) AS acquired_at, shown_time(h.until_ms) AS deadline_at,
    (SELECT count(*) FROM lease_line l WHERE l.key_id = k.id AND l.until_ms > clock.ms) AS waiter_count
FROM lease_key k
CROSS JOIN (SELECT now_ms() AS ms) AS clock
LEFT JOIN LATERAL (
    -- As `lease_left` has it.
    SELECT o.*, least(
        greatest(o.deadline_ms, CASE WHEN o.deadline_ms - o.lasts_ms < s.suspended_from_ms THEN s.suspended_from_ms + o.ttl_ms ELSE 0 END),
        clock.ms + o.ttl_ms) AS until_ms
    FROM lease_hold o CROSS JOIN store_state s WHERE o.key_id = k.id
) AS h ON h.until_ms > clock.ms OR k.id % 2147483647 IN (
    SELECT l.objid::bigint FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = 1179142470
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()));

-- How the last holds of each key ended.
CREATE VIEW lease_endings AS
SELECT k.namespace, k.key, e.token, e.owner, e.task, e.how AS outcome, shown_time(e.at_ms) AS ended_at, e.ended_by AS by, e.reason
FROM lease_ending e JOIN lease_key k ON k.id = e.key_id;

-- Every job, without its payload. The hash of its unique key: the first 16 bytes of the SHA-256 of `job:` and the key.
CREATE VIEW jobs AS
SELECT q.namespace, b.id, q.name AS queue, b.kind, shown_state(CASE
        WHEN r.id IS NOT NULL THEN 2 WHEN y.arrival IS NOT NULL OR c.due_ms <= clock.ms THEN 0 WHEN c.arrival IS NOT NULL THEN 1 ELSE s.state
    END) AS state,
    l.priority, coalesce(r.token, s.token, p.token, 0) AS token, r.owner,
    coalesce(p.attempts, 0) + (r.id IS NOT NULL)::integer + (s.hash IS NOT NULL)::integer AS attempt_count,
    coalesce(p.failures, 0) AS failure_count, coalesce(p.crashes, 0) AS crash_count,
    shown_time(b.enqueued_ms) AS enqueued_at, shown_time(coalesce(r.since_ms, s.since_ms, p.since_ms, b.enqueued_ms)) AS state_changed_at,
    shown_time(CASE WHEN c.due_ms > clock.ms THEN c.due_ms END) AS due_at,
    -- As `job_deadline` has it.
    shown_time(CASE WHEN o.suspended_from_ms BETWEEN 1 AND clock.ms AND r.deadline_ms - r.ttl_ms < o.suspended_from_ms
        THEN greatest(r.deadline_ms, least(o.suspended_from_ms + r.ttl_ms, r.limit_ms)) ELSE r.deadline_ms END) AS deadline_at,
    encode(substr(sha256(convert_to('job:' || (b.extra ->> 'unique'), 'UTF8')), 1, 16), 'hex') AS unique_key_hash,
    shown_labels(b.extra) AS labels
FROM job_body b
JOIN job_lane l ON l.lane = b.lane
JOIN job_queue q ON q.number = l.queue
CROSS JOIN store_state o
CROSS JOIN (SELECT now_ms() AS ms) AS clock
LEFT JOIN job_running r ON r.id = b.id
LEFT JOIN job_ready y ON y.lane = b.lane AND y.arrival = b.arrival
LEFT JOIN job_scheduled c ON c.arrival = b.arrival
LEFT JOIN job_settled s ON s.arrival = b.arrival
LEFT JOIN job_past p ON p.arrival = b.arrival;

-- Queues that have jobs or a schedule, or are not open. All jobs are counted, each time.
CREATE VIEW queues AS
SELECT q.namespace, q.name, (ARRAY['open', 'paused', 'draining'])[q.mode + 1] AS mode,
    coalesce(n.queued, 0) AS queued_count, coalesce(n.scheduled, 0) AS scheduled_count, coalesce(n.running, 0) AS running_count,
    coalesce(n.completed, 0) AS completed_count, coalesce(n.failed, 0) AS failed_count, coalesce(n.cancelled, 0) AS cancelled_count,
    coalesce(n.quarantined, 0) AS quarantined_count, coalesce(n.in_doubt, 0) AS in_doubt_count
FROM job_queue q
LEFT JOIN (
    SELECT l.queue, count(*) FILTER (WHERE j.state = 0) AS queued, count(*) FILTER (WHERE j.state = 1) AS scheduled,
        count(*) FILTER (WHERE j.state = 2) AS running, count(*) FILTER (WHERE j.state = 3) AS completed,
        count(*) FILTER (WHERE j.state = 4) AS failed, count(*) FILTER (WHERE j.state = 5) AS cancelled,
        count(*) FILTER (WHERE j.state = 6) AS quarantined, count(*) FILTER (WHERE j.state = 7) AS in_doubt
    FROM (
        SELECT r.lane, 0 AS state FROM job_ready r
        UNION ALL
        SELECT c.lane, CASE WHEN c.due_ms <= clock.ms THEN 0 ELSE 1 END FROM job_scheduled c CROSS JOIN (SELECT now_ms() AS ms) AS clock
        UNION ALL
        SELECT r.lane, 2 FROM job_running r
        UNION ALL
        SELECT s.lane, s.state FROM job_settled s) AS j
    JOIN job_lane l ON l.lane = j.lane
    GROUP BY l.queue) AS n ON n.queue = q.number
WHERE q.mode <> 0 OR n.queue IS NOT NULL
    OR EXISTS (SELECT FROM job_schedule s WHERE s.namespace = q.namespace AND s.spec ->> 'queue' = q.name);

CREATE VIEW schedules AS
SELECT s.namespace, s.name, s.spec ->> 'cron' AS cron, s.spec ->> 'zone' AS time_zone, s.spec ->> 'queue' AS queue, s.spec ->> 'kind' AS kind,
    shown_time(s.next_ms) AS next_run_at, shown_time(s.last_ms) AS last_run_at
FROM job_schedule s;

-- The events that are kept. One that was committed late may come with a lower number than others have that were seen before.
CREATE VIEW events AS
SELECT e.namespace, e.seq, shown_time(e.at_ms) AS at, e.key, shown_event_type(e.fact) AS type, shown_event_data(e.fact) AS data
FROM (
    SELECT o.seq, o.at_ms, o.namespace, o.key, o.fact FROM event o WHERE o.seq > (SELECT s.events_removed_to FROM store_state s)
    UNION ALL
    SELECT o.seq, o.at_ms, o.namespace, o.key, o.fact FROM event_old o
    UNION ALL
    -- As `job_event_told` has it.
    SELECT j.seq, o.at_ms, o.namespace COLLATE "C", ('job/' || j.id) COLLATE "C", CASE o.what
        WHEN 1 THEN jsonb_build_object('job_enqueued', jsonb_build_object('queue', coalesce(o.names[j.nth], o.names[1]),
            'kind', coalesce(o.kinds[j.nth], o.kinds[1]), 'state', CASE WHEN o.flags[j.nth] THEN 'scheduled' ELSE 'queued' END))
        WHEN 2 THEN jsonb_build_object('job_claimed', jsonb_build_object('token', o.tokens[j.nth],
            'owner', coalesce(o.names[j.nth], o.names[1]), 'attempt', coalesce(o.attempts[j.nth], o.attempts[1])))
        ELSE jsonb_build_object('job_attempt_ended', jsonb_build_object('token', o.tokens[j.nth],
            'owner', coalesce(o.names[j.nth], o.names[1]),
            'how', CASE WHEN o.flags[j.nth] THEN 'completed_late' ELSE 'completed' END, 'state', 'completed'))
        END
    FROM job_event o CROSS JOIN LATERAL unnest(o.seqs, o.ids) WITH ORDINALITY AS j(seq, id, nth)
    WHERE o.last_seq > (SELECT s.events_removed_to FROM store_state s)) AS e
-- Late ones that have no new number yet.
WHERE NOT EXISTS (SELECT FROM event_gap g WHERE e.seq BETWEEN g.first_seq AND g.last_seq);

-- The least role that may call a function or read a table or a view: a worker may do what a reader may, an admin what both may. `none`: no
-- role, any more. What is not named is called by other functions alone.
CREATE OR REPLACE FUNCTION role_grants() RETURNS TABLE (name text, lowest text)
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT unnest('{leases,lease_endings,jobs,queues,schedules,events,shown_time,shown_state,shown_event_type,shown_event_data,shown_labels,'
        'migration,now_ms,maintenance_errors,'
        'events_read,lease_get,lease_list,lease_status,lease_timeline,job_look,job_list,job_queues,job_live,job_with_effects,job_schedules,'
        'store_closed_ms,store_limits}'::text[]), 'reader'
    UNION ALL
    SELECT unnest('{enqueue_job,complete_job,record_effect,fence,fence_job,fence_resource,raise_mark,open_fences,'
        'party_lives,lease_acquire,lease_look,lease_leave,lease_abandon,lease_renew,lease_renew_checked,lease_release,lease_suspend,'
        'lease_sweep,fence_on,job_await,job_line_up,job_leave_line,job_line_beat,job_tell_lines,job_enqueue_batch,job_claim,job_unheard,job_untaken,'
        'job_renew,job_complete_batch,job_load,job_draw,job_under,job_idle_limit,job_keep,job_run_out,job_tidy,job_schedules_due,job_room,'
        'job_schedule_hold,job_unschedule,job_schedules_most,job_queue_remove,job_queues_tidy,job_complete_hashed,job_once_hashed,'
        'job_recorded,job_held_up,namespace_count,maintenance_failed,maintenance_worked}'::text[]), 'worker'
    UNION ALL
    SELECT unnest('{lease_revoke,lease_revoke_many,lease_advance,store_open_now,store_limits_set}'::text[]), 'admin'
    UNION ALL
    SELECT unnest('{store_state,namespace,event,job_event,fence_mark,floor_of}'::text[]), 'none'
$$;

DO $$
DECLARE
    -- The function, what is in it, and what is to be there.
    c_changes CONSTANT text[] := ARRAY[
        ARRAY['enqueue_job', 'enqueue\.', 'enqueue_job.'],
        ARRAY['enqueue_job', 'job_enqueue\(', 'job_enqueue_batch('],
        ARRAY['enqueue_job', 'fencehold\.producer_wait_ms', 'fencehold.enqueue_wait_ms'],
        ARRAY['job_producer_bound', 'fencehold\.producer_wait_ms', 'fencehold.enqueue_wait_ms'],
        ARRAY['fence_idle_limit', 'fencehold\.fence_idle_ms', 'fencehold.fence_idle_timeout_ms'],
        ARRAY['job_idle_limit', 'fencehold\.decision_idle_ms', 'fencehold.job_lock_idle_timeout_ms'],
        ARRAY['raise_mark', 'raise\.', 'raise_mark.'],
        ARRAY['fence_resource', 'guard\.', 'fence_resource.'],
        ARRAY['fence_resource', 'raise\(', 'raise_mark('],
        ARRAY['job_complete_hashed', 'job_complete\(', 'job_complete_batch('],
        ARRAY['job_claim', 'job_complete\M', 'job_complete_batch'],
        ARRAY['job_rows', 'job_complete\M', 'job_complete_batch'],
        ARRAY['grant_roles', 'c\.relkind = ''r''', 'c.relkind IN (''r'', ''v'')'],
        -- Whoever sweeps says until when it knows of no jump of the clock. After that moment nothing is swept; -1 says so.
        ARRAY['lease_sweep_before', 'lease_sweep_before\(most integer\)', 'lease_sweep(most integer, not_after_ms bigint DEFAULT NULL)'],
        ARRAY['lease_sweep_before', 'done bigint := 0;', 'done bigint := 0;
    late boolean := began > not_after_ms;'],
        ARRAY['lease_sweep_before', 'began CONSTANT bigint := now_ms\(\);\n    ', ''],
        ARRAY['lease_sweep_before', 'now bigint := now_ms\(\);', 'began CONSTANT bigint := now_ms();
    now bigint := began;'],
        ARRAY['lease_sweep_before', 'PERFORM notice_server\(\);', 'PERFORM notice_server();
    IF late THEN
        RETURN -1;
    END IF;'],
        ARRAY['lease_sweep_before', 'now := now_ms\(\);\n        PERFORM lease_time_outs', 'now := now_ms();
        late := now > not_after_ms;
        EXIT WHEN late;
        PERFORM lease_time_outs'],
        ARRAY['lease_sweep_before', 'RETURN done;', 'RETURN CASE WHEN late THEN -1 ELSE done END;'],
        -- Its argument gets another name, which only a new function can have.
        ARRAY['fence_job_before', 'fence_job_before\(job ', 'fence_job(job_id '],
        ARRAY['fence_job_before', 'fence_job\.job\M', 'fence_job.job_id']];
    -- Those that are made anew, and what they are in place of: who may call it may call them.
    c_instead CONSTANT text[] := ARRAY[
        ARRAY['complete_job', 'complete'],
        ARRAY['record_effect', 'once'],
        ARRAY['open_fences', 'fences_open'],
        ARRAY['fence_job', 'fence_job_before'],
        ARRAY['lease_sweep', 'lease_sweep_before'],
        ARRAY['maintenance_errors', 'maintenance_errors_before']];
    c_public CONSTANT text[] := ARRAY[
        ARRAY['enqueue_job', 'Enqueues a job with this transaction, and returns its id.'],
        ARRAY['complete_job', 'Completes a job with this transaction.'],
        ARRAY['record_effect', 'Records an effect of a job with this transaction, and returns the value that was recorded first.'],
        ARRAY['fence', 'Refuses a token of a lease that is not the newest; until the transaction ends, nobody is granted the key.'],
        ARRAY['fence_job', 'Refuses a token of a job that is not the newest; until the transaction ends, nobody is given the job.'],
        ARRAY['fence_resource', 'Refuses a token below the mark of a resource; until the transaction ends, nobody raises the mark.'],
        ARRAY['raise_mark', 'Raises the mark of a resource: smaller tokens are refused from the commit on.'],
        ARRAY['maintenance_errors', 'Which background work fails at present.'],
        ARRAY['open_fences', 'Which transactions hold a fence.']];
    c_private CONSTANT text := 'Private: any migration may change it.';
    changed text;
    made    text;
    ours    record;
BEGIN
    ALTER FUNCTION fence_job RENAME TO fence_job_before;
    ALTER FUNCTION lease_sweep RENAME TO lease_sweep_before;
    FOR i IN 1 .. array_length(c_changes, 1) LOOP
        IF c_changes[i][1] IS DISTINCT FROM c_changes[i - 1][1] THEN
            changed := pg_get_functiondef(c_changes[i][1]::regproc);
        END IF;
        made := changed;
        changed := regexp_replace(made, '\m' || c_changes[i][2], c_changes[i][3], 'g');
        IF changed = made THEN
            RAISE EXCEPTION '% is not the function that this migration knows: %', c_changes[i][1], c_changes[i][2];
        END IF;
        IF c_changes[i][1] IS DISTINCT FROM c_changes[i + 1][1] THEN
            EXECUTE changed;
        END IF;
    END LOOP;

    ALTER FUNCTION maintenance_errors RENAME TO maintenance_errors_before;
    CREATE FUNCTION maintenance_errors()
    RETURNS TABLE (part text, first_failed_at timestamptz, last_failed_at timestamptz, failure_count bigint, message text)
    LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS 'SELECT m.part, shown_time(m.since_ms), shown_time(m.at_ms), m.times, m.why FROM maintenance_error m ORDER BY m.part';

    FOR i IN 1 .. array_length(c_instead, 1) LOOP
        FOR ours IN
            SELECT a.grantee::regrole AS name, a.is_grantable FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) AS a
            WHERE p.oid = c_instead[i][2]::regproc AND a.grantee NOT IN (0, p.proowner)
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %I TO %s%s', c_instead[i][1], ours.name, CASE WHEN ours.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
        END LOOP;
        EXECUTE format('DROP FUNCTION %I', c_instead[i][2]);
    END LOOP;

    -- As all functions before are planned.
    FOR ours IN SELECT unnest('{complete_job,record_effect,open_fences,maintenance_errors,job_untaken}'::regproc[]) AS name LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET jit = off SET max_parallel_workers_per_gather = 0', ours.name);
    END LOOP;

    FOR ours IN
        SELECT CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END AS kind, p.oid::regprocedure AS name
        FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('COMMENT ON %s %s IS %L', ours.kind, ours.name, c_private);
    END LOOP;
    FOR i IN 1 .. array_length(c_public, 1) LOOP
        EXECUTE format('COMMENT ON FUNCTION %I IS %L', c_public[i][1], c_public[i][2]);
    END LOOP;
    -- By name: the owner may keep other tables here.
    FOR ours IN SELECT unnest('{event,event_gap,event_late,event_lost,event_old,fence_mark,job_awaited,job_body,job_dropped,job_effect,job_event,'
        'job_head,job_lane,job_lane_gone,job_note,job_past,job_queue,job_ready,job_running,job_schedule,job_scheduled,job_settled,job_unique,'
        'job_waiter,lease_ending,lease_hold,lease_key,lease_line,lease_waiter,maintenance_error,namespace,namespace_closed,namespace_limit,'
        'namespace_ttl,namespace_use,party,store_state,tidied}'::regclass[]) AS name
    LOOP
        EXECUTE format('COMMENT ON TABLE %s IS %L', ours.name, c_private);
    END LOOP;
END $$;
COMMENT ON TABLE migration IS 'The migrations that were carried out: the version of the schema.';
COMMENT ON VIEW leases IS 'Every lease key. No owner: the key is free.';
COMMENT ON VIEW lease_endings IS 'How the last holds of each key ended.';
COMMENT ON VIEW jobs IS 'Every job, without its payload.';
COMMENT ON VIEW queues IS 'Queues, and how many jobs of each state they have. Counted when it is read.';
COMMENT ON VIEW schedules IS 'Schedules, and when they run.';
COMMENT ON VIEW events IS 'The events that are kept.';
