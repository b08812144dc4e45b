-- Leases: repairs. What is read of the clock is read behind the lock that it is held against; a grant is given back only while
-- nobody else was told of it; and another server is noticed by every call, not by new connections alone.

-- Somebody besides the first asker knows of it: the same request, sent again, was told that it has the lease, or it was
-- renewed. From then on only its holder gives it back, or its ttl does.
ALTER TABLE lease_hold ADD COLUMN taken_up boolean NOT NULL DEFAULT false;

-- The server's timeline: another one means that another server has taken over.
CREATE FUNCTION serving_timeline() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT ('x' || lpad(left(pg_walfile_name(pg_current_wal_lsn()), 8), 16, '0'))::bit(64)::bigint
$$;

-- Another server has taken over, and may have lost what the one before had granted last: every token from now on is above
-- anything that can have been. Who holds a lease goes on holding it. Attempts at jobs are ended as `store advance` ends them:
-- somebody else may have had the job in the time that was lost, and what its earlier holder says must not count.
CREATE OR REPLACE FUNCTION lease_timeline() RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    lift CONSTANT bigint := 1048576;
    serving bigint := serving_timeline();
    known bigint;
BEGIN
    SELECT timeline INTO known FROM store_state;
    IF known IS NOT DISTINCT FROM serving THEN
        RETURN false;
    END IF;
    LOCK TABLE lease_key, namespace IN EXCLUSIVE MODE;
    SELECT timeline INTO known FROM store_state FOR UPDATE;
    UPDATE store_state SET timeline = serving;
    IF known IS NULL OR known = serving THEN
        RETURN false;
    END IF;
    UPDATE namespace n SET floor = least(limit_token() - 1, lift + greatest(
        n.floor, (SELECT max(counter) FROM lease_key k WHERE k.namespace = n.name)));
    UPDATE store_state SET floor = least(limit_token() - 1, floor + lift);
    IF advance_jobs(lift, 'another server') IS NOT NULL THEN
        RAISE WARNING 'the tokens of jobs are used up: none was lifted after another server took over';
    END IF;
    RETURN true;
END
$$;

-- Notices that another server has taken over, before anything is locked or given. In the calls themselves: behind a pooler
-- connections outlive the server that they lead to.
CREATE FUNCTION notice_server() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF (SELECT timeline FROM store_state) IS DISTINCT FROM serving_timeline() THEN
        PERFORM lease_timeline();
    END IF;
END
$$;

-- The first thing in every call.
CREATE OR REPLACE FUNCTION lease_begin(lock_ms bigint) RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT set_config('lock_timeout', greatest(lock_ms, 1)::text, true);
    SELECT notice_server()
$$;

-- The hold on a key, locked. A deadline further away than its ttl was set before the clock was set back: it is brought
-- back, so that nothing is immortal. The clock is read behind the lock: whoever was waited for may have renewed it since `now`.
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
END
$$;

-- Tries to give a key to somebody: the answer, or null while somebody else holds it.
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

-- Frees a key that was granted to somebody who had already gone, unless a later sending of the same request has it by now.
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
END
$$;

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
                lasts_ms = lease_renewed_ms(h, lease_left(h, suspended, now), now),
                taken_up = true
            WHERE h.key_id = ANY (ids) AND lease_left(h, suspended, now) > 0
            RETURNING h.key_id, h.lasts_ms, lease_notice(h) AS told, lease_yield_in_ms(h, now) AS yield_in)
        SELECT asked.asked_nth, renewed.lasts_ms, renewed.told::text, renewed.yield_in, now
        FROM unnest(ids, nths) AS asked (key_id, asked_nth) JOIN renewed ON renewed.key_id = asked.key_id
        -- And when it was, whatever was renewed.
        UNION ALL SELECT 0, 0, NULL, NULL, now;
END
$$;

-- The same, decided under the locks of the keys, with an answer for each: for those that the other call left.
CREATE OR REPLACE FUNCTION lease_renew_checked(
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
            UPDATE lease_hold SET deadline_ms = now + lasts, lasts_ms = lasts, taken_up = true WHERE key_id = k.id;
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

-- Notes what has run out, removes what nobody needs any more. One at a time, and no more than so many at once: whoever finds
-- another at it leaves it to that one. Gives how much was done.
CREATE OR REPLACE FUNCTION lease_sweep(most integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint := now_ms();
    done bigint := 0;
    k lease_key;
    h lease_hold;
    w lease_waiter;
    one bigint;
    ids bigint[];
    newest bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(1179142480, hashtext(current_schema())) THEN
        RETURN 0;
    END IF;
    -- A key that somebody is at, or that has a fence on it, is left for the next time.
    FOR one IN
        SELECT l.id FROM lease_hold m JOIN lease_key l ON l.id = m.key_id
        WHERE m.look_at_ms <= now ORDER BY l.id LIMIT most FOR UPDATE OF l SKIP LOCKED
    LOOP
        done := done + 1;
        ids := ids || one;
        -- Of this key: the one before may have been waited for.
        now := now_ms();
        PERFORM lease_time_outs(one, now);
        PERFORM lease_settle(one, now);
        -- Renewed since: only now does the sweep learn.
        UPDATE lease_hold SET look_at_ms = greatest(deadline_ms, now + 1) WHERE key_id = one AND look_at_ms <= now;
    END LOOP;
    -- A clock that was set back leaves looks that are further away than any deadline can be. The furthest come first, so these
    -- few are enough to find them.
    FOR one IN
        SELECT l.id FROM lease_hold m JOIN lease_key l ON l.id = m.key_id
        WHERE m.key_id IN (
            SELECT far.key_id FROM (
                SELECT key_id, look_at_ms, ttl_ms FROM lease_hold ORDER BY look_at_ms DESC LIMIT most) AS far
            WHERE far.look_at_ms > now_ms() + far.ttl_ms)
        ORDER BY l.id FOR UPDATE OF l SKIP LOCKED
    LOOP
        done := done + 1;
        PERFORM lease_lock_hold(one, now);
        UPDATE lease_hold SET look_at_ms = deadline_ms WHERE key_id = one AND look_at_ms > deadline_ms;
    END LOOP;
    now := now_ms();
    FOR k IN
        SELECT * FROM lease_key WHERE look_at_ms <= now ORDER BY id LIMIT most FOR UPDATE SKIP LOCKED
    LOOP
        done := done + 1;
        IF k.freed_at_ms + limit_free_ms() <= now AND NOT EXISTS (SELECT FROM lease_hold WHERE key_id = k.id)
            AND NOT EXISTS (SELECT FROM lease_line WHERE key_id = k.id)
        THEN
            -- The floor rises in the step that deletes.
            UPDATE namespace SET floor = k.counter WHERE name = k.namespace AND floor < k.counter;
            DELETE FROM lease_ending WHERE key_id = k.id;
            DELETE FROM lease_key WHERE id = k.id;
            PERFORM note(k.namespace, k.key,
                jsonb_build_object('key_collected', jsonb_build_object('token', k.counter)), now);
        ELSE
            UPDATE lease_key SET look_at_ms = greatest(coalesce(freed_at_ms, now) + limit_free_ms(), now + 1) WHERE id = k.id;
        END IF;
    END LOOP;
    -- Those whose process has gone.
    FOR w IN
        SELECT * FROM lease_waiter WHERE NOT EXISTS (
            SELECT FROM party p WHERE p.id = lease_waiter.party AND p.alive_until > clock_timestamp())
        ORDER BY id LIMIT most FOR UPDATE SKIP LOCKED
    LOOP
        done := done + 1;
        DELETE FROM lease_line WHERE waiter = w.id;
        DELETE FROM lease_waiter WHERE id = w.id;
        PERFORM lease_refresh_notices(w, now);
    END LOOP;
    DELETE FROM party WHERE alive_until < clock_timestamp() - interval '1 minute';
    SELECT max(seq) INTO newest FROM event;
    -- In larger steps than every time, for the row is everybody's.
    IF newest - limit_events() > (SELECT events_removed_to + 1000 FROM store_state) THEN
        DELETE FROM event WHERE seq <= newest - limit_events();
        UPDATE store_state SET events_removed_to = newest - limit_events();
    END IF;
    PERFORM lease_note_longest(ids);
    RETURN done;
END
$$;

-- Checks a token against the mark of a resource, and raises it; until the transaction ends, nobody can raise it further. Of one
-- holder's transactions many can pass at once. It is raised before it is shared: two that shared it and then wanted to raise it
-- would wait for each other.
CREATE OR REPLACE FUNCTION guard(resource text, token bigint, namespace text DEFAULT 'default') RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    newest bigint;
BEGIN
    PERFORM fence_idle_limit();
    SELECT m.token INTO newest FROM fence_mark m
    WHERE m.namespace = guard.namespace AND m.resource = guard.resource;
    IF newest IS NULL OR newest < guard.token THEN
        PERFORM raise(guard.resource, guard.token, guard.namespace);
    END IF;
    SELECT m.token INTO newest FROM fence_mark m
    WHERE m.namespace = guard.namespace AND m.resource = guard.resource FOR SHARE;
    IF newest > guard.token THEN
        PERFORM fence_stale(guard.resource, guard.token, newest);
    END IF;
END
$$;

DO $$
BEGIN
    -- On every new connection, also of those who only look.
    CALL permit('fencehold_reader', 'EXECUTE ON FUNCTION lease_timeline()');
END
$$;
