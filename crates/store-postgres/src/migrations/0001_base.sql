-- What leases and jobs share: time, bounds, tokens' floors, who is alive, who serves, and who may do what.
--
-- Functions keep the search path that they are made under (SET search_path FROM CURRENT), so nothing that a caller has
-- in a schema of its own can stand in for what is meant here. Whoever calls a function from outside needs the right to
-- that function and to nothing else: those are SECURITY DEFINER. The others are for them alone.

-- Store time. The one place that reads the clock; a test puts another function in its place.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- The bounds of `fencehold_core::limits`.
CREATE FUNCTION limit_token() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 9007199254740991 $$;
CREATE FUNCTION limit_endings() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 8 $$;
CREATE FUNCTION limit_in_line() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 16384 $$;
CREATE FUNCTION limit_events() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 16384 $$;
CREATE FUNCTION limit_free_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 7260000 $$;

-- One row: what holds for the whole store.
CREATE TABLE store_state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Nobody is granted anything before this moment (see `store advance`).
    closed_until_ms bigint NOT NULL DEFAULT 0,
    -- The longest ttl that was ever granted.
    longest_ttl_ms bigint NOT NULL DEFAULT 0,
    -- The floor of namespaces while there are none: what was restored may have lost them.
    floor bigint NOT NULL DEFAULT 0,
    -- When somebody last found that the clock had jumped ahead. What was held then does not run out for one ttl.
    suspended_from_ms bigint NOT NULL DEFAULT 0,
    -- The server's timeline. Another one means that another server has taken over.
    timeline bigint,
    -- Up to where events were removed.
    events_removed_to bigint NOT NULL DEFAULT 0
);
INSERT INTO store_state DEFAULT VALUES;

-- Every token given from now on is larger than its namespace's floor.
CREATE TABLE namespace (
    name text COLLATE "C" PRIMARY KEY,
    floor bigint NOT NULL
);

-- A namespace that is new here may not have been new before this store was rewound. `advance` lifts every floor there
-- is, so the lowest of them is above all that was given before.
CREATE FUNCTION floor_of(of_namespace text) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN coalesce(
        (SELECT floor FROM namespace WHERE name = of_namespace),
        (SELECT min(floor) FROM namespace),
        (SELECT floor FROM store_state));
END $$;

CREATE FUNCTION make_namespace(new_name text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO namespace (name, floor)
    SELECT new_name, floor_of(new_name) WHERE NOT EXISTS (SELECT FROM namespace WHERE name = new_name)
    ON CONFLICT DO NOTHING;
END $$;

-- Handles that have somebody in line. Each must say that it is alive: by real time, not by the store's, for it is
-- about processes. One that does not falls out of every line with all that wait through it.
CREATE TABLE party (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    alive_until timestamptz NOT NULL
) WITH (fillfactor = 50);

-- A new party, or a sign of life of one. Gives its number: another one, if it was taken for dead and is gone.
CREATE FUNCTION party_lives(known bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
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
END
$$;

-- Wakes whoever listens for this topic, once this transaction commits. Only for somebody who is known to wait:
-- notifications make commits queue up.
CREATE FUNCTION tell(topic text) RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT pg_notify('fencehold_' || current_schema(), topic)
$$;

-- The server's timeline: another one means that another server has taken over.
CREATE FUNCTION serving_timeline() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT ('x' || lpad(left(pg_walfile_name(pg_current_wal_lsn()), 8), 16, '0'))::bit(64)::bigint
$$;

-- Whoever waits for a lock must then see what whoever held it has done: under REPEATABLE READ and SERIALIZABLE it sees what was there
-- when its transaction began. So what decides after a lock is refused there.
CREATE FUNCTION read_committed() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('this is for transactions that are READ COMMITTED, and not %s',
                upper(current_setting('transaction_isolation'))),
            HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED; or set default_transaction_isolation for this role.';
    END IF;
END
$$;

-- The first thing in every call that decides. Notices that another server has taken over, before anything is locked or given: in the
-- calls themselves, for behind a pooler connections outlive the server that they lead to.
CREATE FUNCTION notice_server() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM read_committed();
    IF (SELECT timeline FROM store_state) IS DISTINCT FROM serving_timeline() THEN
        PERFORM lease_timeline();
    END IF;
END
$$;

-- Roles are the whole server's. Where this user may not make them, an administrator can, before the first migration: only
-- what is there then is granted anything.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['fencehold_reader', 'fencehold_worker', 'fencehold_admin'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION
                WHEN insufficient_privilege OR duplicate_object OR unique_violation THEN NULL;
            END;
        END IF;
    END LOOP;
END
$$;

-- Grants something to a role and to those above it, where they are there: a worker may what a reader may, an admin
-- what both may.
CREATE PROCEDURE permit(lowest text, what text) LANGUAGE plpgsql AS $$
DECLARE
    ranks text[] := ARRAY['fencehold_reader', 'fencehold_worker', 'fencehold_admin'];
    rank text;
BEGIN
    FOREACH rank IN ARRAY ranks[array_position(ranks, lowest):] LOOP
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = rank) THEN
            EXECUTE format('GRANT %s TO %I', what, rank);
        END IF;
    END LOOP;
END
$$;

DO $$
BEGIN
    CALL permit('fencehold_reader', format('USAGE ON SCHEMA %I', current_schema()));
    CALL permit('fencehold_reader', 'SELECT ON migration, store_state, namespace');
    CALL permit('fencehold_reader', 'EXECUTE ON FUNCTION now_ms(), floor_of(text)');
    CALL permit('fencehold_worker', 'EXECUTE ON FUNCTION party_lives(bigint)');
END
$$;
