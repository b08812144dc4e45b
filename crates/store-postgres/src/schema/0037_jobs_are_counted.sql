-- Counts of jobs, and lists that read a range of an index: `job_tables` says what they are. The indexes wait for the transactions that write
-- jobs, and keep others from writing until this is committed.
DROP INDEX job_settled_waits;
CREATE INDEX job_settled_state ON job_settled (lane, state, (arrival + 0));
CREATE INDEX job_scheduled_place ON job_scheduled (lane, (arrival + 0));
CREATE INDEX job_body_kind ON job_body (lane, kind COLLATE "C", (arrival + 0));
LOCK TABLE job_running, job_ready, job_scheduled, job_settled IN SHARE ROW EXCLUSIVE MODE;
CREATE TABLE job_change (
    xact    xid8 NOT NULL DEFAULT pg_current_xact_id(),
    lane    integer NOT NULL,
    was     smallint,
    becomes smallint,
    count   integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
ALTER TABLE job_change REPLICA IDENTITY FULL;
CREATE INDEX job_change_xact ON job_change (xact);

CREATE TABLE job_count (
    queue integer NOT NULL,
    state smallint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (queue, state)
) WITH (fillfactor = 50);

CREATE TABLE job_counted (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    seen       pg_snapshot NOT NULL DEFAULT '1:1:',
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    recount_at timestamptz NOT NULL DEFAULT clock_timestamp() + interval '10 minutes'
) WITH (fillfactor = 50);
INSERT INTO job_counted DEFAULT VALUES;

CREATE TABLE job_label (
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    value     text COLLATE "C" NOT NULL,
    arrival   bigint NOT NULL,
    PRIMARY KEY (namespace, name, value, arrival)
);
CREATE TRIGGER job_labels_added AFTER INSERT ON job_body FOR EACH ROW WHEN (NEW.extra ? 'labels') EXECUTE FUNCTION job_labelled();
CREATE TRIGGER job_labels_removed AFTER DELETE ON job_body FOR EACH ROW WHEN (OLD.extra ? 'labels') EXECUTE FUNCTION job_labelled();

-- A call that waited for this with the function of the version before counts nothing: `recount_at` is soon.
INSERT INTO job_count (queue, state, count)
    SELECT l.queue, j.state, count(*) FROM (
        SELECT r.lane, 0 AS state FROM job_ready r
        UNION ALL
        SELECT c.lane, 1 FROM job_scheduled c
        UNION ALL
        SELECT r.lane, 2 FROM job_running r
        UNION ALL
        SELECT s.lane, s.state FROM job_settled s) AS j
    JOIN job_lane l ON l.lane = j.lane
    GROUP BY 1, 2;
INSERT INTO job_label (namespace, name, value, arrival)
    SELECT coalesce(q.namespace, g.namespace), n.label->>0, n.label->>1, b.arrival
    FROM job_body b CROSS JOIN LATERAL jsonb_array_elements(b.extra->'labels') AS n(label)
    LEFT JOIN job_lane l ON l.lane = b.lane LEFT JOIN job_queue q ON q.number = l.queue LEFT JOIN job_lane_gone g ON g.lane = b.lane
    WHERE b.extra ? 'labels' AND coalesce(q.namespace, g.namespace) IS NOT NULL
    ON CONFLICT DO NOTHING;
