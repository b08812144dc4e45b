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
