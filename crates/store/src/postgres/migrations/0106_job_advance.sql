-- After `store advance` nothing from before speaks for a job any more: the part of jobs in it.

-- The attempts of a job that ended, with one more, as `fencehold_core::job::Trail` is written in JSON.
create function job_trail_with(p_trail jsonb, p_run job_running, p_how text, p_ended_ms bigint) returns jsonb
language sql security definer set search_path from current as $$
    with kept as (
        select coalesce(p_trail->'attempts', '[]'::jsonb) as attempts, coalesce((p_trail->>'forgotten')::bigint, 0) as forgotten
    ), room as (
        -- As many as the core remembers.
        select case when jsonb_array_length(attempts) >= 16 then attempts - 0 else attempts end as attempts,
            forgotten + case when jsonb_array_length(attempts) >= 16 then 1 else 0 end as forgotten
        from kept
    )
    select jsonb_build_object('forgotten', forgotten, 'attempts', attempts || jsonb_build_object(
        'token', p_run.token, 'owner', p_run.owner, 'how', p_how, 'error', null,
        'hash', (select jsonb_agg(get_byte(uuid_send(p_run.hash), i) order by i) from generate_series(0, 15) as i),
        'since', jsonb_build_object('store_ms', p_run.since_ms, 'wall_ms', p_run.since_ms),
        'ended', jsonb_build_object('store_ms', p_ended_ms, 'wall_ms', p_ended_ms)))
    from room
$$;

create or replace function advance_jobs(lift bigint, by_owner text) returns text
language plpgsql security definer set search_path from current as $$
declare
    v_now    bigint;
    v_newest bigint;
    v_run    job_running;
    v_past   job_past;
    v_name   record;
begin
    lock table job_running, job_ready, job_scheduled, job_settled in exclusive mode;
    v_now := now_ms();
    v_newest := job_newest() + lift;
    if v_newest > 9007199254740991 then
        return 'the tokens of jobs';
    end if;
    perform setval('job_token', v_newest);
    for v_run in select * from job_running order by id loop
        if v_run.asked->'cancel' is not null then
            -- It was called off: the sweep says so, and has its effects undone.
            update job_running set deadline_ms = 0, look_ms = 0 where id = v_run.id;
            continue;
        end if;
        select * into v_past from job_past p where p.arrival = v_run.arrival;
        insert into job_past (arrival, token, failures, crashes, attempts, undo, since_ms, trail)
            values (v_run.arrival, v_newest, coalesce(v_past.failures, 0), coalesce(v_past.crashes, 0),
                coalesce(v_past.attempts, 0) + 1, coalesce(v_past.undo, 0), v_now,
                job_trail_with(v_past.trail, v_run, 'advanced', v_now))
            on conflict (arrival) do update set token = excluded.token, attempts = excluded.attempts,
                since_ms = excluded.since_ms, trail = excluded.trail;
        delete from job_running where id = v_run.id;
        insert into job_ready (lane, arrival, bytes, back, past, urgent)
            select b.lane, b.arrival, octet_length(b.payload), true, true, coalesce(b.extra ? 'yield_within_ms', false)
            from job_body b where b.arrival = v_run.arrival;
        select q.namespace into v_name from job_lane l join job_queue q on q.number = l.queue where l.lane = v_run.lane;
        perform note(v_name.namespace, 'job/' || v_run.id, jsonb_build_object('job_attempt_ended', jsonb_build_object(
            'token', v_run.token, 'owner', v_run.owner, 'how', 'advanced', 'state', 'queued', 'again_in_ms', 0)), v_now);
    end loop;
    -- Somebody may have had the job in the time that was lost, so what was late before is stale now.
    update job_past p set token = v_newest
        where p.token < v_newest and (p.trail->'attempts'->-1->>'token')::bigint = p.token
            and p.trail->'attempts'->-1->>'how' in ('crashed', 'timed_out', 'yielded')
            and not exists (select from job_settled s where s.arrival = p.arrival and s.state in (3, 4, 5));
    perform tell('line/' || w.hash) from (select distinct hash from job_waiter) w;
    return null;
end $$;

-- How many jobs have not come to their end.
create function job_live() returns bigint
language sql security definer set search_path from current as $$
    select (select count(*) from job_ready) + (select count(*) from job_scheduled) + (select count(*) from job_running)
        + (select count(*) from job_settled where state not in (3, 4, 5))
$$;
