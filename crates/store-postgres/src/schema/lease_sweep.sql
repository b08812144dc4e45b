-- Leases: the sweep.

-- Ends holds that have expired, and removes what is not needed any more. One process at a time, and no more than `most` of each: a second
-- one leaves it to the first. Gives how much was done; -1: it is later than `not_after_ms`, until when the caller knows of no jump of the
-- clock, and nothing is swept after that.
CREATE OR REPLACE FUNCTION lease_sweep(most integer, not_after_ms bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    began CONSTANT bigint := now_ms();
    now bigint := began;
    done bigint := 0;
    late boolean := began > not_after_ms;
    k lease_key;
    h lease_hold;
    w lease_waiter;
    one bigint;
    ids bigint[];
    low bigint;
    read bigint;
    gone bigint[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(1179142480, hashtext(current_schema())) THEN
        RETURN 0;
    END IF;
    -- It gives tokens to waiters.
    PERFORM notice_server();
    IF late THEN
        RETURN -1;
    END IF;
    low := removed_low('holds', began);
    read := pg_stat_get_xact_tuples_returned('lease_hold_look'::regclass);
    -- A key that another transaction has locked, or that has a fence on it, is left for the next time.
    FOR one IN
        SELECT picked.id FROM (
            SELECT l.id FROM (SELECT key_id FROM lease_hold WHERE look_at_ms > low AND look_at_ms <= now ORDER BY look_at_ms OFFSET 0) AS due
            CROSS JOIN LATERAL (SELECT id FROM lease_key WHERE id = due.key_id FOR UPDATE SKIP LOCKED) AS l
            LIMIT most) AS picked
        ORDER BY picked.id
    LOOP
        done := done + 1;
        ids := ids || one;
        -- Of this key: the transaction may have waited at the one before.
        now := now_ms();
        late := now > not_after_ms;
        EXIT WHEN late;
        PERFORM lease_time_outs(one, now);
        PERFORM lease_settle(one, now);
        -- Renewed since: only now does the sweep learn.
        UPDATE lease_hold SET look_at_ms = greatest(deadline_ms, now + 1) WHERE key_id = one AND look_at_ms <= now;
    END LOOP;
    PERFORM removed_to('holds', low, (SELECT o.look_at_ms FROM lease_hold o WHERE o.look_at_ms > low ORDER BY o.look_at_ms LIMIT 1),
        began, pg_stat_get_xact_tuples_returned('lease_hold_look'::regclass) - read);
    read := pg_stat_get_xact_tuples_returned('lease_hold_look'::regclass);
    -- A clock that was set back leaves moments that are further away than any deadline can be. The furthest come first, so these few are
    -- enough to find them.
    FOR one IN
        SELECT l.id FROM (
            SELECT far.key_id FROM (
                SELECT key_id, look_at_ms, ttl_ms FROM lease_hold WHERE look_at_ms > began AND (SELECT looks_through('far holds', began))
                ORDER BY look_at_ms DESC LIMIT most) AS far
            WHERE far.look_at_ms > now_ms() + far.ttl_ms ORDER BY far.key_id OFFSET 0) AS off
        CROSS JOIN LATERAL (SELECT id FROM lease_key WHERE id = off.key_id FOR UPDATE SKIP LOCKED) AS l
    LOOP
        done := done + 1;
        PERFORM lease_lock_hold(one, now);
        UPDATE lease_hold SET look_at_ms = deadline_ms WHERE key_id = one AND look_at_ms > deadline_ms;
    END LOOP;
    PERFORM looked_through('far holds', began, pg_stat_get_xact_tuples_returned('lease_hold_look'::regclass) - read);
    now := now_ms();
    low := removed_low('lease keys', now);
    read := pg_stat_get_xact_tuples_returned('lease_key_look'::regclass);
    FOR k IN
        SELECT * FROM lease_key WHERE look_at_ms > low AND look_at_ms <= now ORDER BY look_at_ms LIMIT most FOR UPDATE SKIP LOCKED
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
    PERFORM removed_to('lease keys', low, (SELECT o.look_at_ms FROM lease_key o WHERE o.look_at_ms > low ORDER BY o.look_at_ms LIMIT 1),
        now, pg_stat_get_xact_tuples_returned('lease_key_look'::regclass) - read);
    -- Waiters whose process has gone: of those that went in the last minute at once.
    IF looks_through('waiters', now) THEN
        read := pg_stat_get_xact_tuples_returned('lease_waiter_pkey'::regclass);
        gone := array(SELECT o.id FROM lease_waiter o WHERE NOT EXISTS (
            SELECT FROM party p WHERE p.id = o.party AND p.alive_until > clock_timestamp()) ORDER BY o.id LIMIT most);
        IF cardinality(gone) < most THEN
            PERFORM looked_through('waiters', now, pg_stat_get_xact_tuples_returned('lease_waiter_pkey'::regclass) - read);
        END IF;
    ELSE
        gone := array(SELECT o.id FROM party p CROSS JOIN LATERAL (SELECT i.id FROM lease_waiter i WHERE i.party = p.id OFFSET 0) o
            WHERE p.alive_until <= clock_timestamp() LIMIT most);
    END IF;
    FOR w IN
        SELECT * FROM lease_waiter WHERE id = ANY(gone) AND NOT EXISTS (
            SELECT FROM party p WHERE p.id = lease_waiter.party AND p.alive_until > clock_timestamp())
        ORDER BY id FOR UPDATE SKIP LOCKED
    LOOP
        done := done + 1;
        DELETE FROM lease_line WHERE waiter = w.id;
        DELETE FROM lease_waiter WHERE id = w.id;
        PERFORM lease_refresh_notices(w, now);
    END LOOP;
    DELETE FROM party WHERE alive_until < clock_timestamp() - interval '1 minute';
    PERFORM events_remove();
    PERFORM lease_note_longest(ids);
    RETURN CASE WHEN late THEN -1 ELSE done END;
END $$;
