-- A million queued and a million finished jobs, in two queues of one namespace and one of another: some failed, of a rare kind, with labels, running.
-- Into a new schema, which must be the search path: see docs/benchmarks/lists.md. `-v finished=N` makes so many finished jobs.
\if :{?finished}
\else
    \set finished 1000000
\endif
INSERT INTO job_queue (namespace, name) VALUES ('default', 'big'), ('default', 'small'), ('other', 'big');
INSERT INTO job_lane (queue, priority) SELECT number, 0 FROM job_queue;
INSERT INTO job_lane (queue, priority) SELECT 1, 5;
INSERT INTO job_body (arrival, id, lane, enqueued_ms, kind, payload, extra)
    SELECT n, md5(n::text)::uuid, CASE WHEN n % 100 = 99 AND n > 1900000 THEN 2 WHEN n % 7 = 0 THEN 4 ELSE 1 END, now_ms(),
        CASE WHEN n % 1000 = 999 AND n > 1500000 THEN 'rare' ELSE 'common' END,
        '{"to":"user' || n || '@example.com","body":"' || repeat('x', 100) || '"}',
        CASE WHEN n > 1900000 AND n % 100 = 50 THEN
            jsonb_build_object('labels', jsonb_build_array(jsonb_build_array('tenant', 't' || n % 7), jsonb_build_array('env', 'prod'))) END
    FROM generate_series(1, :finished + 1000000) AS n;
INSERT INTO job_settled (arrival, lane, state, since_ms, keeps, token, hash, owner, began_ms)
    SELECT b.arrival, b.lane, CASE WHEN b.arrival > 900000 AND b.arrival % 100 = 0 THEN 4 ELSE 3 END, now_ms(), false, b.arrival, b.id, 'w', now_ms()
    FROM job_body b WHERE b.arrival <= :finished;
INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
    SELECT b.lane, b.arrival, 140, false, false, false FROM job_body b WHERE b.arrival > :finished AND b.arrival % 1000 <> 7;
INSERT INTO job_running (id, arrival, lane, token, hash, owner, ttl_ms, since_ms, deadline_ms, plain)
    SELECT b.id, b.arrival, b.lane, b.arrival, b.id, CASE WHEN b.arrival % 50000 = 7 THEN 'worker-1' ELSE 'worker-2' END, 36000000, now_ms(),
        now_ms() + 36000000, true
    FROM job_body b WHERE b.arrival > :finished AND b.arrival % 1000 = 7;
SELECT setval('job_arrival', :finished + 1000000), setval('job_token', :finished + 1000000);
VACUUM ANALYZE;
