-- Who may do what.

-- Roles are the whole server's; those of a schema have its name in theirs, so that a grant opens this store and no other.
CREATE OR REPLACE FUNCTION role_named(rank text) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT CASE current_schema() WHEN 'fencehold' THEN 'fencehold_' ELSE 'fencehold_' || left(current_schema(), 46) || '_' END || rank
$$;

-- The least role that may call a function or read a table or a view: a worker may do what a reader may, an admin what both may. `none`: no
-- role may, though one could in schema 21. What is not named is called by other functions alone.
CREATE OR REPLACE FUNCTION role_grants() RETURNS TABLE (name text, lowest text)
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT unnest('{leases,lease_endings,jobs,queues,schedules,events,shown_time,shown_state,shown_event_type,shown_event_data,shown_labels,'
        'migration,now_ms,maintenance_errors,'
        'events_page,events_read,lease_get,lease_list,lease_status,lease_timeline,job_look,job_list,job_counts_now,job_queues,job_queue_list,job_live,job_with_effects,job_schedules,'
        'store_closed_ms,store_limits,event_counts,event_totals,lease_stats,lease_ended_counts,lease_contention_list}'::text[]), 'reader'
    UNION ALL
    SELECT unnest('{enqueue_job,enqueue_jobs,complete_job,record_effect,try_fence,try_complete_job,try_record_effect,write_refused,fence,fence_job,fence_resource,raise_mark,open_fences,'
        'upkeep,job_work_due,party_lives,lease_acquire,lease_look,lease_leave,lease_abandon,lease_renew,lease_renew_checked,lease_release,lease_suspend,'
        'lease_sweep,fence_on,job_await,job_line_up,job_leave_line,job_line_beat,job_tell_lines,job_enqueue_batch,job_claim,job_unheard,job_untaken,'
        'job_renew,job_complete_batch,job_load,job_draw,job_under,job_idle_limit,job_keep,job_run_out,job_tidy,job_schedules_due,job_room,'
        'job_schedule_hold,job_unschedule,job_schedules_most,job_queue_remove,job_queues_tidy,job_recount,job_complete_hashed,job_once_hashed,'
        'lease_contention_add,job_recorded,job_held_up,namespace_count,maintenance_failed,maintenance_worked}'::text[]), 'worker'
    UNION ALL
    SELECT unnest('{lease_revoke,lease_revoke_many,lease_advance,store_open_now,store_limits_set}'::text[]), 'admin'
    UNION ALL
    SELECT unnest('{store_state,namespace,event,job_event,fence_mark,floor_of}'::text[]), 'none'
$$;

-- Makes the roles where this user may, and gives them their rights: also those that were made after the schema, or that a restored dump
-- knew nothing of. Rights that were granted to others stay as they are.
CREATE OR REPLACE PROCEDURE grant_roles() LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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
            -- In schema 21 these were the roles of every schema.
            (SELECT string_agg(quote_ident(rolname), ', ') FROM pg_roles
                WHERE rolname IN ('fencehold_reader', 'fencehold_worker', 'fencehold_admin') AND rolname <> ALL (ours)) AS former
        FROM role_grants() AS g JOIN (
            SELECT p.proname, (CASE p.prokind WHEN 'p' THEN 'PROCEDURE ' ELSE 'FUNCTION ' END) || p.oid::regprocedure
            FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
            UNION ALL
            SELECT c.relname, 'TABLE ' || c.oid::regclass
            FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'v')) AS w(name, what) ON w.name = g.name
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
END $$;
