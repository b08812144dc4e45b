-- Contention of keys: `tables_since_21` says what it is.
CREATE TABLE IF NOT EXISTS lease_contention (
    namespace        text COLLATE "C" NOT NULL,
    key              text COLLATE "C" NOT NULL,
    begins_ms        bigint NOT NULL,
    last_ms          bigint NOT NULL,
    refused_count    bigint NOT NULL,
    refused_owner    text,
    refused_task     text,
    refused_ms       bigint,
    max_waiter_count bigint NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX IF NOT EXISTS lease_contention_last ON lease_contention (last_ms);
