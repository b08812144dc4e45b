-- Leases: the rules. They answer as `fencehold_core::lease::decide` and the engine do, and are held against them by a
-- property test. All of these are for the calls alone, which have locked what is looked at and read the clock.

-- The bounds of `fencehold_core::limits`.
CREATE FUNCTION limit_token() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 9007199254740991 $$;
CREATE FUNCTION limit_endings() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 8 $$;
CREATE FUNCTION limit_in_line() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 16384 $$;
CREATE FUNCTION limit_events() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 16384 $$;
CREATE FUNCTION limit_free_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 7260000 $$;

-- How long a hold is live; 0 or less: over, since when. What was held when the clock was found to have jumped ahead does
-- not run out for one ttl from then on.
CREATE FUNCTION lease_left(h lease_hold, suspended_from bigint, now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT least(
        greatest(
            h.deadline_ms,
            CASE WHEN h.deadline_ms - h.lasts_ms < suspended_from THEN suspended_from + h.ttl_ms ELSE 0 END),
        now + h.ttl_ms) - now
$$;

-- The hold on a key, locked. A deadline further away than its ttl was set before the clock was set back: it is brought
-- back, so that nothing is immortal.
CREATE FUNCTION lease_lock_hold(of_key bigint, now bigint) RETURNS lease_hold LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    h lease_hold;
BEGIN
    SELECT * INTO h FROM lease_hold WHERE key_id = of_key FOR UPDATE;
    IF h.deadline_ms > now + h.ttl_ms THEN
        UPDATE lease_hold
        SET deadline_ms = now + ttl_ms, lasts_ms = ttl_ms, look_at_ms = least(look_at_ms, now + ttl_ms)
        WHERE key_id = of_key RETURNING * INTO h;
    END IF;
    RETURN h;
END
$$;

-- Whether a hold id of this age may have ended on a key and been forgotten.
CREATE FUNCTION lease_may_have_forgotten(forgotten_at bigint, now bigint, hold_age bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT hold_age > 0 AND forgotten_at IS NOT NULL AND forgotten_at >= greatest(greatest(now - hold_age, 0) - 2, 0)
$$;

CREATE FUNCTION lease_refused(of_key text, refusal jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('Err', jsonb_build_object('Refused', jsonb_build_object('key', of_key, 'refusal', refusal)))
$$;

CREATE FUNCTION lease_unavailable(why text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('Err', jsonb_build_object('Unavailable', jsonb_build_object('why', why)))
$$;

-- The refusal of a token that this store never gave, which is an alarm; null: there is none.
CREATE FUNCTION lease_rewound(k lease_key, shown bigint, now bigint) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    newest bigint := greatest(k.counter, floor_of(k.namespace));
BEGIN
    IF shown IS NULL OR shown <= newest THEN
        RETURN NULL;
    END IF;
    PERFORM note(k.namespace, k.key,
        jsonb_build_object('store_rewound', jsonb_build_object('shown_token', shown, 'current_token', newest)), now);
    RETURN jsonb_build_object('StoreRewound', jsonb_build_object('shown', shown, 'current', newest));
END
$$;

-- Ends a hold and remembers how.
CREATE FUNCTION lease_end(k lease_key, h lease_hold, ended_how text, at bigint, ended_by text, ended_why text, now bigint)
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
END
$$;

-- Notes that a hold has run out, and in which of the three ways.
CREATE FUNCTION lease_run_out(k lease_key, h lease_hold, remaining bigint, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ended_at bigint := now + remaining;
    ended_how text := CASE
        WHEN greatest(ended_at - h.since_ms, 0) >= h.max_age_ms THEN 'aged_out'
        WHEN h.notice_yield_at_ms <= ended_at THEN 'yielded'
        ELSE 'expired'
    END;
BEGIN
    -- Whoever had to yield is told for whom, also when the contender has long gone.
    PERFORM lease_end(k, h, ended_how, ended_at, CASE WHEN ended_how = 'yielded' THEN h.notice_contender END, NULL, now);
END
$$;

-- Tries to give a key to somebody: the answer, or null while somebody else holds it.
CREATE FUNCTION lease_try(of_key bigint, w lease_waiter, hold_age bigint, waited bigint, now bigint) RETURNS jsonb
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
            RETURN jsonb_build_object('Ok', jsonb_build_object('key', k.key, 'waited_ms', waited, 'grant',
                jsonb_build_object('token', h.token, 'remaining_ms', remaining, 'resumed', true)));
        END IF;
        IF remaining <= 0 THEN
            -- Noted first, so that the asker's own hold, if it was that one, is found among the ended.
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
END
$$;

-- What somebody is told whose hold is over, as far as its ending is remembered.
CREATE FUNCTION lease_lost(shown bigint, e lease_ending, newest bigint) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('Lost', jsonb_build_object(
        'token', shown, 'how', e.how, 'by', e.ended_by, 'reason', e.reason, 'current', newest))
$$;

-- Why a hold id and a token speak for no live hold; null: they do.
CREATE FUNCTION lease_stale(k lease_key, h lease_hold, shown_hash bytea, shown bigint, attempted text, now bigint)
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
END
$$;

-- In how many milliseconds a hold should be gone, where somebody asks.
CREATE FUNCTION lease_yield_in_ms(h lease_hold, now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN h.notice_contender IS NOT NULL THEN greatest(h.notice_yield_at_ms - now, 0) END
$$;

-- How long a renewal lasts: a ttl, less what `max_age` or a notice takes away; never less than what was acknowledged.
CREATE FUNCTION lease_renewed_ms(h lease_hold, remaining bigint, now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(remaining, least(
        h.ttl_ms,
        CASE WHEN h.max_age_ms IS NOT NULL THEN greatest(h.since_ms + h.max_age_ms - now, 0) END,
        lease_yield_in_ms(h, now)))
$$;

CREATE FUNCTION lease_notice(h lease_hold) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN h.notice_contender IS NOT NULL THEN jsonb_build_object(
        'contender', h.notice_contender, 'task', h.notice_task,
        'priority', h.notice_priority, 'yield_at_ms', h.notice_yield_at_ms) END
$$;

-- Makes the notice on a hold say what the line says: the highest that asks it to yield, or nobody. A hold that somebody
-- else has locked is left: whoever reads a notice looks whether its contender still stands in line.
CREATE FUNCTION lease_refresh_notice(of_key bigint, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
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
    -- One that outranks the notice takes it over with the time that was promised; anybody else starts anew.
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
END
$$;

CREATE FUNCTION lease_refresh_notices(w lease_waiter, now bigint) RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT lease_refresh_notice(k.id, now)
    FROM unnest(w.keys) WITH ORDINALITY AS asked (key, nth)
    JOIN lease_key k ON k.namespace = w.namespace AND k.key = asked.key
    ORDER BY asked.nth
$$;

-- The refusal for somebody who cannot have any of its keys: the one that comes free first.
CREATE FUNCTION lease_held(w lease_waiter, now bigint) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT coalesce((
        SELECT lease_refused(k.key, jsonb_build_object('Held', jsonb_build_object(
            'owner', h.owner, 'task', h.task, 'expires_in_ms', greatest(lease_left(h, s.suspended_from_ms, now), 0),
            'token', h.token)))
        FROM store_state s, unnest(w.keys) WITH ORDINALITY AS asked (key, nth)
        JOIN lease_key k ON k.namespace = w.namespace AND k.key = asked.key
        JOIN lease_hold h ON h.key_id = k.id
        ORDER BY greatest(lease_left(h, s.suspended_from_ms, now), 0), asked.nth LIMIT 1),
        lease_unavailable('the time to wait was up before the key was free'))
$$;

-- Leaves an answer for a waiter, whose row is locked, and takes it out of every line.
CREATE FUNCTION lease_answer(w lease_waiter, said jsonb, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM lease_line WHERE waiter = w.id;
    UPDATE lease_waiter SET answer = said WHERE id = w.id;
    PERFORM tell('w' || w.id);
END
$$;

-- Turns away those in line for a key whose time is up. First of all in every step: whoever is found in line after this
-- may be granted.
CREATE FUNCTION lease_time_outs(of_key bigint, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
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
END
$$;

-- Gives a free key to the first in line who can still take it.
CREATE FUNCTION lease_pass_on(of_key bigint, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
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
        -- It may be granted another key just now: then it is not in this line any more when its row comes free.
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
END
$$;

-- Notes a hold that has run out and passes the key on.
CREATE FUNCTION lease_settle(of_key bigint, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
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
END
$$;

-- The key's row, locked. One of which nothing is kept has no id, unless it is to be made.
CREATE FUNCTION lease_lock_key(of_namespace text, of_key text, make boolean) RETURNS lease_key LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    k lease_key;
BEGIN
    LOOP
        SELECT * INTO k FROM lease_key WHERE namespace = of_namespace AND key = of_key FOR UPDATE;
        EXIT WHEN k.id IS NOT NULL OR NOT make;
        PERFORM make_namespace(of_namespace);
        INSERT INTO lease_key (namespace, key, look_at_ms) VALUES (of_namespace, of_key, now_ms() + limit_free_ms())
        ON CONFLICT DO NOTHING;
    END LOOP;
    IF k.id IS NULL THEN
        k.namespace := of_namespace;
        k.key := of_key;
        k.counter := 0;
    END IF;
    RETURN k;
END
$$;

-- Locks keys that there are, and their holds, in order. Gives their ids.
CREATE FUNCTION lease_lock(of_namespace text, of_keys text[]) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ids bigint[];
BEGIN
    SELECT array_agg(id) INTO ids FROM (
        SELECT id FROM lease_key WHERE namespace = of_namespace AND key = ANY (of_keys) ORDER BY id FOR UPDATE) AS locked;
    PERFORM 1 FROM lease_hold WHERE key_id = ANY (ids) ORDER BY key_id FOR UPDATE;
    RETURN coalesce(ids, '{}');
END
$$;

-- Notes the longest ttl that was granted on these keys. Last of all in every call: the row is everybody's.
CREATE FUNCTION lease_note_longest(ids bigint[]) RETURNS void LANGUAGE sql VOLATILE AS $$
    UPDATE store_state SET longest_ttl_ms = longest
    FROM (SELECT max(ttl_ms) AS longest FROM lease_hold WHERE key_id = ANY (ids)) AS granted
    WHERE longest > longest_ttl_ms
$$;
