-- What leases and jobs share: bounds, the least token of a namespace, which processes are alive, and which server answers.
--
-- Functions keep the search path that they are made under (SET search_path FROM CURRENT), so nothing that a caller has in a schema of its own
-- can take the place of what is meant here. A function that clients call is SECURITY DEFINER: they need the right to call it and no other. The
-- rest is called by these functions alone.

-- The bounds of `fencehold_core::limits`.
CREATE OR REPLACE FUNCTION limit_token() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 9007199254740991 $$;
CREATE OR REPLACE FUNCTION limit_endings() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 8 $$;
CREATE OR REPLACE FUNCTION limit_in_line() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 16384 $$;
CREATE OR REPLACE FUNCTION limit_events() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 16384 $$;
CREATE OR REPLACE FUNCTION limit_free_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 7260000 $$;

-- Whether a task is another one or below it, as `Task::covers` of the core says. Null if one of them is. No pattern: `%` and `_` are letters.
CREATE OR REPLACE FUNCTION task_covers(above text, task text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT task = above OR starts_with(task, CASE WHEN right(above, 1) = '/' THEN above ELSE above || '/' END)
$$;

-- A namespace that is new here may not have been new before this store was rewound. `advance` lifts every floor there
-- is, so the lowest of them is above all that was given before.
CREATE OR REPLACE FUNCTION floor_of(of_namespace text) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN coalesce(
        (SELECT floor FROM namespace WHERE name = of_namespace),
        (SELECT min(floor) FROM namespace),
        (SELECT floor FROM store_state));
END $$;

CREATE OR REPLACE FUNCTION make_namespace(new_name text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO namespace (name, floor)
    SELECT new_name, floor_of(new_name) WHERE NOT EXISTS (SELECT FROM namespace WHERE name = new_name)
    ON CONFLICT DO NOTHING;
END $$;

-- A new party, or a sign of life of one. Gives its number: another one, if it was taken for dead and is gone.
CREATE OR REPLACE FUNCTION party_lives(known bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
    until timestamptz := clock_timestamp() + interval '15 seconds';
    found_id bigint;
BEGIN
    UPDATE party SET alive_until = until WHERE id = known RETURNING id INTO found_id;
    IF found_id IS NULL THEN
        INSERT INTO party (alive_until) VALUES (until) RETURNING id INTO found_id;
    END IF;
    RETURN found_id;
END $$;

-- Wakes the sessions that listen for this topic, once this transaction commits. Only where a session is known to wait: notifications make
-- commits queue up.
CREATE OR REPLACE FUNCTION tell(topic text) RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT pg_notify('fencehold_' || current_schema(), topic)
$$;

-- The server's timeline: another one means that another server has taken over.
CREATE OR REPLACE FUNCTION serving_timeline() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT ('x' || lpad(left(pg_walfile_name(pg_current_wal_lsn()), 8), 16, '0'))::bit(64)::bigint
$$;

-- A transaction that has waited for a lock must then see what the transaction that held it has written: under REPEATABLE READ and
-- SERIALIZABLE it sees what was there when it began. So a call that decides after a lock is refused there.
CREATE OR REPLACE FUNCTION read_committed() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('this is for transactions that are READ COMMITTED, and not %s',
                upper(current_setting('transaction_isolation'))),
            HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED; or set default_transaction_isolation for this role.';
    END IF;
END $$;

-- The first thing in every call that decides. Notices that another server has taken over, before anything is locked or given: in the
-- calls themselves, for behind a pooler connections outlive the server that they lead to.
CREATE OR REPLACE FUNCTION notice_server() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM read_committed();
    IF (SELECT timeline FROM store_state) IS DISTINCT FROM serving_timeline() THEN
        PERFORM lease_timeline();
    END IF;
END $$;

-- Whether two texts are the same JSON. One that `jsonb` cannot keep is compared as text.
CREATE OR REPLACE FUNCTION json_same(p_one text, p_other text) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF p_one IS NOT DISTINCT FROM p_other THEN
        RETURN true;
    END IF;
    RETURN coalesce(p_one::jsonb = p_other::jsonb, false);
EXCEPTION
    WHEN data_exception OR program_limit_exceeded THEN
        RETURN false;
END $$;

-- Refuses JSON that is nested more deeply than every client can read: `fencehold_core::limits::JSON_DEPTH_MAX`. A level takes two
-- characters and a bracket that opens it, so most need no closer look. Every round removes the innermost pairs.
CREATE OR REPLACE FUNCTION json_check_depth(p_what text, p_json text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    c_depth_max CONSTANT integer := 127;
    v_left text;
BEGIN
    IF p_json IS NULL OR length(p_json) - length(translate(p_json, '[{', '')) <= c_depth_max THEN
        RETURN;
    END IF;
    v_left := regexp_replace(p_json, '"(?:[^"\\]|\\.)*"', '', 'g');
    v_left := translate(regexp_replace(v_left, '[^][{}]', '', 'g'), '{}', '[]');
    FOR level IN 1 .. c_depth_max LOOP
        EXIT WHEN v_left = '';
        v_left := replace(v_left, '[]', '');
    END LOOP;
    IF v_left <> '' THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = format('%s is nested more than %s levels deep', p_what, c_depth_max);
    END IF;
END $$;

-- What people write as JSON is read strictly, as the library reads it: no unknown field, none twice, and each of its type.
CREATE OR REPLACE FUNCTION json_check_object(p_what text, p_json json) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF json_typeof(p_json) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = format('%s is %s, and not an object', p_what, coalesce(json_typeof(p_json), 'missing'));
    END IF;
END $$;

CREATE OR REPLACE FUNCTION json_seen(p_seen text[], p_name text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF p_name = ANY (p_seen) THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = format('the field %s is there twice', to_json(p_name));
    END IF;
    RETURN p_seen || p_name;
END $$;

CREATE OR REPLACE FUNCTION json_unknown(p_name text, p_known text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION USING errcode = '22023', constraint = '22023',
        message = format('the field %s is not known; known are %s', to_json(p_name), array_to_string(p_known, ', '));
END $$;

CREATE OR REPLACE FUNCTION json_string(p_name text, p_value json) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF json_typeof(p_value) IS DISTINCT FROM 'string' THEN
        RAISE EXCEPTION USING errcode = '22023', constraint = '22023', message = format('%s is %s, and not a text', p_name, coalesce(json_typeof(p_value), 'missing'));
    END IF;
    RETURN p_value #>> '{}';
END $$;

CREATE OR REPLACE FUNCTION json_whole(p_name text, p_value json, p_least numeric, p_most numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF p_value::text ~ '^(0|-?[1-9][0-9]{0,19})$' THEN
        IF p_value::text::numeric BETWEEN p_least AND p_most THEN
            RETURN p_value::text::numeric;
        END IF;
    END IF;
    RAISE EXCEPTION USING errcode = '22023', constraint = '22023',
        message = format('%s takes a whole number from %s to %s, not %s', p_name, p_least, p_most, coalesce(left(p_value::text, 64), 'nothing'));
END $$;

-- A duration as people read it, without rounding.
CREATE OR REPLACE FUNCTION shown_ms(p_ms bigint) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    v_left bigint := p_ms;
    v_text text := '';
    v_unit record;
BEGIN
    FOR v_unit IN SELECT * FROM (VALUES ('d', 86400000), ('h', 3600000), ('m', 60000), ('s', 1000), ('ms', 1)) AS u(name, ms) LOOP
        IF v_left >= v_unit.ms THEN
            v_text := v_text || v_left / v_unit.ms || v_unit.name;
            v_left := v_left % v_unit.ms;
        END IF;
    END LOOP;
    RETURN CASE WHEN p_ms = 0 THEN '0s' ELSE v_text END;
END $$;
