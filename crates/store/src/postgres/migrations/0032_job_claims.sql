-- Claims: repairs that come before anything is taken. What takes the jobs stays as it is, under another name.

ALTER FUNCTION job_claim(text, text[], integer[], bigint[], integer, uuid, text, bigint, integer[], bigint[], uuid, boolean)
    RENAME TO job_take;

-- As `job_take` says; and first:
--
-- Another server is noticed before a token is given.
--
-- `store advance` is waited for before the clock is read: what it has closed is then seen to be closed. Its first table comes first here
-- too, so that neither waits for the other in a circle.
--
-- The same claim, sent again, is told of the jobs that it has: noted before they are told, for from then on they are not only the earlier
-- sending's to give back. One that is being given back is waited for, and taken anew.
CREATE FUNCTION job_claim(
    p_namespace text, p_queues text[], p_weights integer[], p_turns bigint[], p_limit integer,
    p_hash uuid, p_owner text, p_ttl_ms bigint, p_lanes integer[], p_heads bigint[], p_sending uuid, p_pushes boolean
) RETURNS TABLE (
    id uuid, token bigint, queue integer, lane integer, arrival bigint, priority smallint, kind text, payload text,
    attempt bigint, remaining_ms bigint, terms jsonb, extra jsonb, urgent boolean, failures integer, crashes integer,
    checkpoint bytea, effects jsonb
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
    PERFORM notice_server();
    LOCK TABLE job_running IN ROW EXCLUSIVE MODE;
    -- The same claim sent twice waits for itself.
    PERFORM pg_advisory_xact_lock(hashtextextended(p_hash::text, 7461));
    UPDATE job_running r SET taken_up = true WHERE r.hash = p_hash AND NOT r.taken_up AND r.deadline_ms > now_ms();
    RETURN QUERY SELECT * FROM job_take(p_namespace, p_queues, p_weights, p_turns, p_limit, p_hash, p_owner, p_ttl_ms, p_lanes, p_heads,
        p_sending, p_pushes);
END $$;

DO $$
BEGIN
    CALL permit('fencehold_worker', 'execute on function '
        'job_claim(text, text[], integer[], bigint[], integer, uuid, text, bigint, integer[], bigint[], uuid, boolean)');
END $$;
