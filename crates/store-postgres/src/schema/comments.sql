-- What users may call and read, and what is private.
DO $$
DECLARE
    c_private CONSTANT text := 'Private: any migration may change it.';
    c_public  CONSTANT text[] := ARRAY[
        ARRAY['enqueue_job', 'Enqueues a job with this transaction, and returns its id.'],
        ARRAY['enqueue_jobs', 'Enqueues jobs with this transaction: all of them, or none. Each is an object, in the form of the HTTP API.'],
        ARRAY['complete_job', 'Completes a job with this transaction.'],
        ARRAY['record_effect', 'Records an effect of a job with this transaction, and returns the value that was recorded first.'],
        ARRAY['fence', 'Refuses a token of a lease that is not the newest; until the transaction ends, nobody is granted the key.'],
        ARRAY['try_fence', 'The same, but answers false and records the stale write, instead of ending the transaction.'],
        ARRAY['try_complete_job', 'As complete_job, but answers false where the attempt is stale or over, and records that.'],
        ARRAY['try_record_effect', 'As record_effect, but answers null where the attempt is stale or over, and records that.'],
        ARRAY['fence_job', 'Refuses a token of a job that is not the newest; until the transaction ends, nobody is given the job.'],
        ARRAY['fence_resource', 'Refuses a token below the mark of a resource; until the transaction ends, nobody raises the mark.'],
        ARRAY['raise_mark', 'Raises the mark of a resource: smaller tokens are refused from the commit on.'],
        ARRAY['maintenance_errors', 'Which background work fails at present.'],
        ARRAY['open_fences', 'Which transactions hold a fence.']];
    ours record;
BEGIN
    FOR ours IN
        SELECT CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END AS kind, p.oid::regprocedure AS name
        FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('COMMENT ON %s %s IS %L', ours.kind, ours.name, c_private);
    END LOOP;
    FOR i IN 1 .. array_length(c_public, 1) LOOP
        EXECUTE format('COMMENT ON FUNCTION %I IS %L', c_public[i][1], c_public[i][2]);
    END LOOP;
    -- By name: the owner may keep other tables here.
    FOR ours IN SELECT unnest('{event,event_gap,event_late,event_lost,event_old,event_total,fence_mark,job_awaited,job_body,job_change,job_count,job_counted,job_dropped,job_effect,job_event,'
        'job_head,job_label,job_lane,job_lane_gone,job_note,job_past,job_queue,job_ready,job_running,job_schedule,job_scheduled,job_settled,job_unique,'
        'job_waiter,lease_contention,lease_ended_count,lease_ending,lease_hold,lease_key,lease_line,lease_waiter,maintenance_error,namespace,namespace_closed,namespace_limit,'
        'namespace_ttl,namespace_use,party,store_state,tidied}'::regclass[]) AS name
    LOOP
        EXECUTE format('COMMENT ON TABLE %s IS %L', ours.name, c_private);
    END LOOP;
END $$;
COMMENT ON TABLE migration IS 'The migrations that were carried out: the version of the schema.';
COMMENT ON VIEW leases IS 'Every lease key. No owner: the key is free.';
COMMENT ON VIEW lease_endings IS 'How the last holds of each key ended.';
COMMENT ON VIEW jobs IS 'Every job, without its payload.';
COMMENT ON VIEW queues IS 'Queues, and how many jobs of each state they have.';
COMMENT ON VIEW schedules IS 'Schedules, and when they run.';
COMMENT ON VIEW events IS 'The events that are kept.';
