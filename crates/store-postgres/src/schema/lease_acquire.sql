-- Leases: acquiring and waiting. Each call is one statement of one client: it locks, reads the clock, decides and writes. `lock_ms` is how
-- long it may wait for locks: what is locked for longer is locked by a fence.

-- The first thing in every call.
CREATE OR REPLACE FUNCTION lease_begin(lock_ms bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('lock_timeout', greatest(lock_ms, 1)::text, true);
    PERFORM notice_server();
END $$;

-- Grants one of the keys, or makes the request wait for them. The answer is `Ok`, `Err`, or `Waiting` with the number of the waiter.
CREATE OR REPLACE FUNCTION lease_acquire(
    of_namespace text, of_keys text[], of_hash bytea, hold_age bigint, by_owner text, for_task text,
    with_ttl bigint, with_max_age bigint, wait bigint, waited_before bigint, with_priority smallint,
    yield_within bigint, seen bigint, through_party bigint, lock_ms bigint)
RETURNS jsonb LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint;
    closed bigint;
    ids bigint[];
    k lease_key;
    own text;
    forgets text;
    one text;
    w lease_waiter;
    earlier lease_waiter;
    said jsonb;
    limits record;
    room bigint; -- null: there is no limit, or none of the keys is new
BEGIN
    PERFORM lease_begin(lock_ms);
    SELECT * INTO limits FROM namespace_limits(of_namespace);
    IF limits.keys IS NOT NULL AND EXISTS (SELECT FROM unnest(of_keys) AS a(key)
        WHERE NOT EXISTS (SELECT FROM lease_key l WHERE l.namespace = of_namespace AND l.key = a.key)) THEN
        room := limits.keys - namespace_keys(of_namespace);
    END IF;
    IF room < cardinality(of_keys) THEN
        -- Each is made when its turn comes, as long as there is room.
        NULL;
    ELSIF cardinality(of_keys) = 1 THEN
        -- Made at once, if it is new: of two that want it, one waits here for the other.
        k := lease_lock_key(of_namespace, of_keys[1], true);
    ELSE
        -- Several keys are made in one order, whatever the order of the request, and before any that is there already is locked.
        FOR one IN SELECT DISTINCT a.key COLLATE "C" FROM unnest(of_keys) AS a(key) ORDER BY 1 LOOP
            IF NOT EXISTS (SELECT FROM lease_key l WHERE l.namespace = of_namespace AND l.key = one) THEN
                PERFORM lease_make_key(of_namespace, one);
            END IF;
        END LOOP;
    END IF;
    ids := lease_lock(of_namespace, of_keys);
    now := now_ms();
    closed := namespace_closed_until(of_namespace) - now;
    PERFORM lease_time_outs(id, now) FROM unnest(ids) AS id;
    IF closed > 0 THEN
        PERFORM lease_drop_unused(ids);
        RETURN lease_unavailable(format(
            'after `store advance` nobody is granted anything for another %s ms', closed));
    END IF;
    -- A key whose hold has expired goes to those who wait already, an earlier sending of this request among them; but the rules decide
    -- first on a hold id that comes back to its own key.
    FOREACH one IN ARRAY of_keys LOOP
        SELECT * INTO k FROM lease_key WHERE namespace = of_namespace AND key = one AND id = ANY (ids);
        IF k.id IS NOT NULL AND NOT lease_knows(k.id, of_hash) THEN
            PERFORM lease_settle(k.id, now);
        END IF;
    END LOOP;
    -- The same hold id again gets the lease that it has, or learns how it ended: on whichever key that was. One key after the
    -- other: in a join, every key that there is might be asked whether it knows the hold id. Also a key that is not among those
    -- locked: the same request, sent at the same time, may have made it.
    FOREACH one IN ARRAY of_keys LOOP
        SELECT * INTO k FROM lease_key WHERE namespace = of_namespace AND key = one;
        CONTINUE WHEN k.id IS NULL;
        IF lease_knows(k.id, of_hash) THEN
            own := one;
            EXIT;
        END IF;
        IF forgets IS NULL AND lease_may_have_forgotten(k.forgotten_at_ms, now, hold_age) THEN
            forgets := one;
        END IF;
    END LOOP;
    SELECT * INTO earlier FROM lease_waiter
    WHERE namespace = of_namespace AND hash = of_hash AND answer IS NULL FOR UPDATE;
    IF own IS NULL AND earlier.id IS NULL AND forgets IS NOT NULL THEN
        said := lease_refused(forgets, '{"Ended": {"token": null, "how": null}}');
    ELSIF own IS NULL AND with_ttl > limits.ttl_ms THEN
        said := lease_error('BadInput', jsonb_build_object('field', 'ttl', 'problem', format(
            'is %s ms; the longest in namespace %s is %s ms: renew a shorter one, or ask an operator (`fencehold store limits`)',
            with_ttl, of_namespace, limits.ttl_ms)));
    END IF;
    IF said IS NOT NULL THEN
        PERFORM lease_drop_unused(ids);
        RETURN said;
    END IF;
    IF own IS NOT NULL THEN
        -- What was seen of the first key says nothing of another.
        seen := CASE WHEN own = of_keys[1] THEN seen END;
        of_keys := ARRAY[own];
    END IF;
    IF earlier.id IS NOT NULL THEN
        -- It waits already: the later sending takes the place of the earlier.
        waited_before := greatest(waited_before, least(
            greatest(now - earlier.arrived_ms, 0)::numeric + earlier.waited_before_ms, 9223372036854775807)::bigint);
        -- A waiter was never granted anything, whatever has been forgotten since.
        hold_age := 0;
        PERFORM lease_answer(earlier,
            lease_unavailable('the same request was sent again, and the later one stands in line'), now);
    END IF;
    -- In the order of the columns; it gets its number when it waits.
    w := ROW(NULL, through_party, of_namespace, of_keys, of_hash, by_owner, for_task, with_ttl, with_max_age, with_priority,
        yield_within, seen, now, waited_before, now + wait, NULL);
    FOREACH one IN ARRAY of_keys LOOP
        IF room < cardinality(of_keys) AND NOT EXISTS (SELECT FROM lease_key l WHERE l.namespace = of_namespace AND l.key = one) THEN
            IF room <= 0 THEN
                said := lease_error('Full', jsonb_build_object('limit', limits.keys, 'what', format(
                    'lease keys of namespace %s (use fewer, or wait until free ones are collected; an operator can set --max-keys by `fencehold store limits`)',
                    of_namespace)));
                EXIT;
            END IF;
            room := room - 1;
        END IF;
        k := lease_lock_key(of_namespace, one, true);
        IF NOT k.id = ANY (ids) THEN
            ids := ids || k.id;
        END IF;
        said := lease_try(k.id, w, hold_age, 0, now);
        IF said IS NOT NULL THEN
            PERFORM lease_pass_on(k.id, now);
            EXIT;
        END IF;
    END LOOP;
    IF said IS NULL AND wait = 0 THEN
        said := lease_held(w, now);
    ELSIF said IS NULL THEN
        said := lease_stand_in_line(w, now);
    END IF;
    IF earlier.id IS NOT NULL THEN
        -- Unless the later sending waits now, no waiter asks for what the earlier one asked for.
        PERFORM lease_refresh_notices(earlier, now);
    END IF;
    PERFORM lease_drop_unused(ids);
    PERFORM lease_note_longest(ids);
    RETURN said;
END $$;

-- What has become of a waiter: its answer, which is deleted by this; `Waiting`, with the time until something is due; null: it was removed.
-- Numbers can be guessed: only the hold id proves who waits.
CREATE OR REPLACE FUNCTION lease_look(of_waiter bigint, of_hash bytea, lock_ms bigint) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    w lease_waiter;
    now bigint := now_ms();
    ids bigint[];
    due bigint;
BEGIN
    PERFORM lease_begin(lock_ms);
    SELECT * INTO w FROM lease_waiter WHERE id = of_waiter AND hash = of_hash;
    IF w.id IS NULL THEN
        RETURN NULL;
    END IF;
    IF w.answer IS NULL THEN
        due := lease_due(w, now);
        IF due <= 0 THEN
            ids := lease_lock(w.namespace, w.keys);
            now := now_ms();
            PERFORM lease_time_outs(id, now) FROM unnest(ids) AS id;
            PERFORM lease_settle(id, now) FROM unnest(ids) AS id;
            PERFORM lease_note_longest(ids);
            SELECT * INTO w FROM lease_waiter WHERE id = of_waiter;
            due := lease_due(w, now);
        END IF;
    END IF;
    IF w.answer IS NOT NULL THEN
        DELETE FROM lease_waiter WHERE id = of_waiter;
        RETURN w.answer;
    END IF;
    IF w.id IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN jsonb_build_object('Waiting', jsonb_build_object('id', of_waiter, 'due_in_ms', greatest(due, 0)));
END $$;

-- Removes a waiter whose caller has gone. Gives its answer, if it had one: what was granted is to be released.
CREATE OR REPLACE FUNCTION lease_leave(of_waiter bigint, of_hash bytea, lock_ms bigint) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    w lease_waiter;
BEGIN
    PERFORM lease_begin(lock_ms);
    SELECT * INTO w FROM lease_waiter WHERE id = of_waiter AND hash = of_hash;
    IF w.id IS NULL THEN
        RETURN NULL;
    END IF;
    -- Its keys are not locked: their holder may have a fence on them.
    PERFORM FROM (SELECT found.id FROM lease_found(w.namespace, w.keys) AS found ORDER BY found.id OFFSET 0) AS k
        CROSS JOIN LATERAL (SELECT FROM lease_hold WHERE key_id = k.id FOR UPDATE) AS l;
    DELETE FROM lease_waiter WHERE id = of_waiter RETURNING * INTO w;
    DELETE FROM lease_line WHERE waiter = of_waiter;
    IF w.id IS NOT NULL AND w.answer IS NULL THEN
        PERFORM lease_refresh_notices(w, now_ms());
    END IF;
    RETURN w.answer;
END $$;

-- Frees a key that was granted to a caller that had already gone, unless a later sending of the same request has it by now.
CREATE OR REPLACE FUNCTION lease_abandon(of_namespace text, of_key text, of_hash bytea, lock_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint;
    k lease_key;
    h lease_hold;
    ids bigint[];
BEGIN
    PERFORM lease_begin(lock_ms);
    ids := lease_lock(of_namespace, ARRAY[of_key]);
    now := now_ms();
    SELECT * INTO k FROM lease_key WHERE id = ids[1];
    PERFORM lease_time_outs(k.id, now);
    h := lease_lock_hold(k.id, now);
    IF h.hash = of_hash AND NOT h.taken_up AND lease_left(h, (SELECT suspended_from_ms FROM store_state), now) > 0 THEN
        PERFORM lease_end(k, h, 'abandoned', now, NULL, NULL, now);
    END IF;
    PERFORM lease_pass_on(k.id, now);
    PERFORM lease_note_longest(ids);
END $$;
