-- Counts of events: `tables_since_21` says what they are.
CREATE TABLE IF NOT EXISTS event_total (
    kind  text COLLATE "C" PRIMARY KEY,
    count bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS lease_ended_count (
    namespace text COLLATE "C" NOT NULL,
    minute_ms bigint NOT NULL,
    how       text NOT NULL,
    count     bigint NOT NULL,
    PRIMARY KEY (namespace, minute_ms, how)
);
CREATE INDEX IF NOT EXISTS lease_ended_count_at ON lease_ended_count (minute_ms);
