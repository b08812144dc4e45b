-- Leases: the calls. Each is one statement of one client: it locks, reads the clock, decides and writes. `lock_ms` is how
-- long it may wait for locks: what is locked for longer is locked by a fence.

CREATE FUNCTION lease_begin(lock_ms bigint) RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT set_config('lock_timeout', greatest(lock_ms, 1)::text, true)
$$;

-- Takes one of the keys, or stands in line for them. The answer is `Ok`, `Err`, or `Waiting` with a number to look after.
CREATE FUNCTION lease_acquire(
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
BEGIN
    PERFORM lease_begin(lock_ms);
    IF cardinality(of_keys) = 1 THEN
        -- Made at once, if it is new: of two that want it, one waits here for the other.
        k := lease_lock_key(of_namespace, of_keys[1], true);
    END IF;
    ids := lease_lock(of_namespace, of_keys);
    now := now_ms();
    SELECT closed_until_ms - now INTO closed FROM store_state;
    PERFORM lease_time_outs(id, now) FROM unnest(ids) AS id;
    IF closed > 0 THEN
        PERFORM lease_drop_unused(ids);
        RETURN lease_unavailable(format(
            'after `store advance` nobody is granted anything for another %s ms', closed));
    END IF;
    -- What has run out goes to those who stand in line already, this one's own earlier sending among them; except that a
    -- hold id that comes back to its own key must be judged by the rules first.
    FOREACH one IN ARRAY of_keys LOOP
        SELECT * INTO k FROM lease_key WHERE namespace = of_namespace AND key = one AND id = ANY (ids);
        IF k.id IS NOT NULL AND NOT lease_knows(k.id, of_hash) THEN
            PERFORM lease_settle(k.id, now);
        END IF;
    END LOOP;
    -- The same hold id again gets the lease that it has, or learns how it ended: on whichever key that was.
    SELECT asked.key INTO own FROM unnest(of_keys) WITH ORDINALITY AS asked (key, nth)
    JOIN lease_key l ON l.namespace = of_namespace AND l.key = asked.key AND lease_knows(l.id, of_hash)
    ORDER BY asked.nth LIMIT 1;
    SELECT * INTO earlier FROM lease_waiter
    WHERE namespace = of_namespace AND hash = of_hash AND answer IS NULL FOR UPDATE;
    IF own IS NULL AND earlier.id IS NULL THEN
        SELECT asked.key INTO forgets FROM unnest(of_keys) WITH ORDINALITY AS asked (key, nth)
        JOIN lease_key l ON l.namespace = of_namespace AND l.key = asked.key
            AND lease_may_have_forgotten(l.forgotten_at_ms, now, hold_age)
        ORDER BY asked.nth LIMIT 1;
        IF forgets IS NOT NULL THEN
            PERFORM lease_drop_unused(ids);
            RETURN lease_refused(forgets, '{"Ended": {"token": null, "how": null}}');
        END IF;
    END IF;
    IF own IS NOT NULL THEN
        -- What was seen of the first key says nothing of another.
        seen := CASE WHEN own = of_keys[1] THEN seen END;
        of_keys := ARRAY[own];
    END IF;
    IF earlier.id IS NOT NULL THEN
        -- It stands in line already: the later sending takes the place of the earlier.
        waited_before := greatest(waited_before, least(
            greatest(now - earlier.arrived_ms, 0)::numeric + earlier.waited_before_ms, 9223372036854775807)::bigint);
        -- Whoever stands in line was never granted anything, whatever has been forgotten since.
        hold_age := 0;
        PERFORM lease_answer(earlier,
            lease_unavailable('the same request was sent again, and the later one stands in line'), now);
    END IF;
    w.party := through_party;
    w.namespace := of_namespace;
    w.keys := of_keys;
    w.hash := of_hash;
    w.owner := by_owner;
    w.task := for_task;
    w.ttl_ms := with_ttl;
    w.max_age_ms := with_max_age;
    w.priority := with_priority;
    w.yield_within_ms := yield_within;
    w.seen_token := seen;
    w.arrived_ms := now;
    w.waited_before_ms := waited_before;
    w.until_ms := now + wait;
    FOREACH one IN ARRAY of_keys LOOP
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
        -- Unless the later sending stands there now, nobody asks for what the earlier one asked for.
        PERFORM lease_refresh_notices(earlier, now);
    END IF;
    PERFORM lease_drop_unused(ids);
    PERFORM lease_note_longest(ids);
    RETURN said;
END
$$;

-- Whether a key's holder has this hold id, or one of the endings that are remembered.
CREATE FUNCTION lease_knows(of_key bigint, of_hash bytea) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (SELECT FROM lease_hold WHERE key_id = of_key AND hash = of_hash)
        OR EXISTS (SELECT FROM lease_ending WHERE key_id = of_key AND hash = of_hash)
$$;

-- A refused asker leaves no record of a key that nobody ever held.
CREATE FUNCTION lease_drop_unused(ids bigint[]) RETURNS void LANGUAGE sql VOLATILE AS $$
    DELETE FROM lease_key k WHERE id = ANY (ids) AND counter = 0 AND forgotten_at_ms IS NULL
        AND NOT EXISTS (SELECT FROM lease_line WHERE key_id = k.id)
$$;

CREATE FUNCTION lease_stand_in_line(w lease_waiter, now bigint) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    full_key text;
    new_id bigint;
BEGIN
    SELECT k.key INTO full_key FROM unnest(w.keys) WITH ORDINALITY AS asked (key, nth)
    JOIN lease_key k ON k.namespace = w.namespace AND k.key = asked.key
    WHERE (SELECT count(*) FROM lease_line l WHERE l.key_id = k.id) >= limit_in_line()
    ORDER BY asked.nth LIMIT 1;
    IF full_key IS NOT NULL THEN
        RETURN jsonb_build_object('Err', jsonb_build_object('Full', jsonb_build_object(
            'what', full_key || ': requests in line for this key', 'limit', limit_in_line())));
    END IF;
    INSERT INTO lease_waiter (party, namespace, keys, hash, owner, task, ttl_ms, max_age_ms, priority, yield_within_ms,
        seen_token, arrived_ms, waited_before_ms, until_ms)
    VALUES (w.party, w.namespace, w.keys, w.hash, w.owner, w.task, w.ttl_ms, w.max_age_ms, w.priority, w.yield_within_ms,
        w.seen_token, w.arrived_ms, w.waited_before_ms, w.until_ms)
    RETURNING id INTO new_id;
    INSERT INTO lease_line (key_id, rank, since_ms, waiter, until_ms)
    SELECT k.id, -w.priority, greatest(w.arrived_ms - w.waited_before_ms, 0), new_id, w.until_ms
    FROM lease_key k WHERE k.namespace = w.namespace AND k.key = ANY (w.keys);
    PERFORM lease_refresh_notices(w, now);
    RETURN jsonb_build_object('Waiting', jsonb_build_object('id', new_id, 'due_in_ms', 0));
END
$$;

-- What has become of one that waits: its answer, which is gone with this; `Waiting`, with the time until something is due;
-- null: it fell out of line.
CREATE FUNCTION lease_look(of_waiter bigint, lock_ms bigint) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    w lease_waiter;
    now bigint := now_ms();
    ids bigint[];
    due bigint;
BEGIN
    PERFORM lease_begin(lock_ms);
    SELECT * INTO w FROM lease_waiter WHERE id = of_waiter;
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
END
$$;

-- In how many milliseconds something happens that a waiter waits for, if nobody does anything.
CREATE FUNCTION lease_due(w lease_waiter, now bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT least(w.until_ms - now, (
        SELECT min(coalesce(lease_left(h, s.suspended_from_ms, now), 0))
        FROM store_state s, lease_key k LEFT JOIN lease_hold h ON h.key_id = k.id
        WHERE k.namespace = w.namespace AND k.key = ANY (w.keys)))
$$;

-- One that waited has gone. Gives its answer, if it had one: what was granted is to be given back.
CREATE FUNCTION lease_leave(of_waiter bigint, lock_ms bigint) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    w lease_waiter;
BEGIN
    PERFORM lease_begin(lock_ms);
    SELECT * INTO w FROM lease_waiter WHERE id = of_waiter;
    -- Its keys are not locked: their holder may have a fence on them.
    PERFORM 1 FROM lease_hold WHERE key_id IN (
        SELECT id FROM lease_key WHERE namespace = w.namespace AND key = ANY (w.keys)) ORDER BY key_id FOR UPDATE;
    DELETE FROM lease_waiter WHERE id = of_waiter RETURNING * INTO w;
    DELETE FROM lease_line WHERE waiter = of_waiter;
    IF w.id IS NOT NULL AND w.answer IS NULL THEN
        PERFORM lease_refresh_notices(w, now_ms());
    END IF;
    RETURN w.answer;
END
$$;

-- Frees a key that was granted to somebody who had already gone.
CREATE FUNCTION lease_abandon(of_namespace text, of_key text, of_hash bytea, lock_ms bigint) RETURNS void
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
    IF h.hash = of_hash AND lease_left(h, (SELECT suspended_from_ms FROM store_state), now) > 0 THEN
        PERFORM lease_end(k, h, 'abandoned', now, NULL, NULL, now);
    END IF;
    PERFORM lease_pass_on(k.id, now);
    PERFORM lease_note_longest(ids);
END
$$;

-- Renews what can be renewed, which is usually everything: only holds are locked and written, never keys, so that a
-- holder's own fence is not in its way. One row for each that was renewed; the others are for `lease_renew_checked`.
CREATE FUNCTION lease_renew(of_namespace text, of_keys text[], of_hashes bytea[], of_tokens bigint[], lock_ms bigint)
RETURNS TABLE (nth bigint, remaining_ms bigint, notice text, yield_in_ms bigint, at_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint;
    suspended bigint;
    ids bigint[];
    nths bigint[];
BEGIN
    PERFORM lease_begin(lock_ms);
    SELECT array_agg(locked.key_id), array_agg(locked.asked_nth) INTO ids, nths FROM (
        SELECT h.key_id, asked.nth AS asked_nth
        FROM unnest(of_keys, of_hashes, of_tokens) WITH ORDINALITY AS asked (key, hash, token, nth)
        JOIN lease_key k ON k.namespace = of_namespace AND k.key = asked.key
        JOIN lease_hold h ON h.key_id = k.id AND h.hash = asked.hash AND h.token = asked.token
        ORDER BY h.key_id FOR UPDATE OF h) AS locked;
    now := now_ms();
    SELECT suspended_from_ms INTO suspended FROM store_state;
    -- A notice whose contender has gone counts for nothing.
    PERFORM lease_refresh_notice(h.key_id, now) FROM lease_hold h
    WHERE h.key_id = ANY (ids) AND h.notice_waiter IS NOT NULL AND NOT EXISTS (
        SELECT FROM lease_line l WHERE l.waiter = h.notice_waiter AND l.key_id = h.key_id AND l.until_ms > now);
    RETURN QUERY
        WITH renewed AS (
            UPDATE lease_hold h
            SET deadline_ms = now + lease_renewed_ms(h, lease_left(h, suspended, now), now),
                lasts_ms = lease_renewed_ms(h, lease_left(h, suspended, now), now)
            WHERE h.key_id = ANY (ids) AND lease_left(h, suspended, now) > 0
            RETURNING h.key_id, h.lasts_ms, lease_notice(h) AS told, lease_yield_in_ms(h, now) AS yield_in)
        SELECT asked.asked_nth, renewed.lasts_ms, renewed.told::text, renewed.yield_in, now
        FROM unnest(ids, nths) AS asked (key_id, asked_nth) JOIN renewed ON renewed.key_id = asked.key_id
        -- And when it was, whatever was renewed.
        UNION ALL SELECT 0, 0, NULL, NULL, now;
END
$$;

-- The same, decided under the locks of the keys, with an answer for each: for those that the other call left.
CREATE FUNCTION lease_renew_checked(
    of_namespace text, of_keys text[], of_hashes bytea[], of_tokens bigint[], lock_ms bigint)
RETURNS jsonb[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint;
    k lease_key;
    h lease_hold;
    ids bigint[];
    refusal jsonb;
    lasts bigint;
    answers jsonb[] := '{}';
BEGIN
    PERFORM lease_begin(lock_ms);
    ids := lease_lock(of_namespace, of_keys);
    now := now_ms();
    PERFORM lease_time_outs(id, now) FROM unnest(ids) AS id;
    FOR nth IN 1..cardinality(of_keys) LOOP
        k := lease_lock_key(of_namespace, of_keys[nth], false);
        h := lease_lock_hold(k.id, now);
        refusal := lease_stale(k, h, of_hashes[nth], of_tokens[nth], 'renew', now);
        IF refusal IS NOT NULL THEN
            answers := answers || jsonb_build_object('Err', refusal);
        ELSE
            PERFORM lease_refresh_notice(k.id, now);
            h := lease_lock_hold(k.id, now);
            lasts := lease_renewed_ms(h, lease_left(h, (SELECT suspended_from_ms FROM store_state), now), now);
            UPDATE lease_hold SET deadline_ms = now + lasts, lasts_ms = lasts WHERE key_id = k.id;
            answers := answers || jsonb_build_object('Ok', jsonb_build_object(
                'token', h.token, 'remaining_ms', lasts, 'notice', lease_notice(h),
                'yield_in_ms', lease_yield_in_ms(h, now)));
        END IF;
        PERFORM lease_pass_on(k.id, now);
    END LOOP;
    PERFORM lease_note_longest(ids);
    RETURN answers;
END
$$;

-- Gives holds back; an answer for each, in order.
CREATE FUNCTION lease_release(of_namespace text, of_keys text[], of_hashes bytea[], of_tokens bigint[], lock_ms bigint)
RETURNS jsonb[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint;
    k lease_key;
    h lease_hold;
    ids bigint[];
    refusal jsonb;
    answers jsonb[] := '{}';
    again boolean;
BEGIN
    PERFORM lease_begin(lock_ms);
    ids := lease_lock(of_namespace, of_keys);
    now := now_ms();
    PERFORM lease_time_outs(id, now) FROM unnest(ids) AS id;
    FOR nth IN 1..cardinality(of_keys) LOOP
        k := lease_lock_key(of_namespace, of_keys[nth], false);
        -- The same request again: the same answer.
        SELECT token = of_tokens[nth] AND how = 'released' INTO again FROM lease_ending
        WHERE key_id = k.id AND hash = of_hashes[nth] ORDER BY token DESC LIMIT 1;
        IF again THEN
            answers := answers || jsonb_build_object('Ok', of_tokens[nth]);
        ELSE
            h := lease_lock_hold(k.id, now);
            refusal := lease_stale(k, h, of_hashes[nth], of_tokens[nth], 'release', now);
            IF refusal IS NOT NULL THEN
                answers := answers || jsonb_build_object('Err', refusal);
            ELSE
                PERFORM lease_end(k, h, 'released', now, NULL, NULL, now);
                answers := answers || jsonb_build_object('Ok', of_tokens[nth]);
            END IF;
        END IF;
        PERFORM lease_pass_on(k.id, now);
    END LOOP;
    PERFORM lease_note_longest(ids);
    RETURN answers;
END
$$;

-- Ends a locked hold by force, and consumes a token so that fences refuse the old holder from now on.
CREATE FUNCTION lease_force(k lease_key, h lease_hold, by_owner text, why text, now bigint) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF h.token + 1 > limit_token() THEN
        RETURN NULL;
    END IF;
    PERFORM lease_end(k, h, 'revoked', now, by_owner, why, now);
    UPDATE lease_key SET counter = h.token + 1 WHERE id = k.id;
    RETURN jsonb_build_object('key', k.key, 'revoked', jsonb_build_object(
        'token', h.token, 'consumed', h.token + 1, 'owner', h.owner, 'task', h.task));
END
$$;

-- Ends the hold on one key by force; if a token is given, only that one.
CREATE FUNCTION lease_revoke(
    of_namespace text, of_key text, only_token bigint, by_owner text, why text, lock_ms bigint)
RETURNS jsonb LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint;
    k lease_key;
    h lease_hold;
    e lease_ending;
    refusal jsonb;
    ended jsonb;
    ids bigint[];
BEGIN
    PERFORM lease_begin(lock_ms);
    ids := lease_lock(of_namespace, ARRAY[of_key]);
    k := lease_lock_key(of_namespace, of_key, false);
    now := now_ms();
    PERFORM lease_time_outs(k.id, now);
    refusal := lease_rewound(k, only_token, now);
    h := lease_lock_hold(k.id, now);
    IF refusal IS NOT NULL THEN
        NULL;
    ELSIF h.key_id IS NULL THEN
        refusal := '"NotHeld"';
    ELSIF only_token <> h.token THEN
        SELECT * INTO e FROM lease_ending WHERE key_id = k.id AND token = only_token;
        refusal := lease_lost(only_token, e, h.token);
    ELSE
        ended := lease_force(k, h, by_owner, why, now);
        IF ended IS NULL THEN
            refusal := '"TokensExhausted"';
        END IF;
    END IF;
    PERFORM lease_pass_on(k.id, now);
    PERFORM lease_note_longest(ids);
    RETURN CASE
        WHEN refusal IS NULL THEN jsonb_build_object('Ok', jsonb_build_array(ended))
        ELSE lease_refused(of_key, refusal)
    END;
END
$$;

-- Ends by force a page of all that serve a task, are an owner's, or are under a prefix. Whoever takes a key of a page before is
-- not struck by the pages after it.
CREATE FUNCTION lease_revoke_many(
    of_namespace text, of_task text, of_owner text, of_prefix text, after_id bigint, most integer,
    by_owner text, why text, lock_ms bigint, OUT ended jsonb, OUT next bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint;
    k lease_key;
    h lease_hold;
    ids bigint[];
    one bigint;
    forced jsonb;
BEGIN
    PERFORM lease_begin(lock_ms);
    ended := '[]';
    SELECT array_agg(id) INTO ids FROM (
        SELECT l.id FROM lease_key l JOIN lease_hold m ON m.key_id = l.id
        WHERE l.namespace = of_namespace AND l.id > after_id AND (m.task = of_task OR m.owner = of_owner
            OR starts_with(l.key, of_prefix))
        ORDER BY l.id LIMIT most FOR UPDATE OF l) AS locked;
    PERFORM 1 FROM lease_hold WHERE key_id = ANY (ids) ORDER BY key_id FOR UPDATE;
    now := now_ms();
    FOREACH one IN ARRAY coalesce(ids, '{}') LOOP
        PERFORM lease_time_outs(one, now);
        SELECT * INTO k FROM lease_key WHERE id = one;
        h := lease_lock_hold(one, now);
        -- Whoever holds it now may be another than the one that was found.
        IF h.task = of_task OR h.owner = of_owner OR (h.key_id IS NOT NULL AND starts_with(k.key, of_prefix)) THEN
            -- None where its tokens are used up; the others are ended all the same.
            forced := lease_force(k, h, by_owner, why, now);
            IF forced IS NOT NULL THEN
                ended := ended || forced;
            END IF;
        END IF;
        PERFORM lease_pass_on(one, now);
    END LOOP;
    PERFORM lease_note_longest(ids);
    next := CASE WHEN cardinality(ids) = most THEN ids[most] END;
END
$$;
