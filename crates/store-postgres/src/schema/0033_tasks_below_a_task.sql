-- These take a task with all below it as one more argument, which is none for programs that do not know it.
DROP FUNCTION IF EXISTS lease_list(text, text, text, text, boolean, bigint, integer, integer);
DROP FUNCTION IF EXISTS lease_revoke_many(text, text, text, text, bigint, integer, text, text, bigint);
DROP FUNCTION IF EXISTS events_page(text, bigint, text, integer, bigint);
