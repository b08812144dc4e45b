-- Functions that tables call: in the default of a column, and in a trigger. They are made before the tables.

-- Store time. The one place that reads the clock; a test puts another function in its place.
CREATE OR REPLACE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- The number of a new event. The transaction gets its own number first: so a reader that finds a gap knows which transactions may still
-- fill it.
CREATE OR REPLACE FUNCTION next_event() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_current_xact_id();
    RETURN nextval('event_seq');
END $$;

-- A job that comes back has an old place: the note of its lane goes back to it.
CREATE OR REPLACE FUNCTION job_came_back() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE job_head h SET back_low = NEW.arrival - 1 WHERE h.lane = NEW.lane AND h.back_low >= NEW.arrival;
    RETURN NULL;
END $$;

-- Jobs are found by their labels: most have none, and these are not called for them. A queue may have been removed meanwhile.
CREATE OR REPLACE FUNCTION job_labelled() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_body      CONSTANT record := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
    v_namespace CONSTANT text := coalesce(
        (SELECT q.namespace FROM job_lane l JOIN job_queue q ON q.number = l.queue WHERE l.lane = v_body.lane),
        (SELECT g.namespace FROM job_lane_gone g WHERE g.lane = v_body.lane));
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM job_label l USING jsonb_array_elements(v_body.extra->'labels') AS n(label)
            WHERE l.namespace = v_namespace AND l.name = n.label->>0 AND l.value = n.label->>1 AND l.arrival = v_body.arrival;
    ELSE
        INSERT INTO job_label (namespace, name, value, arrival)
            SELECT v_namespace, n.label->>0, n.label->>1, v_body.arrival FROM jsonb_array_elements(v_body.extra->'labels') AS n(label)
            ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
