-- Contention of leases: how often a key was refused, to whom last, and how long its line was. Each process gathers that in memory and adds it
-- here now and then: no refusal writes anything. Nothing is decided by it.

-- Bounds of `fencehold_core::limits`: for how long a key is remembered, and how many of a namespace.
CREATE OR REPLACE FUNCTION limit_contention_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 3600000 $$;
CREATE OR REPLACE FUNCTION limit_contended_keys() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 1000 $$;

-- Adds what a process has gathered, and forgets what is old or too much. Times are how long ago something was: the clocks of processes differ.
CREATE OR REPLACE FUNCTION lease_contention_add(p_gathered jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_now  CONSTANT bigint := now_ms();
    v_kept CONSTANT bigint := v_now - limit_contention_ms();
BEGIN
    -- In the order of keys: of two that add at once, one waits for the other, and never in a circle.
    INSERT INTO lease_contention AS c (namespace, key, begins_ms, last_ms, refused_count, refused_owner, refused_task, refused_ms, max_waiter_count)
    SELECT g.namespace, g.key, v_now - g.begins_ago_ms, v_now - g.last_ago_ms, g.refused_count, g.refused_owner, g.refused_task,
        v_now - g.refused_ago_ms, g.max_waiter_count
    FROM jsonb_to_recordset(p_gathered) AS g(namespace text, key text, begins_ago_ms bigint, last_ago_ms bigint, refused_count bigint,
        refused_owner text, refused_task text, refused_ago_ms bigint, max_waiter_count bigint)
    ORDER BY g.namespace COLLATE "C", g.key COLLATE "C"
    ON CONFLICT (namespace, key) DO UPDATE SET
        -- One that was forgotten already begins anew.
        begins_ms = CASE WHEN c.last_ms < v_kept THEN excluded.begins_ms ELSE least(c.begins_ms, excluded.begins_ms) END,
        refused_count = CASE WHEN c.last_ms < v_kept THEN 0 ELSE c.refused_count END + excluded.refused_count,
        max_waiter_count = greatest(CASE WHEN c.last_ms < v_kept THEN 0 ELSE c.max_waiter_count END, excluded.max_waiter_count),
        last_ms = greatest(c.last_ms, excluded.last_ms),
        (refused_owner, refused_task, refused_ms) = (SELECT l.owner, l.task, l.ms FROM (
            VALUES (c.refused_owner, c.refused_task, c.refused_ms),
                (excluded.refused_owner, excluded.refused_task, excluded.refused_ms)) AS l(owner, task, ms)
            ORDER BY l.ms DESC NULLS LAST LIMIT 1);
    -- Whatever another process is at work on is left to it.
    DELETE FROM lease_contention WHERE (namespace, key) IN (
        SELECT o.namespace, o.key FROM lease_contention o WHERE o.last_ms < v_kept FOR UPDATE SKIP LOCKED);
    DELETE FROM lease_contention WHERE (namespace, key) IN (
        SELECT o.namespace, o.key FROM lease_contention o WHERE (o.namespace, o.key) IN (
            SELECT m.namespace, m.key FROM (SELECT DISTINCT g.namespace FROM jsonb_to_recordset(p_gathered) AS g(namespace text)) AS n
            CROSS JOIN LATERAL (SELECT k.namespace, k.key FROM lease_contention k WHERE k.namespace = n.namespace
                ORDER BY k.last_ms DESC, k.key OFFSET limit_contended_keys()) AS m)
        FOR UPDATE SKIP LOCKED);
END $$;

-- What was added of the keys of a namespace: of one, or of those that start with a text, or of all.
CREATE OR REPLACE FUNCTION lease_contention_list(of_namespace text, of_key text, of_prefix text) RETURNS jsonb
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT coalesce(jsonb_agg(to_jsonb(s)), '[]') FROM (
        SELECT c.key, c.begins_ms, c.refused_count, c.refused_owner, c.refused_task, c.refused_ms, c.max_waiter_count
        FROM lease_contention c
        WHERE c.namespace = of_namespace AND c.last_ms >= now_ms() - limit_contention_ms()
            AND (of_key IS NULL OR c.key = of_key) AND (of_prefix IS NULL OR starts_with(c.key, of_prefix))
        ORDER BY c.refused_count DESC, c.max_waiter_count DESC, c.key LIMIT limit_contended_keys()) AS s
$$;
