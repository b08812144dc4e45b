-- What the background work notes: which parts fail, and up to where an index has nothing left.
--
-- While a session holds a snapshot, deleted rows stay in the indexes, and a scan from the beginning of an index reads all of them again. So a
-- note says up to where there is nothing left, and reading begins there. A note is a bound for speed: a transaction that was open for long may
-- commit something below it. Every ten seconds, and less often the more there is, the maintenance reads all of an index and finds it.

-- Notes that a part of the maintenance failed.
CREATE OR REPLACE FUNCTION maintenance_failed(p_part text, p_why text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    -- Every process reports the same: one of them at a time, and no row is waited for.
    IF p_part <> ALL ('{leases,expiry,retention,schedules,preemption}'::text[])
        OR NOT pg_try_advisory_xact_lock(1179142481, hashtext(current_schema() || p_part)) THEN
        RETURN;
    END IF;
    INSERT INTO maintenance_error AS m (part, since_ms, at_ms, times, why)
        VALUES (p_part, now_ms(), now_ms(), 1, left(p_why, 500))
        ON CONFLICT (part) DO UPDATE SET at_ms = excluded.at_ms, times = m.times + 1, why = excluded.why;
END $$;

-- Notes that a part of the maintenance works again.
CREATE OR REPLACE FUNCTION maintenance_worked(p_part text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    DELETE FROM maintenance_error m WHERE m.part = p_part
$$;

-- Up to where a part has nothing left, by the clock. Nothing is noted where reading all of it is cheap. A note that lies ahead of the clock
-- is not used: the clock was set back.
CREATE OR REPLACE FUNCTION removed_low(p_part text, p_now bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce((SELECT t.low FROM tidied t
        WHERE t.part = p_part AND t.low < p_now AND t.full_at > clock_timestamp() - interval '10 seconds'), -9223372036854775808);
END $$;

-- Notes that all up to `p_first` is gone; null: all of it. `p_entries` of the index were read, from `p_low` on.
CREATE OR REPLACE FUNCTION removed_to(p_part text, p_low bigint, p_first bigint, p_now bigint, p_entries bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    c_lowest CONSTANT bigint := -9223372036854775808;
    c_many   CONSTANT bigint := 1000;
    v_now    CONSTANT timestamptz := clock_timestamp();
    v_full   CONSTANT boolean := p_low = c_lowest;
    v_noted  tidied;
BEGIN
    SELECT * INTO v_noted FROM tidied t WHERE t.part = p_part;
    -- At most every five seconds, so that few dead versions of the notes are left.
    IF v_full AND p_entries < c_many AND coalesce(v_noted.low, c_lowest) = c_lowest
        OR v_noted.at > v_now - interval '5 seconds' AND NOT (v_full AND v_noted.low > c_lowest)
        OR NOT pg_try_advisory_xact_lock(1179142484, hashtext(current_schema() || p_part)) THEN
        RETURN;
    END IF;
    -- What was written a moment ago may not be committed yet: the note goes up to the moment of the note before.
    INSERT INTO tidied AS t (part, low, done_to, at, full_at) VALUES (p_part, c_lowest, p_now, v_now, v_now)
        ON CONFLICT (part) DO UPDATE SET
            low = CASE WHEN v_full AND p_entries < c_many THEN c_lowest ELSE least(p_first, t.done_to, p_now) - 1 END,
            done_to = p_now, at = v_now, full_at = CASE WHEN v_full THEN v_now + make_interval(secs => p_entries / 10000) ELSE t.full_at END;
END $$;

-- Whether to read all of a part that can only be read as a whole: always, and every ten seconds where that is expensive, and at once where
-- the clock was set back.
CREATE OR REPLACE FUNCTION looks_through(p_part text, p_now bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM tidied t
        WHERE t.part = p_part AND t.low <= p_now AND t.full_at > clock_timestamp() - interval '10 seconds');
END $$;

-- Notes that all of a part was read, where that was expensive.
CREATE OR REPLACE FUNCTION looked_through(p_part text, p_now bigint, p_entries bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    v_now  CONSTANT timestamptz := clock_timestamp();
    v_full CONSTANT timestamptz := v_now + make_interval(secs => p_entries / 10000);
BEGIN
    IF p_entries >= 2000 AND pg_try_advisory_xact_lock(1179142484, hashtext(current_schema() || p_part)) THEN
        INSERT INTO tidied (part, low, done_to, at, full_at) VALUES (p_part, p_now, p_now, v_now, v_full)
            ON CONFLICT (part) DO UPDATE SET low = p_now, done_to = p_now, at = v_now, full_at = v_full;
    END IF;
END $$;

-- Whether the background work of a part is this handle's for now, and when it asks again. One handle has the turn and asks in time to keep
-- it. Of the others each is given a moment of its own to ask, so that one of them asks soon after a turn has ended, however many they are.
-- Two handles that both work do each other no harm: what one has locked, the other skips.
CREATE OR REPLACE FUNCTION maintenance_turn(p_part text, p_handle bigint, OUT is_mine boolean, OUT next_ms bigint)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    c_turn_ms  CONSTANT bigint := 700;
    c_work_ms  CONSTANT bigint := 500; -- between two rounds of the work
    c_apart_ms CONSTANT bigint := 300; -- between two handles that ask
    c_most_ms  CONSTANT bigint := 2000;
    c_now      CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    c_handle   CONSTANT regclass := p_part || '_turn_handle';
    c_until    CONSTANT regclass := p_part || '_turn_until';
    c_asked    CONSTANT regclass := p_part || '_turn_asked';
    v_ends_ms  bigint;
    v_asks_at  bigint;
BEGIN
    is_mine := false;
    next_ms := c_apart_ms;
    IF NOT pg_try_advisory_xact_lock(1179142485, hashtext(current_schema() || p_part)) THEN
        RETURN;
    END IF;
    v_ends_ms := coalesce(pg_sequence_last_value(c_until), 0) - c_now;
    -- A turn that ends later than a turn can: the clock was set back.
    IF v_ends_ms NOT BETWEEN 1 AND c_turn_ms OR pg_sequence_last_value(c_handle) = p_handle THEN
        PERFORM setval(c_handle, p_handle), setval(c_until, c_now + c_turn_ms);
        is_mine := true;
        next_ms := c_work_ms;
        RETURN;
    END IF;
    v_asks_at := greatest(coalesce(pg_sequence_last_value(c_asked), 0), c_now) + c_apart_ms;
    IF v_asks_at > c_now + c_most_ms THEN
        v_asks_at := c_now + c_most_ms;
    END IF;
    PERFORM setval(c_asked, v_asks_at);
    next_ms := v_asks_at - c_now;
END $$;

-- The one call that every handle makes by itself: it says that the handle and its waiting claims are alive, and returns the moment, the version
-- of the schema, for which parts the background work is this handle's, when to call again, and which claims should look.
CREATE OR REPLACE FUNCTION upkeep(
    p_handle bigint, p_parts text[], p_party bigint, p_sendings uuid[],
    OUT at_ms bigint, OUT handle bigint, OUT version integer, OUT compatible_from integer, OUT party bigint, OUT parts text[],
    OUT next_ms bigint, OUT should_look uuid[]
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_part text;
    v_turn record;
BEGIN
    -- Behind a pooler there is no new connection where another server has taken over.
    PERFORM lease_timeline();
    at_ms := now_ms();
    -- Nothing here is missed if it is lost.
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT max(m.version), max(coalesce(m.compatible_from, m.version)) INTO version, compatible_from FROM migration m;
    handle := coalesce(p_handle, nextval('upkeep_handle'));
    IF p_party IS NOT NULL THEN
        party := party_lives(p_party);
    END IF;
    parts := '{}';
    FOREACH v_part IN ARRAY p_parts LOOP
        SELECT * INTO v_turn FROM maintenance_turn(v_part, handle);
        next_ms := least(next_ms, v_turn.next_ms);
        IF v_turn.is_mine THEN
            parts := parts || v_part;
        END IF;
    END LOOP;
    should_look := CASE WHEN p_sendings = '{}' THEN p_sendings ELSE array(SELECT job_line_beat(p_sendings)) END;
END $$;
