-- Leases: renewing, releasing and revoking.

-- Renews what can be renewed, which is usually everything: only holds are locked and written, never keys, so that a
-- holder's own fence is not in its way. One row for each that was renewed; the others are for `lease_renew_checked`.
CREATE OR REPLACE FUNCTION lease_renew(of_namespace text, of_keys text[], of_hashes bytea[], of_tokens bigint[], lock_ms bigint)
RETURNS TABLE (nth bigint, remaining_ms bigint, notice text, yield_in_ms bigint, at_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint;
    suspended bigint;
    ids bigint[];
    nths bigint[];
BEGIN
    PERFORM lease_begin(lock_ms);
    -- One by one, in the order of the keys. Left to choose, the planner compares everything with everything, wherever it believes a
    -- table to be empty because it was so when it was last looked at.
    SELECT array_agg(locked.key_id), array_agg(wanted.nth) INTO ids, nths
    FROM (
        SELECT k.id, asked.hash, asked.token, asked.nth
        FROM unnest(of_keys, of_hashes, of_tokens) WITH ORDINALITY AS asked (key, hash, token, nth)
        CROSS JOIN LATERAL (SELECT o.id FROM lease_key o WHERE o.namespace = of_namespace AND o.key = asked.key OFFSET 0) AS k
        ORDER BY k.id OFFSET 0) AS wanted
    CROSS JOIN LATERAL (
        SELECT h.key_id FROM lease_hold h WHERE h.key_id = wanted.id AND h.hash = wanted.hash AND h.token = wanted.token
        FOR UPDATE) AS locked;
    now := now_ms();
    SELECT suspended_from_ms INTO suspended FROM store_state;
    -- A notice whose contender has gone counts for nothing.
    PERFORM lease_refresh_notice(h.key_id, now) FROM lease_hold h
    WHERE h.key_id = ANY (ids) AND h.notice_waiter IS NOT NULL AND NOT EXISTS (
        SELECT FROM lease_line l WHERE l.waiter = h.notice_waiter AND l.key_id = h.key_id AND l.until_ms > now);
    RETURN QUERY
        WITH found AS MATERIALIZED (
            -- One that is named twice is renewed once, for both.
            SELECT asked.all_nths, o.tid
            FROM (SELECT a.key_id, array_agg(a.nth) AS all_nths FROM unnest(ids, nths) AS a (key_id, nth) GROUP BY a.key_id) AS asked
            CROSS JOIN LATERAL (SELECT h.ctid AS tid FROM lease_hold h WHERE h.key_id = asked.key_id OFFSET 0) AS o
        ), renewed AS (
            UPDATE lease_hold h
            SET deadline_ms = now + lease_renewed_ms(h, lease_left(h, suspended, now), now),
                lasts_ms = lease_renewed_ms(h, lease_left(h, suspended, now), now),
                taken_up = true
            FROM found WHERE h.ctid = found.tid AND lease_left(h, suspended, now) > 0
            RETURNING found.all_nths, h.lasts_ms, lease_notice(h) AS told, lease_yield_in_ms(h, now) AS yield_in)
        SELECT unnest(renewed.all_nths), renewed.lasts_ms, renewed.told::text, renewed.yield_in, now FROM renewed
        -- And when it was, whatever was renewed.
        UNION ALL SELECT 0, 0, NULL, NULL, now;
END $$;

-- Renews or releases holds under the locks of their keys; an answer for each, in order.
CREATE OR REPLACE FUNCTION lease_decide(
    attempted text, of_namespace text, of_keys text[], of_hashes bytea[], of_tokens bigint[], lock_ms bigint)
RETURNS jsonb[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint;
    k lease_key;
    h lease_hold;
    ids bigint[];
    refusal jsonb;
    lasts bigint;
    said jsonb;
    answers jsonb[] := '{}';
BEGIN
    PERFORM lease_begin(lock_ms);
    ids := lease_lock(of_namespace, of_keys);
    now := now_ms();
    PERFORM lease_time_outs(id, now) FROM unnest(ids) AS id;
    FOR nth IN 1..cardinality(of_keys) LOOP
        k := lease_lock_key(of_namespace, of_keys[nth], false);
        h := lease_lock_hold(k.id, now);
        IF attempted = 'release' AND (
            SELECT token = of_tokens[nth] AND (how = 'released' OR how = 'yielded' AND ended_by IS NULL) FROM lease_ending
            WHERE key_id = k.id AND hash = of_hashes[nth] ORDER BY token DESC LIMIT 1) THEN
            -- The same request again: the same answer.
            refusal := NULL;
            said := to_jsonb(of_tokens[nth]);
        ELSE
            refusal := lease_stale(k, h, of_hashes[nth], of_tokens[nth], attempted, now);
            IF refusal IS NULL AND attempted = 'release' THEN
                PERFORM lease_refresh_notice(k.id, now);
                h := lease_lock_hold(k.id, now);
                -- Given back because a contender asked for it: that is no end of its own accord.
                PERFORM lease_end(k, h, CASE WHEN h.notice_contender IS NULL THEN 'released' ELSE 'yielded' END, now, NULL, NULL, now);
                said := to_jsonb(of_tokens[nth]);
            ELSIF refusal IS NULL THEN
                PERFORM lease_refresh_notice(k.id, now);
                h := lease_lock_hold(k.id, now);
                lasts := lease_renewed_ms(h, lease_left(h, (SELECT suspended_from_ms FROM store_state), now), now);
                UPDATE lease_hold SET deadline_ms = now + lasts, lasts_ms = lasts, taken_up = true WHERE key_id = k.id;
                said := jsonb_build_object('token', h.token, 'remaining_ms', lasts, 'notice', lease_notice(h),
                    'yield_in_ms', lease_yield_in_ms(h, now));
            END IF;
        END IF;
        answers := answers || CASE WHEN refusal IS NULL THEN jsonb_build_object('Ok', said) ELSE jsonb_build_object('Err', refusal) END;
        PERFORM lease_pass_on(k.id, now);
    END LOOP;
    PERFORM lease_note_longest(ids);
    RETURN answers;
END $$;

-- The same as `lease_renew`, with an answer for each: for those that the other call left.
CREATE OR REPLACE FUNCTION lease_renew_checked(
    of_namespace text, of_keys text[], of_hashes bytea[], of_tokens bigint[], lock_ms bigint)
RETURNS jsonb[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN lease_decide('renew', of_namespace, of_keys, of_hashes, of_tokens, lock_ms);
END $$;

-- Releases holds; an answer for each, in order.
CREATE OR REPLACE FUNCTION lease_release(of_namespace text, of_keys text[], of_hashes bytea[], of_tokens bigint[], lock_ms bigint)
RETURNS jsonb[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN lease_decide('release', of_namespace, of_keys, of_hashes, of_tokens, lock_ms);
END $$;

-- Ends a locked hold by force, and consumes a token so that fences refuse the old holder from now on.
CREATE OR REPLACE FUNCTION lease_force(k lease_key, h lease_hold, by_owner text, why text, now bigint) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF h.token + 1 > limit_token() THEN
        RETURN NULL;
    END IF;
    PERFORM lease_end(k, h, 'revoked', now, by_owner, why, now);
    UPDATE lease_key SET counter = h.token + 1 WHERE id = k.id;
    RETURN jsonb_build_object('key', k.key, 'revoked', jsonb_build_object(
        'token', h.token, 'consumed', h.token + 1, 'owner', h.owner, 'task', h.task));
END $$;

-- Ends the hold on one key by force; if a token is given, only that one.
CREATE OR REPLACE FUNCTION lease_revoke(
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
END $$;

-- Revokes a page of all holds that serve a task, are of an owner, are under a prefix, or serve a task or one below it. A holder that takes a
-- key of an earlier page is not affected by later pages.
CREATE OR REPLACE FUNCTION lease_revoke_many(
    of_namespace text, of_task text, of_owner text, of_prefix text, after_id bigint, most integer,
    by_owner text, why text, lock_ms bigint, of_task_prefix text DEFAULT NULL, OUT ended jsonb, OUT next bigint)
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
            OR starts_with(l.key, of_prefix) OR task_covers(of_task_prefix, m.task))
        ORDER BY l.id LIMIT most FOR UPDATE OF l) AS locked;
    PERFORM 1 FROM lease_hold WHERE key_id = ANY (ids) ORDER BY key_id FOR UPDATE;
    now := now_ms();
    FOREACH one IN ARRAY coalesce(ids, '{}') LOOP
        PERFORM lease_time_outs(one, now);
        SELECT * INTO k FROM lease_key WHERE id = one;
        h := lease_lock_hold(one, now);
        -- The holder of now may be another than the one that was found.
        IF h.task = of_task OR h.owner = of_owner OR (h.key_id IS NOT NULL AND starts_with(k.key, of_prefix))
            OR task_covers(of_task_prefix, h.task) THEN
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
END $$;
