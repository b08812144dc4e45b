-- Whose turn the background work is: `tables` says what they are.
CREATE SEQUENCE upkeep_handle AS bigint;
CREATE SEQUENCE leases_turn_handle AS bigint;
CREATE SEQUENCE leases_turn_until AS bigint;
CREATE SEQUENCE leases_turn_asked AS bigint;
CREATE SEQUENCE jobs_turn_handle AS bigint;
CREATE SEQUENCE jobs_turn_until AS bigint;
CREATE SEQUENCE jobs_turn_asked AS bigint;
