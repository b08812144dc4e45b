-- What users read.

-- A moment, as views show it: beyond the year 9999, the last moment of that year. Parsed here, and not where it is called.
CREATE OR REPLACE FUNCTION shown_time(ms bigint) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN ms < 253402300799999 THEN to_timestamp(ms / 1000) + ms % 1000 * interval '1 millisecond'
    WHEN ms IS NOT NULL THEN timestamptz '9999-12-31 23:59:59.999+00' END;

CREATE OR REPLACE FUNCTION shown_state(state integer) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (ARRAY['queued', 'scheduled', 'running', 'completed', 'failed', 'cancelled', 'quarantined', 'in_doubt'])[state + 1];

CREATE OR REPLACE FUNCTION shown_event_type(fact jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT CASE k
    WHEN 'yield_asked' THEN 'yield_requested'
    WHEN 'row_set_aside' THEN 'row_unreadable'
    WHEN 'effect_undone' THEN 'effect_compensation_ended'
    ELSE k END FROM jsonb_object_keys(fact) AS k LIMIT 1);

-- What else is known of an event, without what has no value.
CREATE OR REPLACE FUNCTION shown_event_data(fact jsonb) RETURNS jsonb LANGUAGE sql STABLE PARALLEL SAFE
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

CREATE OR REPLACE FUNCTION shown_labels(extra jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT coalesce(jsonb_object_agg(l.value ->> 0, l.value -> 1), '{}') FROM jsonb_array_elements(extra -> 'labels') AS l);

-- Every key that is known. One whose holder's deadline has passed is held while a transaction has a fence on it: it is not granted.
CREATE OR REPLACE VIEW leases AS
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
CREATE OR REPLACE VIEW lease_endings AS
SELECT k.namespace, k.key, e.token, e.owner, e.task, e.how AS outcome, shown_time(e.at_ms) AS ended_at, e.ended_by AS by, e.reason
FROM lease_ending e JOIN lease_key k ON k.id = e.key_id;

-- Every job, without its payload. The hash of its unique key: the first 16 bytes of the SHA-256 of `job:` and the key.
CREATE OR REPLACE VIEW jobs AS
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

-- Queues that have jobs or a schedule, or are not open.
CREATE OR REPLACE VIEW queues AS
SELECT q.namespace, q.name, (ARRAY['open', 'paused', 'draining'])[q.mode + 1] AS mode,
    coalesce(n.queued, 0) AS queued_count, coalesce(n.scheduled, 0) AS scheduled_count, coalesce(n.running, 0) AS running_count,
    coalesce(n.completed, 0) AS completed_count, coalesce(n.failed, 0) AS failed_count, coalesce(n.cancelled, 0) AS cancelled_count,
    coalesce(n.quarantined, 0) AS quarantined_count, coalesce(n.in_doubt, 0) AS in_doubt_count
FROM job_queue q
LEFT JOIN (
    SELECT c.queue, sum(c.count) FILTER (WHERE c.state = 0)::bigint AS queued, sum(c.count) FILTER (WHERE c.state = 1)::bigint AS scheduled,
        sum(c.count) FILTER (WHERE c.state = 2)::bigint AS running, sum(c.count) FILTER (WHERE c.state = 3)::bigint AS completed,
        sum(c.count) FILTER (WHERE c.state = 4)::bigint AS failed, sum(c.count) FILTER (WHERE c.state = 5)::bigint AS cancelled,
        sum(c.count) FILTER (WHERE c.state = 6)::bigint AS quarantined, sum(c.count) FILTER (WHERE c.state = 7)::bigint AS in_doubt
    FROM job_counts_now(NULL) AS c
    GROUP BY c.queue) AS n ON n.queue = q.number
WHERE q.mode <> 0 OR n.queue IS NOT NULL
    OR EXISTS (SELECT FROM job_schedule s WHERE s.namespace = q.namespace AND s.spec ->> 'queue' = q.name);

CREATE OR REPLACE VIEW schedules AS
SELECT s.namespace, s.name, s.spec ->> 'cron' AS cron, s.spec ->> 'zone' AS time_zone, s.spec ->> 'queue' AS queue, s.spec ->> 'kind' AS kind,
    shown_time(s.next_ms) AS next_run_at, shown_time(s.last_ms) AS last_run_at
FROM job_schedule s;

-- The events that are kept. One that was committed late may come with a lower number than others have that were seen before.
CREATE OR REPLACE VIEW events AS
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

-- Which background work fails at present.
CREATE OR REPLACE FUNCTION maintenance_errors() RETURNS TABLE (
    part text, first_failed_at timestamptz, last_failed_at timestamptz, failure_count bigint, message text)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT m.part, shown_time(m.since_ms), shown_time(m.at_ms), m.times, m.why FROM maintenance_error m ORDER BY m.part
$$;
