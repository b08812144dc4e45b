-- Who may do what in this schema; which programs can use it; and what its owner learns when the maintenance fails.

-- The oldest program that can use the schema as this migration leaves it. Null: none that is older than the migration.
ALTER TABLE migration ADD COLUMN compatible_from integer;

-- Without a primary key, no row of a published table can be deleted.
ALTER TABLE job_dropped REPLICA IDENTITY FULL;

-- Maintenance that fails at present, one row a part. A part that works again has none.
CREATE TABLE maintenance_error (
    part     text COLLATE "C" PRIMARY KEY,
    since_ms bigint NOT NULL,
    at_ms    bigint NOT NULL,
    times    bigint NOT NULL,
    why      text NOT NULL
);

CREATE FUNCTION maintenance_failed(p_part text, p_why text) RETURNS void
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

CREATE FUNCTION maintenance_worked(p_part text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    DELETE FROM maintenance_error m WHERE m.part = p_part
$$;

CREATE FUNCTION maintenance_errors() RETURNS TABLE (part text, since_ms bigint, at_ms bigint, times bigint, why text)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT m.part, m.since_ms, m.at_ms, m.times, m.why FROM maintenance_error m ORDER BY m.part
$$;

-- The newest event may be one of a job.
CREATE OR REPLACE FUNCTION lease_status() RETURNS TABLE (keys bigint, held bigint, waiters bigint, last_event bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT (SELECT count(*) FROM lease_key),
        (SELECT count(*) FROM lease_hold),
        (SELECT count(*) FROM lease_waiter WHERE answer IS NULL AND until_ms > now_ms()),
        greatest((SELECT max(seq) FROM event), (SELECT max(last_seq) FROM job_event), 0)
$$;

-- How many suspensions of expiry followed each other without a pause.
ALTER TABLE store_state ADD COLUMN suspensions smallint NOT NULL DEFAULT 0;

-- A client has found that the clock jumped ahead since it said `last_said`, by the boot clock of its own machine: what is held now is not
-- taken for over for one ttl from now on. Once: if another has said so since, it was the same jump, and nothing changes. Gives the moment.
--
-- The database cannot check that claim. So three in a row are believed; then what is held gets the time to run out before the next one
-- is: no client keeps the leases of others from expiring for ever.
CREATE OR REPLACE FUNCTION lease_suspend(last_said bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now  bigint;
    s    store_state;
    free boolean;
BEGIN
    SELECT * INTO s FROM store_state FOR UPDATE;
    now := now_ms();
    -- One that lies ahead was noted before the clock was set back.
    IF s.suspended_from_ms > last_said AND s.suspended_from_ms <= now THEN
        RETURN now;
    END IF;
    -- A minute in which a sweep comes by.
    free := s.suspended_from_ms > now OR s.suspended_from_ms + s.longest_ttl_ms + 60000 <= now;
    IF free OR s.suspensions < 3 THEN
        UPDATE store_state SET suspended_from_ms = now, suspensions = CASE WHEN free THEN 1 ELSE s.suspensions + 1 END;
    ELSE
        RAISE WARNING 'the clock is said to have jumped ahead again: expiry is not suspended a fourth time in a row';
    END IF;
    RETURN now;
END $$;

-- `priority => 5` is an integer, and no integer becomes a smallint by itself. Everything else about the function stays as it is.
DO $$
DECLARE
    old CONSTANT regprocedure := 'enqueue(text, text, jsonb, smallint, timestamptz, text, interval, jsonb, text, uuid)';
    made text := pg_get_functiondef(old);
    allowed CONSTANT oid[] := array(SELECT a.grantee FROM pg_proc p, aclexplode(p.proacl) AS a WHERE p.oid = old AND a.grantee NOT IN (0, p.proowner));
    changed text;
    grantee oid;
BEGIN
    changed := regexp_replace(made, 'priority smallint DEFAULT [^,]*', 'priority integer DEFAULT 0');
    changed := replace(changed, 'array[enqueue.priority]', 'array[enqueue.priority::smallint]');
    IF changed !~ 'priority integer DEFAULT 0' OR changed !~ 'enqueue\.priority::smallint' THEN
        RAISE EXCEPTION 'enqueue is not the function that this migration knows';
    END IF;
    EXECUTE 'DROP FUNCTION ' || old;
    EXECUTE changed;
    FOREACH grantee IN ARRAY allowed LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION enqueue TO %s', grantee::regrole);
    END LOOP;
END $$;

-- Marks what a transaction has a fence on, so that those who find it locked can be told by whom. The table of locks is the whole server's, and
-- small: of one transaction it gets a thousand. A fence holds without its mark; those who find it learn less of it.
CREATE FUNCTION fence_listed(class integer, number bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    listed CONSTANT integer := coalesce(nullif(current_setting('fencehold.fences_listed', true), '')::integer, 0);
BEGIN
    IF listed < 1000 THEN
        PERFORM pg_advisory_xact_lock_shared(class, (number % 2147483647)::integer);
        PERFORM set_config('fencehold.fences_listed', (listed + 1)::text, true);
    END IF;
END $$;

DO $$
DECLARE
    ours regprocedure;
    changed text;
BEGIN
    FOREACH ours IN ARRAY ARRAY['fence(text, bigint, text)', 'fence_job(uuid, bigint)']::regprocedure[] LOOP
        changed := regexp_replace(pg_get_functiondef(ours),
            'pg_advisory_xact_lock_shared\((\d+), \(([a-z_.]+) % 2147483647\)::integer\)', 'fence_listed(\1, \2)');
        IF changed !~ 'fence_listed' THEN
            RAISE EXCEPTION '% is not the function that this migration knows', ours;
        END IF;
        EXECUTE changed;
    END LOOP;
END $$;

-- The same as before, without reading all settings of the server for one of them: a setting's own text has its unit.
CREATE OR REPLACE FUNCTION fence_idle_limit() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    wanted bigint := coalesce(nullif(current_setting('fencehold.fence_idle_ms', true), '')::bigint, 300000);
    in_force bigint := extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000;
BEGIN
    IF wanted > 0 AND (in_force = 0 OR in_force > wanted) THEN
        PERFORM set_config('idle_in_transaction_session_timeout', wanted::text, true);
    END IF;
END
$$;

-- Roles are the whole server's; those of a schema have its name in theirs, so that a grant opens this store and no other.
CREATE FUNCTION role_named(rank text) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE current_schema() WHEN 'fencehold' THEN 'fencehold_' ELSE 'fencehold_' || left(current_schema(), 46) || '_' END || rank
$$;

-- The least role that may call a function or read a table: a worker may do what a reader may, an admin what both may. `none`: no role, any
-- more. What is not named is called by other functions alone.
CREATE FUNCTION role_grants() RETURNS TABLE (name text, lowest text)
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT unnest('{migration,now_ms,events_read,lease_get,lease_list,lease_status,lease_timeline,job_look,job_list,job_queues,job_live,'
        'job_with_effects,job_schedules,maintenance_errors}'::text[]), 'reader'
    UNION ALL
    SELECT unnest('{party_lives,lease_acquire,lease_look,lease_leave,lease_abandon,lease_renew,lease_renew_checked,lease_release,'
        'lease_suspend,lease_sweep,fence,raise,guard,fence_on,fences_open,job_await,job_line_up,job_leave_line,job_line_beat,'
        'job_tell_lines,job_enqueue,job_claim,job_unheard,job_renew,job_complete,job_load,job_draw,job_under,job_idle_limit,job_keep,'
        'job_run_out,job_tidy,job_schedules_due,job_room,job_schedule_hold,job_unschedule,enqueue,fence_job,complete,once,'
        'job_complete_hashed,job_once_hashed,job_recorded,job_held_up,maintenance_failed,maintenance_worked}'::text[]), 'worker'
    UNION ALL
    SELECT unnest('{lease_revoke,lease_revoke_many,lease_advance}'::text[]), 'admin'
    UNION ALL
    SELECT unnest('{store_state,namespace,event,job_event,fence_mark,floor_of}'::text[]), 'none'
$$;

-- Makes the roles where this user may, and gives them what is theirs: also those that were made after the schema, or that a restored dump
-- knew nothing of. Rights that were granted to others stay as they are.
CREATE PROCEDURE grant_roles() LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ranks CONSTANT text[] := '{reader,worker,admin}';
    ours  text[];
    rank  text;
    thing record;
BEGIN
    FOREACH rank IN ARRAY ranks LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_named(rank)) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role_named(rank));
            EXCEPTION
                WHEN insufficient_privilege OR duplicate_object OR unique_violation THEN NULL;
            END;
        END IF;
    END LOOP;
    ours := array(SELECT rolname FROM pg_roles WHERE rolname = ANY (array(SELECT role_named(r) FROM unnest(ranks) AS r)));
    FOREACH rank IN ARRAY ours LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), rank);
    END LOOP;
    FOR thing IN
        SELECT w.what, g.lowest,
            (SELECT string_agg(quote_ident(r), ', ') FROM unnest(ours) AS r) AS everybody,
            (SELECT string_agg(quote_ident(role_named(r.rank)), ', ') FROM unnest(ranks) WITH ORDINALITY AS r(rank, nth)
                WHERE r.nth >= array_position(ranks, g.lowest) AND role_named(r.rank) = ANY (ours)) AS entitled,
            -- The roles of every schema, before each had its own.
            (SELECT string_agg(quote_ident(rolname), ', ') FROM pg_roles
                WHERE rolname IN ('fencehold_reader', 'fencehold_worker', 'fencehold_admin') AND rolname <> ALL (ours)) AS former
        FROM role_grants() AS g JOIN (
            SELECT p.proname, (CASE p.prokind WHEN 'p' THEN 'PROCEDURE ' ELSE 'FUNCTION ' END) || p.oid::regprocedure
            FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
            UNION ALL
            SELECT c.relname, 'TABLE ' || c.oid::regclass
            FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r') AS w(name, what) ON w.name = g.name
    LOOP
        IF thing.everybody IS NOT NULL THEN
            EXECUTE format('REVOKE ALL ON %s FROM %s', thing.what, thing.everybody);
        END IF;
        IF thing.former IS NOT NULL THEN
            EXECUTE format('REVOKE ALL ON %s FROM %s', thing.what, thing.former);
        END IF;
        IF thing.entitled IS NOT NULL THEN
            EXECUTE format('GRANT %s ON %s TO %s', CASE WHEN starts_with(thing.what, 'TABLE') THEN 'SELECT' ELSE 'EXECUTE' END,
                thing.what, thing.entitled);
        END IF;
    END LOOP;
    FOR thing IN
        SELECT rolname FROM pg_roles
        WHERE rolname IN ('fencehold_reader', 'fencehold_worker', 'fencehold_admin') AND rolname <> ALL (ours)
    LOOP
        EXECUTE format('REVOKE ALL ON SCHEMA %I FROM %I', current_schema(), thing.rolname);
    END LOOP;
END
$$;
DROP PROCEDURE permit(text, text);

-- As all functions before are planned.
DO $$
DECLARE
    ours regprocedure;
BEGIN
    FOREACH ours IN ARRAY ARRAY['maintenance_failed(text, text)', 'maintenance_worked(text)', 'maintenance_errors()', 'lease_status()',
        'lease_suspend(bigint)']::regprocedure[]
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET jit = off SET max_parallel_workers_per_gather = 0', ours);
    END LOOP;
END
$$;
