-- From schema 21 to 30: tables, what is in them, and functions that have another name or other arguments now. Tables that are new come first
-- (`tables_since_21`). All other functions, the views and the rights of roles follow from the files that a new schema is made from.

-- The store. The longest ttl on record stays there: it is not known in which namespace it was granted.
ALTER TABLE migration ADD COLUMN compatible_from integer;
ALTER TABLE store_state ADD COLUMN suspensions smallint NOT NULL DEFAULT 0,
    ADD COLUMN events_lost bigint NOT NULL DEFAULT 0,
    ADD COLUMN events_removed_at timestamptz NOT NULL DEFAULT '-infinity';

-- Events. While the tables are locked, no transaction has a number that is not committed: what is missing does not come any more.
LOCK TABLE event, job_event IN SHARE MODE;
SELECT setval('event_next', greatest((SELECT max(seq) FROM event), (SELECT max(last_seq) FROM job_event), 0) + 1, false);
UPDATE store_state SET events_lost = greatest(events_oldest() - 1, 0);
ALTER TABLE event ADD COLUMN drawn bigint;
ALTER TABLE job_event ADD COLUMN drawn bigint[];

-- Jobs.
ALTER TABLE job_dropped REPLICA IDENTITY FULL;
CREATE TRIGGER job_came_back AFTER INSERT OR UPDATE ON job_ready FOR EACH ROW WHEN (NEW.back) EXECUTE FUNCTION job_came_back();
CREATE INDEX job_scheduled_at ON job_scheduled (due_ms);
CREATE INDEX job_settled_waits ON job_settled (lane) WHERE state > 5;
-- The next moment of every schedule is computed again, once.
ALTER TABLE job_schedule ADD COLUMN noted_ms bigint NOT NULL DEFAULT 9223372036854775807;
ALTER TABLE job_schedule ALTER noted_ms SET DEFAULT now_ms();
CREATE INDEX job_schedule_noted ON job_schedule (noted_ms);

-- Functions. Those that only have another name keep their rights.
ALTER FUNCTION raise RENAME TO raise_mark;
ALTER FUNCTION guard RENAME TO fence_resource;
ALTER FUNCTION job_enqueue RENAME TO job_enqueue_batch;
ALTER FUNCTION job_complete RENAME TO job_complete_batch;
ALTER FUNCTION fence_job RENAME TO fence_job_before;
ALTER FUNCTION lease_sweep RENAME TO lease_sweep_before;
-- Those with other arguments are made here without a body, so that the roles that may call the old one may call the new one.
CREATE FUNCTION enqueue_job(queue text, kind text, payload jsonb, priority integer, run_at timestamptz, unique_key text,
    unique_window interval, labels jsonb, namespace text, id uuid) RETURNS uuid LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION complete_job(job_id uuid, hold_id text, token bigint, result jsonb) RETURNS void LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION record_effect(job_id uuid, hold_id text, token bigint, effect text, value jsonb) RETURNS jsonb
    LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION open_fences() RETURNS TABLE (namespace text, key text, owner text, task text, job_id uuid, pid integer, age_ms bigint)
    LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION fence_job(job_id uuid, token bigint) RETURNS void LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION lease_sweep(most integer, not_after_ms bigint) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN END';
DO $$
DECLARE
    c_instead CONSTANT text[] := ARRAY[
        ARRAY['enqueue_job', 'enqueue'],
        ARRAY['complete_job', 'complete'],
        ARRAY['record_effect', 'once'],
        ARRAY['open_fences', 'fences_open'],
        ARRAY['fence_job', 'fence_job_before'],
        ARRAY['lease_sweep', 'lease_sweep_before']];
    granted record;
BEGIN
    FOR i IN 1 .. array_length(c_instead, 1) LOOP
        FOR granted IN
            SELECT a.grantee::regrole AS role, a.is_grantable FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) AS a
            WHERE p.oid = c_instead[i][2]::regproc AND a.grantee NOT IN (0, p.proowner)
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %I TO %s%s', c_instead[i][1], granted.role,
                CASE WHEN granted.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
        END LOOP;
    END LOOP;
END $$;
DROP FUNCTION enqueue;
DROP FUNCTION complete;
DROP FUNCTION once;
DROP FUNCTION fences_open;
DROP FUNCTION fence_job_before;
DROP FUNCTION lease_sweep_before;
DROP FUNCTION events_read;
DROP FUNCTION job_closed_ms;
DROP FUNCTION job_events;
DROP FUNCTION job_note_ttl;
DROP FUNCTION lease_advance;
DROP PROCEDURE permit;
