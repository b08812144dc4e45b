-- Whoever decides about jobs has them locked while it thinks, for about a round trip. One that is stopped there, or whose machine
-- has vanished, would keep them from everybody: after a while the server ends its session. A setting,
-- `fencehold.decision_idle_ms`; never longer than what is in force already.
CREATE FUNCTION job_idle_limit() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c_setting CONSTANT text := 'idle_in_transaction_session_timeout';
    wanted   bigint := coalesce(nullif(current_setting('fencehold.decision_idle_ms', true), '')::bigint, 5000);
    in_force bigint := extract(epoch FROM current_setting(c_setting)::interval) * 1000;
BEGIN
    IF wanted > 0 AND (in_force = 0 OR in_force > wanted) THEN
        PERFORM set_config(c_setting, wanted::text, true);
    END IF;
END $$;

DO $$
BEGIN
    CALL permit('fencehold_worker', 'EXECUTE ON FUNCTION job_idle_limit()');
END $$;
