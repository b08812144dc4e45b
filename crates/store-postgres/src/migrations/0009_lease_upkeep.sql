-- Leases: the sweep; and what is done when the clock has jumped, or when the past may have been lost: `store advance`, and another
-- server that has taken over.

-- Somebody has found that the clock jumped ahead since it said `last_said`, by its own boot clock: what is held now is not taken for
-- over for one ttl from now on. Once: if somebody has said so since, it was the same jump, and nothing changes. Gives the moment.
CREATE FUNCTION lease_suspend(last_said bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint;
BEGIN
    PERFORM 1 FROM store_state FOR UPDATE;
    now := now_ms();
    -- One that lies ahead was noted before the clock was set back.
    UPDATE store_state SET suspended_from_ms = now WHERE suspended_from_ms <= last_said OR suspended_from_ms > now;
    RETURN now;
END
$$;

-- Notes what has run out, removes what nobody needs any more. One at a time, and no more than so many at once: whoever finds
-- another at it leaves it to that one. Gives how much was done.
CREATE FUNCTION lease_sweep(most integer) RETURNS bigint
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
    -- It gives tokens to those in line.
    PERFORM notice_server();
    -- A key that somebody is at, or that has a fence on it, is left for the next time.
    FOR one IN
        SELECT picked.id FROM (
            SELECT l.id FROM (SELECT key_id FROM lease_hold WHERE look_at_ms <= now ORDER BY look_at_ms OFFSET 0) AS due
            CROSS JOIN LATERAL (SELECT id FROM lease_key WHERE id = due.key_id FOR UPDATE SKIP LOCKED) AS l
            LIMIT most) AS picked
        ORDER BY picked.id
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
        SELECT l.id FROM (
            SELECT far.key_id FROM (SELECT key_id, look_at_ms, ttl_ms FROM lease_hold ORDER BY look_at_ms DESC LIMIT most) AS far
            WHERE far.look_at_ms > now_ms() + far.ttl_ms ORDER BY far.key_id OFFSET 0) AS off
        CROSS JOIN LATERAL (SELECT id FROM lease_key WHERE id = off.key_id FOR UPDATE SKIP LOCKED) AS l
    LOOP
        done := done + 1;
        PERFORM lease_lock_hold(one, now);
        UPDATE lease_hold SET look_at_ms = deadline_ms WHERE key_id = one AND look_at_ms > deadline_ms;
    END LOOP;
    now := now_ms();
    FOR k IN
        SELECT * FROM lease_key WHERE look_at_ms <= now ORDER BY look_at_ms LIMIT most FOR UPDATE SKIP LOCKED
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

-- After a restore or a lossy failover: ends every lease of every namespace and lifts every counter and floor. A key is
-- given where one could not be lifted so far: then nothing was changed.
CREATE FUNCTION lease_advance(lift bigint, by_owner text, lock_ms bigint,
    OUT keys bigint, OUT ended bigint, OUT closed_for_ms bigint, OUT exhausted text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint;
    k lease_key;
    h lease_hold;
    w lease_waiter;
    until bigint;
BEGIN
    PERFORM lease_begin(lock_ms);
    LOCK TABLE lease_key, lease_hold, namespace, job_running, job_ready, job_scheduled, job_settled IN EXCLUSIVE MODE;
    now := now_ms();
    SELECT l.key INTO exhausted FROM lease_key l
    WHERE greatest(l.counter, floor_of(l.namespace)) + lift > limit_token() ORDER BY l.id LIMIT 1;
    IF exhausted IS NULL AND (SELECT floor + lift > limit_token() FROM store_state) THEN
        exhausted := '*';
    END IF;
    IF exhausted IS NULL THEN
        exhausted := advance_jobs(lift, by_owner);
    END IF;
    IF exhausted IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT count(*) INTO keys FROM lease_key;
    SELECT count(*) INTO ended FROM lease_hold;
    FOR w IN SELECT * FROM lease_waiter WHERE answer IS NULL ORDER BY id FOR UPDATE LOOP
        PERFORM lease_answer(w, lease_unavailable('every lease was ended by `store advance`'), now);
    END LOOP;
    FOR k IN SELECT * FROM lease_key ORDER BY id LOOP
        SELECT * INTO h FROM lease_hold WHERE key_id = k.id;
        IF h.key_id IS NOT NULL THEN
            PERFORM lease_end(k, h, 'advanced', now, by_owner, NULL, now);
        END IF;
    END LOOP;
    -- What ended in the time that was lost is not in the history: every hold id from before is treated as ended.
    UPDATE lease_key l SET counter = greatest(l.counter, floor_of(l.namespace)) + lift, forgotten_at_ms = now,
        freed_at_ms = coalesce(freed_at_ms, now);
    UPDATE namespace SET floor = floor + lift WHERE floor + lift <= limit_token();
    UPDATE store_state SET closed_until_ms = greatest(closed_until_ms, now + longest_ttl_ms), floor = floor + lift
    RETURNING closed_until_ms INTO until;
    closed_for_ms := until - now;
END
$$;

-- Another server has taken over, and may have lost what the one before had granted last: every token from now on is above
-- anything that can have been. Who holds a lease goes on holding it. Attempts at jobs are ended as `store advance` ends them:
-- somebody else may have had the job in the time that was lost, and what its earlier holder says must not count.
--
-- No table is locked for this, so that no transaction of a user's is waited for, be it under a fence or with a job enqueued in it: every
-- call that gives a token, or moves a job, comes here first (`notice_server`) while the timeline is not noted, and from its row on they
-- go one after the other.
CREATE FUNCTION lease_timeline() RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    lift CONSTANT bigint := 1048576;
    serving bigint := serving_timeline();
    known bigint;
    patience text := current_setting('lock_timeout');
BEGIN
    SELECT timeline INTO known FROM store_state;
    IF known IS NOT DISTINCT FROM serving THEN
        RETURN false;
    END IF;
    -- Whoever is at it and stalls is not waited for without end.
    IF patience = '0' THEN
        PERFORM set_config('lock_timeout', '2s', true);
    END IF;
    SELECT timeline INTO known FROM store_state FOR UPDATE;
    IF known IS NOT DISTINCT FROM serving THEN
        PERFORM set_config('lock_timeout', patience, true);
        RETURN false;
    END IF;
    UPDATE store_state SET timeline = serving;
    IF known IS NULL THEN
        PERFORM set_config('lock_timeout', patience, true);
        RETURN false;
    END IF;
    UPDATE namespace n SET floor = least(limit_token() - 1, lift + greatest(
        n.floor, (SELECT max(counter) FROM lease_key k WHERE k.namespace = n.name)));
    UPDATE store_state SET floor = least(limit_token() - 1, floor + lift);
    IF advance_jobs(lift, 'another server') IS NOT NULL THEN
        RAISE WARNING 'the tokens of jobs are used up: none was lifted after another server took over';
    END IF;
    PERFORM set_config('lock_timeout', patience, true);
    RETURN true;
END
$$;

DO $$
BEGIN
    -- On every new connection, also of those who only look.
    CALL permit('fencehold_reader', 'EXECUTE ON FUNCTION lease_timeline()');
    CALL permit('fencehold_worker', 'EXECUTE ON FUNCTION lease_suspend(bigint), lease_sweep(integer)');
    CALL permit('fencehold_admin', 'EXECUTE ON FUNCTION lease_advance(bigint, text, bigint)');
END
$$;
