DROP FUNCTION IF EXISTS job_on_offer(integer);
