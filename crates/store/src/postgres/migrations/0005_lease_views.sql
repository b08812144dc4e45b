-- Leases: looking around, events, `advance`, and the sweep.

-- What people may see of a key: everything but the proof of a hold.
CREATE FUNCTION lease_view(k lease_key, now bigint) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'key', k.key,
        'token', k.counter,
        'waiters', (SELECT count(*) FROM lease_line l WHERE l.key_id = k.id AND l.until_ms > now),
        'endings', coalesce((
            SELECT jsonb_agg(jsonb_build_object('token', e.token, 'owner', e.owner, 'task', e.task, 'how', e.how,
                'at_wall_ms', e.at_ms, 'by', e.ended_by, 'reason', e.reason) ORDER BY e.token)
            FROM lease_ending e WHERE e.key_id = k.id), '[]'),
        'holder', (
            SELECT jsonb_build_object(
                'owner', h.owner, 'task', h.task, 'ttl_ms', h.ttl_ms, 'max_age_ms', h.max_age_ms, 'priority', h.priority,
                'age_ms', greatest(now - h.since_ms, 0), 'since_wall_ms', h.since_ms,
                'remaining_ms', lease_left(h, s.suspended_from_ms, now),
                'renewed_ms_ago', greatest(now - (h.deadline_ms - h.lasts_ms), 0),
                'notice', CASE WHEN asked.still THEN lease_notice(h) END,
                'yield_in_ms', CASE WHEN asked.still THEN lease_yield_in_ms(h, now) END)
            FROM store_state s, lease_hold h
            -- A notice whose contender has gone counts for nothing.
            LEFT JOIN LATERAL (SELECT true AS still FROM lease_line l
                WHERE l.waiter = h.notice_waiter AND l.key_id = h.key_id AND l.until_ms > now) AS asked ON true
            WHERE h.key_id = k.id AND lease_left(h, s.suspended_from_ms, now) > 0))
$$;

CREATE FUNCTION lease_get(of_namespace text, of_key text) RETURNS jsonb
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT lease_view(k, now_ms()) FROM lease_key k WHERE k.namespace = of_namespace AND k.key = of_key
$$;

-- A page of keys, by the order in which they were made. `looks` bounds how many are looked at.
CREATE FUNCTION lease_list(
    of_namespace text, of_prefix text, of_owner text, of_task text, free_too boolean, after_id bigint, most integer,
    looks integer, OUT leases jsonb, OUT next bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint := now_ms();
    suspended bigint := (SELECT suspended_from_ms FROM store_state);
    ids bigint[];
    seen bigint[];
BEGIN
    SELECT array_agg(looked.id) INTO seen FROM (
        SELECT k.id FROM lease_key k
        WHERE k.namespace = of_namespace AND k.id > after_id
            AND (free_too OR EXISTS (SELECT FROM lease_hold h WHERE h.key_id = k.id))
        ORDER BY k.id LIMIT looks) AS looked;
    SELECT array_agg(found.id) INTO ids FROM (
        SELECT k.id FROM lease_key k
        LEFT JOIN lease_hold h ON h.key_id = k.id AND lease_left(h, suspended, now) > 0
        WHERE k.id = ANY (seen) AND (free_too OR h.key_id IS NOT NULL)
            AND (of_owner IS NULL OR h.owner = of_owner)
            AND (of_task IS NULL OR h.task = of_task)
            AND (of_prefix IS NULL OR starts_with(k.key, of_prefix))
        ORDER BY k.id LIMIT most + 1) AS found;
    SELECT coalesce(jsonb_agg(lease_view(k, now) ORDER BY k.id), '[]') INTO leases
    FROM lease_key k WHERE k.id = ANY (ids[:most]);
    next := CASE
        WHEN cardinality(ids) > most THEN ids[most]
        WHEN cardinality(seen) = looks THEN seen[looks]
    END;
END
$$;

-- How much there is, of every namespace.
CREATE FUNCTION lease_status() RETURNS TABLE (keys bigint, held bigint, waiters bigint, last_event bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT (SELECT count(*) FROM lease_key),
        (SELECT count(*) FROM lease_hold),
        (SELECT count(*) FROM lease_waiter WHERE answer IS NULL AND until_ms > now_ms()),
        coalesce((SELECT max(seq) FROM event), 0)
$$;

-- Events after a cursor, up to the first number that is missing and may still come. What is up to `settled` is known not
-- to come any more. `newest` and `assigned_to` are of one moment: once every transaction up to `assigned_to` has ended, so that
-- `running_from` is not below it, all up to `newest` is settled.
CREATE FUNCTION events_read(of_namespace text, after_seq bigint, of_prefix text, most integer, settled bigint,
    OUT events jsonb, OUT next bigint, OUT oldest bigint, OUT newest bigint,
    OUT assigned_to bigint, OUT running_from bigint, OUT complete boolean, OUT at_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    safe bigint;
    start bigint;
BEGIN
    at_ms := now_ms();
    SELECT coalesce(max(seq), 0), pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    INTO newest, assigned_to, running_from FROM event;
    SELECT greatest(events_removed_to, newest - limit_events()) + 1 INTO oldest FROM store_state;
    after_seq := coalesce(after_seq, oldest - 1);
    start := greatest(after_seq, settled);
    SELECT previous INTO safe FROM (
        SELECT seq, lag(seq, 1, start) OVER (ORDER BY seq) AS previous FROM event WHERE seq > start AND seq <= newest) AS numbered
    WHERE seq <> previous + 1 ORDER BY seq LIMIT 1;
    complete := safe IS NULL;
    safe := coalesce(safe, newest);
    SELECT coalesce(jsonb_agg(jsonb_build_object('seq', seq, 'at_wall_ms', e.at_ms, 'namespace', namespace,
        'key', key, 'fact', fact) ORDER BY seq), '[]'), max(seq)
    INTO events, next FROM (
        SELECT * FROM event
        WHERE seq > after_seq AND seq <= safe AND namespace = of_namespace
            AND (of_prefix IS NULL OR starts_with(key, of_prefix))
        ORDER BY seq LIMIT most) AS e;
    IF jsonb_array_length(events) < most THEN
        next := greatest(safe, after_seq);
    END IF;
END
$$;

-- What else `advance` lifts: jobs put their part here.
CREATE FUNCTION advance_jobs(lift bigint, by_owner text) RETURNS text LANGUAGE sql VOLATILE AS $$ SELECT NULL::text $$;

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
    LOCK TABLE lease_key, lease_hold, namespace IN EXCLUSIVE MODE;
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

-- Somebody has found that the clock jumped ahead, by its own boot clock: what is held now is not taken for over for one ttl
-- from now on. Once: whoever finds the same jump later changes nothing.
CREATE FUNCTION lease_suspend() RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint;
BEGIN
    PERFORM 1 FROM store_state FOR UPDATE;
    now := now_ms();
    UPDATE store_state SET suspended_from_ms = now
    WHERE suspended_from_ms + longest_ttl_ms <= now OR suspended_from_ms > now;
END
$$;

-- Another server has taken over, and may have lost what the one before had granted last: every token from now on is above
-- anything that can have been.
CREATE FUNCTION lease_timeline() RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    serving bigint := ('x' || lpad(left(pg_walfile_name(pg_current_wal_lsn()), 8), 16, '0'))::bit(64)::bigint;
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
    UPDATE namespace n SET floor = least(limit_token() - 1, 1048576 + greatest(
        n.floor, (SELECT max(counter) FROM lease_key k WHERE k.namespace = n.name)));
    RETURN true;
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
    -- A key that somebody is at, or that has a fence on it, is left for the next time.
    FOR one IN
        SELECT l.id FROM lease_hold m JOIN lease_key l ON l.id = m.key_id
        WHERE m.look_at_ms <= now ORDER BY l.id LIMIT most FOR UPDATE OF l SKIP LOCKED
    LOOP
        done := done + 1;
        ids := ids || one;
        PERFORM lease_time_outs(one, now);
        PERFORM lease_settle(one, now);
        -- Renewed since: only now does the sweep learn.
        UPDATE lease_hold SET look_at_ms = greatest(deadline_ms, now + 1) WHERE key_id = one AND look_at_ms <= now;
    END LOOP;
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

DO $$
BEGIN
    CALL permit('fencehold_reader', 'EXECUTE ON FUNCTION lease_get(text, text), lease_status(), '
        'lease_list(text, text, text, text, boolean, bigint, integer, integer), '
        'events_read(text, bigint, text, integer, bigint)');
    CALL permit('fencehold_worker', 'EXECUTE ON FUNCTION '
        'lease_acquire(text, text[], bytea, bigint, text, text, bigint, bigint, bigint, bigint, smallint, bigint, bigint, bigint, bigint), '
        'lease_look(bigint, bigint), lease_leave(bigint, bigint), lease_abandon(text, text, bytea, bigint), '
        'lease_renew(text, text[], bytea[], bigint[], bigint), '
        'lease_renew_checked(text, text[], bytea[], bigint[], bigint), lease_suspend(), '
        'lease_release(text, text[], bytea[], bigint[], bigint), lease_sweep(integer), lease_timeline()');
    CALL permit('fencehold_admin', 'EXECUTE ON FUNCTION lease_revoke(text, text, bigint, text, text, bigint), '
        'lease_revoke_many(text, text, text, text, bigint, integer, text, text, bigint), '
        'lease_advance(bigint, text, bigint)');
END
$$;
