-- How the functions above are planned. A connection plans a statement once, perhaps while a table is all but empty, and keeps the plan
-- while the table grows: reading all of it is then the right way for a moment and the wrong one for hours. Every table is reached by
-- an index, so none is ever read whole where one row is meant. And nothing here is worth compiling, or sharing out among processes that
-- are started for it, however much it is thought to cost: that takes longer than all of it.
--
-- A function in SQL that is more than an expression is parsed and planned in every call, whatever is set: what others call often is in
-- PL/pgSQL. An expression is put in its caller's place, unless it calls itself IMMUTABLE and what it calls is not: `jsonb_build_object`
-- is STABLE.
DO $$
DECLARE
    -- Left to choose, PostgreSQL holds a plan for the ten jobs that it assumes against one for the one that is asked about, and plans
    -- anew in every call. These find their rows one by one whatever is asked, and are planned for good. Not so what goes through many up
    -- to a bound: there the best way depends on the bound.
    c_planned_once CONSTANT text[] := '{job_stir, job_tell_end, job_enqueue, job_claim, job_renew, job_complete, job_lock, job_rows, '
        'lease_acquire, lease_look, lease_leave, lease_renew, lease_renew_checked, lease_release, lease_get, fence, fence_job, raise, guard}';
    ours record;
BEGIN
    FOR ours IN
        SELECT p.oid::regprocedure AS name, p.proname = ANY(c_planned_once) AS once FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE p.pronamespace = current_schema()::regnamespace AND l.lanname IN ('plpgsql', 'sql') AND p.prosecdef AND p.prokind = 'f'
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET jit = off SET max_parallel_workers_per_gather = 0', ours.name);
        IF ours.once THEN
            -- For one row a bitmap is no more than an index and a good deal of ado, and yet it is thought to cost the same.
            EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan SET enable_bitmapscan = off', ours.name);
        END IF;
    END LOOP;
END
$$;
