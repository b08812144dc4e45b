-- How the functions are planned. A connection plans a statement once, perhaps while a table is all but empty, and keeps the plan while the
-- table grows: a sequential scan is then right for a moment and wrong for hours. Every table is reached by an index, so none is ever read
-- whole where one row is meant. And nothing here is worth compiling, or sharing out among processes that are started for it, however much
-- it is thought to cost: that takes longer than all of it.
--
-- A function in SQL that is more than an expression is parsed and planned in every call, whatever is set: what others call often is in
-- PL/pgSQL. An expression is inlined into its caller, unless it calls itself IMMUTABLE and what it calls is not: `jsonb_build_object`
-- is STABLE.
DO $$
DECLARE
    -- They read no table, or one row by its key.
    c_as_they_are CONSTANT text[] := '{events_oldest(), "fence_listed(integer,bigint)", "job_check_name(text,text,integer)", role_grants(), '
        'role_named(text)}';
    -- Left to choose, PostgreSQL compares a plan for the ten jobs that it assumes with one for the one that is asked about, and plans anew
    -- in every call. These find their rows one by one whatever is asked, and are planned once. Not so what reads many up to a bound: there
    -- the best plan depends on the bound. (`job_on_offer` reads an index in its order, whatever the bound is.)
    c_planned_once CONSTANT text[] := '{job_stir, job_on_offer, job_tell_end, job_enqueue_batch, job_claim, job_renew, job_complete_batch, job_lock, '
        'job_rows, job_list, job_places, job_state, lease_acquire, lease_look, lease_leave, lease_renew, lease_renew_checked, lease_release, lease_get, fence, fence_job, '
        'raise_mark, fence_resource}';
    ours record;
BEGIN
    FOR ours IN
        SELECT p.oid::regprocedure AS name, p.proname = ANY (c_planned_once) AS once FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace AND p.prokind = 'f' AND p.proconfig IS NOT NULL
            AND p.oid <> ALL (c_as_they_are::regprocedure[])
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET jit = off SET max_parallel_workers_per_gather = 0', ours.name);
        IF ours.once THEN
            -- For one row a bitmap is no more than an index and a good deal more work, and yet it is thought to cost the same.
            EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan SET enable_bitmapscan = off', ours.name);
        END IF;
    END LOOP;
    -- It reads all of four tables.
    ALTER FUNCTION job_recount SET enable_seqscan = on;
END $$;
