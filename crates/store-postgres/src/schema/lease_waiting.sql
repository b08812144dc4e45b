-- Leases: who waits for them, and which holders are asked to yield. Called under the locks of the functions that clients call.

-- Makes the notice on a hold say what its waiters say: the highest that asks it to yield, or none. A hold that another transaction has
-- locked is skipped: readers of a notice check that its contender still waits.
CREATE OR REPLACE FUNCTION lease_refresh_notice(of_key bigint, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    h lease_hold;
    k lease_key;
    asking lease_waiter;
    yield_at bigint;
    suspended bigint;
BEGIN
    SELECT * INTO h FROM lease_hold WHERE key_id = of_key FOR UPDATE SKIP LOCKED;
    SELECT suspended_from_ms INTO suspended FROM store_state;
    IF h.key_id IS NULL OR lease_left(h, suspended, now) <= 0 THEN
        RETURN;
    END IF;
    SELECT w.* INTO asking FROM lease_line l JOIN lease_waiter w ON w.id = l.waiter
    WHERE l.key_id = of_key AND l.rank < -h.priority AND l.until_ms > now
        AND w.answer IS NULL AND w.yield_within_ms IS NOT NULL
    ORDER BY l.rank, l.since_ms, l.waiter LIMIT 1;
    IF h.notice_contender IS NULL AND asking.id IS NULL THEN
        RETURN;
    END IF;
    IF h.notice_contender = asking.owner AND h.notice_priority = asking.priority
        AND h.notice_task IS NOT DISTINCT FROM asking.task
    THEN
        UPDATE lease_hold SET notice_waiter = asking.id WHERE key_id = of_key AND notice_waiter <> asking.id;
        RETURN;
    END IF;
    SELECT * INTO k FROM lease_key WHERE id = of_key;
    -- A contender that outranks the notice takes it over with the time that was promised; any other starts anew.
    IF h.notice_contender IS NOT NULL AND coalesce(asking.priority <= h.notice_priority, true) THEN
        UPDATE lease_hold
        SET notice_contender = NULL, notice_task = NULL, notice_priority = NULL, notice_yield_at_ms = NULL, notice_waiter = NULL
        WHERE key_id = of_key RETURNING * INTO h;
        PERFORM note(k.namespace, k.key,
            jsonb_build_object('yield_withdrawn', jsonb_build_object('token', h.token)), now);
    END IF;
    IF asking.id IS NULL THEN
        RETURN;
    END IF;
    yield_at := least(
        now + greatest(asking.yield_within_ms - greatest(now - asking.arrived_ms, 0), 0), h.notice_yield_at_ms);
    UPDATE lease_hold
    SET notice_contender = asking.owner, notice_task = asking.task, notice_priority = asking.priority,
        notice_yield_at_ms = yield_at, notice_waiter = asking.id
    WHERE key_id = of_key;
    PERFORM note(k.namespace, k.key, jsonb_build_object('yield_asked', jsonb_build_object(
        'token', h.token, 'contender', asking.owner, 'task', asking.task, 'priority', asking.priority,
        'yield_in_ms', greatest(yield_at - now, 0))), now);
END $$;

CREATE OR REPLACE FUNCTION lease_refresh_notices(w lease_waiter, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM lease_refresh_notice(k.id, now) FROM lease_found(w.namespace, w.keys) AS k ORDER BY k.nth;
END $$;

-- The refusal for a request that cannot have any of its keys: the one that comes free first.
CREATE OR REPLACE FUNCTION lease_held(w lease_waiter, now bigint) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN coalesce((
        SELECT lease_refused(k.key, jsonb_build_object('Held', jsonb_build_object(
            'owner', (h.hold).owner, 'task', (h.hold).task, 'expires_in_ms', greatest(lease_left(h.hold, s.suspended_from_ms, now), 0),
            'token', (h.hold).token)))
        FROM store_state s, lease_found(w.namespace, w.keys) AS k
        CROSS JOIN LATERAL (SELECT o AS hold FROM lease_hold o WHERE o.key_id = k.id OFFSET 0) AS h
        ORDER BY greatest(lease_left(h.hold, s.suspended_from_ms, now), 0), k.nth LIMIT 1),
        lease_unavailable('the time to wait was up before the key was free'));
END $$;

-- Writes an answer for a waiter, whose row is locked, and removes it from every line.
CREATE OR REPLACE FUNCTION lease_answer(w lease_waiter, said jsonb, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM lease_line WHERE waiter = w.id;
    UPDATE lease_waiter SET answer = said WHERE id = w.id;
    PERFORM tell('w' || w.id);
END $$;

-- Refuses waiters of a key whose time is up. Called first: a waiter that is found after this may be granted the key.
CREATE OR REPLACE FUNCTION lease_time_outs(of_key bigint, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    w lease_waiter;
    late bigint;
BEGIN
    FOR late IN
        SELECT waiter FROM lease_line WHERE key_id = of_key AND until_ms <= now ORDER BY until_ms, waiter
    LOOP
        SELECT * INTO w FROM lease_waiter WHERE id = late AND answer IS NULL FOR UPDATE;
        IF w.id IS NOT NULL THEN
            PERFORM lease_answer(w, lease_held(w, now), now);
            PERFORM lease_refresh_notices(w, now);
        END IF;
    END LOOP;
END $$;

-- Grants a free key to the first waiter that can still take it.
CREATE OR REPLACE FUNCTION lease_pass_on(of_key bigint, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    w lease_waiter;
    first bigint;
BEGIN
    LOOP
        IF EXISTS (SELECT FROM lease_hold WHERE key_id = of_key) THEN
            RETURN;
        END IF;
        SELECT waiter INTO first FROM lease_line WHERE key_id = of_key ORDER BY rank, since_ms, waiter LIMIT 1;
        IF first IS NULL THEN
            RETURN;
        END IF;
        -- It may be granted another key just now: then it does not wait for this one any more when its row comes free.
        SELECT * INTO w FROM lease_waiter WHERE id = first AND answer IS NULL FOR UPDATE;
        DELETE FROM lease_line WHERE waiter = first;
        IF w.id IS NULL THEN
            CONTINUE;
        END IF;
        IF w.until_ms <= now THEN
            PERFORM lease_answer(w, lease_held(w, now), now);
        ELSIF NOT EXISTS (SELECT FROM party WHERE id = w.party AND alive_until > clock_timestamp()) THEN
            -- Its process is gone, or as good as gone.
            DELETE FROM lease_waiter WHERE id = first;
        ELSE
            PERFORM lease_answer(w, lease_try(of_key, w, 0, greatest(now - w.arrived_ms, 0), now), now);
        END IF;
        PERFORM lease_refresh_notices(w, now);
    END LOOP;
END $$;

-- Ends a hold that has expired, and grants the key to the next waiter.
CREATE OR REPLACE FUNCTION lease_settle(of_key bigint, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    h lease_hold := lease_lock_hold(of_key, now);
    k lease_key;
    remaining bigint;
BEGIN
    IF h.key_id IS NOT NULL THEN
        SELECT lease_left(h, suspended_from_ms, now) INTO remaining FROM store_state;
        IF remaining > 0 THEN
            RETURN;
        END IF;
        SELECT * INTO k FROM lease_key WHERE id = of_key;
        PERFORM lease_run_out(k, h, remaining, now);
    END IF;
    PERFORM lease_pass_on(of_key, now);
END $$;

-- Makes a request wait.
CREATE OR REPLACE FUNCTION lease_stand_in_line(w lease_waiter, now bigint) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    full_key text;
    new_id bigint;
    in_line jsonb; -- how many stand in line for each key, with this one
BEGIN
    SELECT jsonb_object_agg(k.key, (SELECT count(*) + 1 FROM lease_line l WHERE l.key_id = k.id)) INTO in_line
    FROM lease_found(w.namespace, w.keys) AS k;
    SELECT k.key INTO full_key FROM lease_found(w.namespace, w.keys) AS k
    WHERE (in_line->>k.key)::bigint > limit_in_line()
    ORDER BY k.nth LIMIT 1;
    IF full_key IS NOT NULL THEN
        RETURN lease_error('Full', jsonb_build_object('what', full_key || ': requests in line for this key', 'limit', limit_in_line()));
    END IF;
    INSERT INTO lease_waiter (party, namespace, keys, hash, owner, task, ttl_ms, max_age_ms, priority, yield_within_ms,
        seen_token, arrived_ms, waited_before_ms, until_ms)
    VALUES (w.party, w.namespace, w.keys, w.hash, w.owner, w.task, w.ttl_ms, w.max_age_ms, w.priority, w.yield_within_ms,
        w.seen_token, w.arrived_ms, w.waited_before_ms, w.until_ms)
    RETURNING id INTO new_id;
    INSERT INTO lease_line (key_id, rank, since_ms, waiter, until_ms)
    SELECT DISTINCT k.id, -w.priority, greatest(w.arrived_ms - w.waited_before_ms, 0), new_id, w.until_ms
    FROM lease_found(w.namespace, w.keys) AS k;
    PERFORM lease_refresh_notices(w, now);
    RETURN jsonb_build_object('Waiting', jsonb_build_object('id', new_id, 'due_in_ms', 0, 'in_line', in_line));
END $$;

-- In how many milliseconds something happens that a waiter waits for, if no request comes before.
CREATE OR REPLACE FUNCTION lease_due(w lease_waiter, now bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN least(w.until_ms - now, (
        SELECT min(coalesce(lease_left(h.hold, s.suspended_from_ms, now), 0))
        FROM store_state s, lease_found(w.namespace, w.keys) AS k
        LEFT JOIN LATERAL (SELECT o AS hold FROM lease_hold o WHERE o.key_id = k.id OFFSET 0) AS h ON true));
END $$;
