-- What deletes the notes of dropped jobs uses `removed_low` and `removed_to`, as all other maintenance.
DROP FUNCTION IF EXISTS tidied_low(text);
DROP FUNCTION IF EXISTS tidied_to(text, bigint, bigint, bigint);
