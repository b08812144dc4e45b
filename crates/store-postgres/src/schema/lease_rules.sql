-- Leases: the rules. They answer as `fencehold_core::lease::decide` and the engine do; a property test compares them. They are called by
-- functions that have locked the rows and read the clock.

-- How long a hold is live; 0 or less: it is over, since when. What was held when the clock was found to have jumped ahead does not expire
-- for one ttl from then on.
CREATE OR REPLACE FUNCTION lease_left(h lease_hold, suspended_from bigint, now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT least(
        greatest(
            h.deadline_ms,
            CASE WHEN h.deadline_ms - h.lasts_ms < suspended_from THEN suspended_from + h.ttl_ms ELSE 0 END),
        now + h.ttl_ms) - now
$$;

-- The hold on a key, locked. A deadline further away than its ttl was set before the clock was set back: it is brought back, so that every
-- hold expires. The clock is read after the lock was taken: the transaction that had it may have renewed the hold since `now`.
CREATE OR REPLACE FUNCTION lease_lock_hold(of_key bigint, now bigint) RETURNS lease_hold LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    h lease_hold;
    behind bigint;
BEGIN
    SELECT * INTO h FROM lease_hold WHERE key_id = of_key FOR UPDATE;
    behind := now_ms();
    IF h.deadline_ms > behind + h.ttl_ms THEN
        UPDATE lease_hold
        SET deadline_ms = behind + ttl_ms, lasts_ms = ttl_ms, look_at_ms = least(look_at_ms, behind + ttl_ms)
        WHERE key_id = of_key RETURNING * INTO h;
    END IF;
    RETURN h;
END $$;

-- Whether a hold id of this age may have ended on a key and been forgotten.
CREATE OR REPLACE FUNCTION lease_may_have_forgotten(forgotten_at bigint, now bigint, hold_age bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT hold_age > 0 AND forgotten_at IS NOT NULL AND forgotten_at >= greatest(greatest(now - hold_age, 0) - 2, 0)
$$;

CREATE OR REPLACE FUNCTION lease_error(kind text, about jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('Err', jsonb_build_object(kind, about))
$$;

CREATE OR REPLACE FUNCTION lease_refused(of_key text, refusal jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT lease_error('Refused', jsonb_build_object('key', of_key, 'refusal', refusal))
$$;

CREATE OR REPLACE FUNCTION lease_unavailable(why text) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT lease_error('Unavailable', jsonb_build_object('why', why))
$$;

-- The refusal of a token that this store never gave, which is an alarm; null: there is none.
CREATE OR REPLACE FUNCTION lease_rewound(k lease_key, shown bigint, now bigint) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    newest bigint := greatest(k.counter, floor_of(k.namespace));
BEGIN
    IF shown IS NULL OR shown <= newest THEN
        RETURN NULL;
    END IF;
    PERFORM note(k.namespace, k.key,
        jsonb_build_object('store_rewound', jsonb_build_object('shown_token', shown, 'current_token', newest)), now);
    RETURN jsonb_build_object('StoreRewound', jsonb_build_object('shown', shown, 'current', newest));
END $$;

-- Ends a hold and remembers how.
CREATE OR REPLACE FUNCTION lease_end(k lease_key, h lease_hold, ended_how text, at bigint, ended_by text, ended_why text, now bigint)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    forgotten bigint;
BEGIN
    DELETE FROM lease_hold WHERE key_id = k.id;
    INSERT INTO lease_ending VALUES (k.id, h.token, h.hash, h.owner, h.task, ended_how, at, ended_by, ended_why);
    WITH old AS (
        DELETE FROM lease_ending WHERE key_id = k.id AND token <= (
            SELECT token FROM lease_ending WHERE key_id = k.id ORDER BY token DESC OFFSET limit_endings() LIMIT 1)
        RETURNING at_ms)
    SELECT max(at_ms) INTO forgotten FROM old;
    UPDATE lease_key SET freed_at_ms = now, forgotten_at_ms = greatest(forgotten_at_ms, forgotten) WHERE id = k.id;
    PERFORM note(k.namespace, k.key, jsonb_build_object('lease_ended', jsonb_build_object(
        'token', h.token, 'owner', h.owner, 'task', h.task, 'how', ended_how, 'by', ended_by, 'reason', ended_why)), now);
END $$;

-- Ends a hold that has expired, and notes in which of the three ways.
CREATE OR REPLACE FUNCTION lease_run_out(k lease_key, h lease_hold, remaining bigint, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ended_at bigint := now + remaining;
    ended_how text := CASE
        WHEN greatest(ended_at - h.since_ms, 0) >= h.max_age_ms THEN 'aged_out'
        WHEN h.notice_yield_at_ms <= ended_at THEN 'yielded'
        ELSE 'expired'
    END;
BEGIN
    -- The holder that had to yield learns for whom, also when the contender is long gone.
    PERFORM lease_end(k, h, ended_how, ended_at, CASE WHEN ended_how = 'yielded' THEN h.notice_contender END, NULL, now);
END $$;

-- Tries to grant a key to a request: the answer, or null while another holder has it.
CREATE OR REPLACE FUNCTION lease_try(of_key bigint, w lease_waiter, hold_age bigint, waited bigint, now bigint) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    k lease_key;
    h lease_hold;
    e lease_ending;
    remaining bigint;
    refusal jsonb;
    given bigint;
    lasts bigint := least(w.ttl_ms, w.max_age_ms);
BEGIN
    SELECT * INTO k FROM lease_key WHERE id = of_key;
    IF w.keys[1] = k.key THEN
        refusal := lease_rewound(k, w.seen_token, now);
        IF refusal IS NOT NULL THEN
            RETURN lease_refused(k.key, refusal);
        END IF;
    END IF;
    h := lease_lock_hold(k.id, now);
    IF h.key_id IS NOT NULL THEN
        SELECT lease_left(h, suspended_from_ms, now) INTO remaining FROM store_state;
        IF remaining > 0 AND h.hash = w.hash THEN
            UPDATE lease_hold SET taken_up = true WHERE key_id = k.id AND NOT taken_up;
            RETURN jsonb_build_object('Ok', jsonb_build_object('key', k.key, 'waited_ms', waited, 'grant',
                jsonb_build_object('token', h.token, 'remaining_ms', remaining, 'resumed', true)));
        END IF;
        IF remaining <= 0 THEN
            -- Noted first, so that the caller's own hold, if it was that one, is found among the ended.
            PERFORM lease_run_out(k, h, remaining, now);
            SELECT * INTO k FROM lease_key WHERE id = of_key;
        END IF;
    END IF;
    SELECT * INTO e FROM lease_ending WHERE key_id = k.id AND hash = w.hash ORDER BY token DESC LIMIT 1;
    IF e.key_id IS NOT NULL THEN
        RETURN lease_refused(k.key, jsonb_build_object('Ended', jsonb_build_object('token', e.token, 'how', e.how)));
    END IF;
    IF lease_may_have_forgotten(k.forgotten_at_ms, now, hold_age) THEN
        RETURN lease_refused(k.key, jsonb_build_object('Ended', jsonb_build_object('token', NULL, 'how', NULL)));
    END IF;
    IF remaining > 0 THEN
        RETURN NULL;
    END IF;
    given := greatest(k.counter, floor_of(k.namespace)) + 1;
    -- The last token below the cap is left for a revocation, so that even the last holder can be fenced out.
    IF given >= limit_token() THEN
        RETURN lease_refused(k.key, '"TokensExhausted"');
    END IF;
    UPDATE lease_key SET counter = given, freed_at_ms = NULL WHERE id = k.id;
    INSERT INTO lease_hold (key_id, token, hash, owner, task, ttl_ms, max_age_ms, since_ms, priority,
        deadline_ms, lasts_ms, look_at_ms)
    VALUES (k.id, given, w.hash, w.owner, w.task, w.ttl_ms, w.max_age_ms, now, w.priority,
        now + lasts, lasts, now + lasts);
    PERFORM note(k.namespace, k.key, jsonb_build_object('lease_acquired', jsonb_build_object(
        'token', given, 'owner', w.owner, 'task', w.task, 'ttl_ms', w.ttl_ms)), now);
    RETURN jsonb_build_object('Ok', jsonb_build_object('key', k.key, 'waited_ms', waited, 'grant',
        jsonb_build_object('token', given, 'remaining_ms', lasts, 'resumed', false)));
END $$;

-- The answer to a holder whose hold is over, as far as its ending is remembered.
CREATE OR REPLACE FUNCTION lease_lost(shown bigint, e lease_ending, newest bigint) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('Lost', jsonb_build_object(
        'token', shown, 'how', e.how, 'by', e.ended_by, 'reason', e.reason, 'current', newest))
$$;

-- Why a hold id and a token are of no live hold; null: they are of one.
CREATE OR REPLACE FUNCTION lease_stale(k lease_key, h lease_hold, shown_hash bytea, shown bigint, attempted text, now bigint)
RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    refusal jsonb := lease_rewound(k, shown, now);
    e lease_ending;
    remaining bigint;
    newest bigint := greatest(k.counter, shown);
BEGIN
    IF refusal IS NOT NULL THEN
        RETURN refusal;
    END IF;
    IF h.hash = shown_hash AND h.token = shown THEN
        SELECT lease_left(h, suspended_from_ms, now) INTO remaining FROM store_state;
        IF remaining > 0 THEN
            RETURN NULL;
        END IF;
        PERFORM lease_run_out(k, h, remaining, now);
    END IF;
    SELECT * INTO e FROM lease_ending WHERE key_id = k.id AND hash = shown_hash ORDER BY token DESC LIMIT 1;
    IF e.token IS DISTINCT FROM shown THEN
        e := NULL;
        -- Any other token than the newest is of an earlier hold, also where the key was collected since.
        IF shown = k.counter THEN
            RETURN jsonb_build_object('WrongHold', jsonb_build_object('token', shown));
        END IF;
    END IF;
    PERFORM note(k.namespace, k.key, jsonb_build_object('stale_write_blocked', jsonb_build_object(
        'stale_token', shown, 'current_token', newest, 'attempted', attempted, 'how', e.how)), now);
    RETURN lease_lost(shown, e, newest);
END $$;

-- In how many milliseconds a hold should end, where a waiter asks it to yield.
CREATE OR REPLACE FUNCTION lease_yield_in_ms(h lease_hold, now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN h.notice_contender IS NOT NULL THEN greatest(h.notice_yield_at_ms - now, 0) END
$$;

-- How long a renewal lasts: a ttl, less what `max_age` or a notice takes away; never less than what was acknowledged.
CREATE OR REPLACE FUNCTION lease_renewed_ms(h lease_hold, remaining bigint, now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(remaining, least(
        h.ttl_ms,
        CASE WHEN h.max_age_ms IS NOT NULL THEN greatest(h.since_ms + h.max_age_ms - now, 0) END,
        lease_yield_in_ms(h, now)))
$$;

CREATE OR REPLACE FUNCTION lease_notice(h lease_hold) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN h.notice_contender IS NOT NULL THEN jsonb_build_object(
        'contender', h.notice_contender, 'task', h.notice_task,
        'priority', h.notice_priority, 'yield_at_ms', h.notice_yield_at_ms) END
$$;

-- Whether a key's holder has this hold id, or one of the endings that are remembered.
CREATE OR REPLACE FUNCTION lease_knows(of_key bigint, of_hash bytea) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM lease_hold WHERE key_id = of_key AND hash = of_hash)
        OR EXISTS (SELECT FROM lease_ending WHERE key_id = of_key AND hash = of_hash);
END $$;

CREATE OR REPLACE FUNCTION lease_make_key(of_namespace text, of_key text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM make_namespace(of_namespace);
    INSERT INTO lease_key (namespace, key, look_at_ms) VALUES (of_namespace, of_key, now_ms() + limit_free_ms()) ON CONFLICT DO NOTHING;
END $$;

-- The key's row, locked. One of which nothing is kept has no id, unless it is to be made.
CREATE OR REPLACE FUNCTION lease_lock_key(of_namespace text, of_key text, make boolean) RETURNS lease_key LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    k lease_key;
BEGIN
    LOOP
        SELECT * INTO k FROM lease_key WHERE namespace = of_namespace AND key = of_key FOR UPDATE;
        EXIT WHEN k.id IS NOT NULL OR NOT make;
        PERFORM lease_make_key(of_namespace, of_key);
    END LOOP;
    IF k.id IS NULL THEN
        k.namespace := of_namespace;
        k.key := of_key;
        k.counter := 0;
    END IF;
    RETURN k;
END $$;

-- Which of these keys there are, and at which place of the list. Each is found by its name, whatever the planner believes of the table:
-- joined to it, or asked for in the order of their ids, they might be picked out of all that there are.
CREATE OR REPLACE FUNCTION lease_found(of_namespace text, of_keys text[]) RETURNS TABLE (id bigint, key text, nth bigint) LANGUAGE sql STABLE AS $$
    SELECT k.id, asked.key, asked.nth FROM unnest(of_keys) WITH ORDINALITY AS asked (key, nth)
    CROSS JOIN LATERAL (SELECT o.id FROM lease_key o WHERE o.namespace = of_namespace AND o.key = asked.key OFFSET 0) AS k
$$;

-- Locks keys that there are, and their holds, in order. Gives their ids.
CREATE OR REPLACE FUNCTION lease_lock(of_namespace text, of_keys text[]) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ids bigint[];
BEGIN
    SELECT array_agg(l.id) INTO ids
    FROM (SELECT DISTINCT found.id FROM lease_found(of_namespace, of_keys) AS found ORDER BY found.id OFFSET 0) AS k
    CROSS JOIN LATERAL (SELECT o.id FROM lease_key o WHERE o.id = k.id FOR UPDATE) AS l;
    PERFORM FROM unnest(ids) AS k (id) CROSS JOIN LATERAL (SELECT FROM lease_hold WHERE key_id = k.id FOR UPDATE) AS l;
    RETURN coalesce(ids, '{}');
END $$;

-- Notes the longest ttl that was granted on these keys. Called last.
CREATE OR REPLACE FUNCTION lease_note_longest(ids bigint[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM namespace_note_ttl(g.namespace, g.longest) FROM (
        SELECT k.namespace, max(h.ttl_ms) AS longest FROM unnest(ids) AS n(id)
        CROSS JOIN LATERAL (SELECT o.ttl_ms FROM lease_hold o WHERE o.key_id = n.id OFFSET 0) AS h
        CROSS JOIN LATERAL (SELECT o.namespace FROM lease_key o WHERE o.id = n.id OFFSET 0) AS k
        GROUP BY k.namespace) AS g;
END $$;

-- Deletes keys that were made for a request that was refused, and never held.
CREATE OR REPLACE FUNCTION lease_drop_unused(ids bigint[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM lease_key k WHERE id = ANY (ids) AND counter = 0 AND forgotten_at_ms IS NULL
        AND NOT EXISTS (SELECT FROM lease_line WHERE key_id = k.id);
END $$;
