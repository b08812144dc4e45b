-- Standing in line for jobs, and what is done in the background. Any number of processes do it at once: whatever another has
-- locked is passed over.

-- Stands in line, or takes the place of an earlier sending of the same claim. The moment, and the name of this sending.
create function job_line_up(
    p_namespace text, p_queues text[], p_hash uuid, p_wait_ms bigint, p_waited_before_ms bigint
) returns table (now_ms bigint, sending uuid)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
    v_now     bigint := now_ms();
    v_sending uuid := gen_random_uuid();
begin
    insert into job_waiter as w (namespace, queue, hash, sending, since_ms, until_ms, beat)
        select p_namespace, n.name, p_hash, v_sending, v_now - p_waited_before_ms, v_now + p_wait_ms, clock_timestamp()
        from unnest(p_queues) as n(name)
        order by n.name
        on conflict (namespace, queue, hash) do update set sending = excluded.sending, until_ms = excluded.until_ms,
            since_ms = least(w.since_ms, excluded.since_ms), beat = excluded.beat;
    perform tell('line/' || p_hash);
    return query select v_now, v_sending;
end $$;

-- Leaves the line, and has whoever is next look.
create function job_leave_line(p_namespace text, p_hash uuid, p_sending uuid) returns void
language plpgsql security definer set search_path from current as $$
declare
    v_queues text[];
begin
    with gone as (
        delete from job_waiter w where w.namespace = p_namespace and w.hash = p_hash and w.sending = p_sending returning w.queue
    )
    select array_agg(queue) into v_queues from gone;
    perform job_stir(p_namespace, v_queues);
end $$;

-- Those of these sendings are still there. Returns the ones that should look: their time is up, their place is taken, or
-- there is something to be had.
create function job_line_beat(p_sendings uuid[]) returns setof uuid
language plpgsql security definer set search_path from current as $$
declare
    v_now bigint := now_ms();
begin
    update job_waiter w set beat = clock_timestamp() where w.sending = any(p_sendings);
    return query
    select s.sending from unnest(p_sendings) as s(sending)
        where not exists (select from job_waiter w where w.sending = s.sending)
        or exists (select from job_waiter w where w.sending = s.sending and (w.until_ms <= v_now or exists (
            select from job_queue q join job_lane l on l.queue = q.number
            where q.namespace = w.namespace and q.name = w.queue and q.mode <> 1
                and (exists (select from job_ready r where r.lane = l.lane)
                    or exists (select from job_scheduled c where c.lane = l.lane and c.due_ms <= v_now)))));
end $$;

-- Claims that have run out, to be decided upon by the rules. Those that were renewed since are put off.
create function job_run_out(p_most integer) returns setof uuid
language plpgsql security definer set search_path from current as $$
declare
    v_now bigint := now_ms();
begin
    -- A clock that was set back leaves deadlines that are further away than they can be.
    update job_running r set deadline_ms = v_now + r.ttl_ms, look_ms = v_now + r.ttl_ms
        where r.id in (select o.id from job_running o where o.deadline_ms > v_now + o.ttl_ms limit p_most for update skip locked);
    update job_running r set look_ms = r.deadline_ms
        where r.id in (select o.id from job_running o where o.look_ms <= v_now and o.deadline_ms > v_now
            order by o.look_ms limit p_most for no key update skip locked);
    return query
    select o.id from job_running o where o.look_ms <= v_now and o.deadline_ms <= v_now
        order by o.look_ms limit p_most for update skip locked;
end $$;

-- What needs no rules: whoever waits is told of jobs whose time has come; finished ones whose time is over are forgotten, and
-- keys and lines that nobody has any more. True: there is more of it.
create function job_tidy(p_kept_ms bigint, p_most integer) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    v_now    bigint := now_ms();
    v_old    bigint[];
    v_lanes  integer[];
    v_space  record;
begin
    select array_agg(l.lane) into v_lanes from job_lane l
        where exists (select from job_scheduled s where s.lane = l.lane and s.due_ms <= v_now);
    for v_space in
        select q.namespace, array_agg(q.name) as names from job_lane l join job_queue q on q.number = l.queue
        where l.lane = any(v_lanes) group by q.namespace
    loop
        -- They are moved by the claim that takes them.
        perform job_stir(v_space.namespace, v_space.names);
    end loop;
    select array_agg(s.arrival) into v_old from (
        select o.arrival from job_settled o where not o.keeps and o.since_ms <= v_now - p_kept_ms
        order by o.since_ms limit p_most for update skip locked) s;
    if v_old is not null then
        perform job_tell_end(array(select b.id from job_body b where b.arrival = any(v_old)));
        perform job_forget(v_old);
    end if;
    -- Some time after they have come free: whoever asks for one before that takes it over.
    delete from job_unique u where (u.namespace, u.key) in (
        select o.namespace, o.key from job_unique o where o.until_ms <= v_now - 3600000 and job_is_over(o.job)
        order by o.until_ms limit p_most for update skip locked);
    delete from job_waiter w where w.beat < clock_timestamp() - interval '1 minute';
    delete from job_awaited a where a.until < clock_timestamp();
    return coalesce(cardinality(v_old), 0) >= p_most;
end $$;

-- Schedules that are due, as JSON. Whoever gets one holds it until it has fired.
create function job_schedules_due(p_most integer) returns setof text
language sql security definer set search_path from current as $$
    select jsonb_build_object('namespace', s.namespace, 'spec', s.spec, 'next_ms', s.next_ms, 'last_ms', s.last_ms)::text
    from job_schedule s where s.next_ms <= now_ms() order by s.next_ms limit p_most for update skip locked
$$;

-- Queues whose first ready job asks for room, with that job and whom it may ask: who works there at lower priority and was
-- not asked yet.
create function job_room(p_most integer)
returns table (namespace text, queue text, contender uuid, victim uuid)
language sql security definer set search_path from current as $$
    select q.namespace, q.name, b.id, v.id
    from (select distinct l.queue from job_ready u join job_lane l on l.lane = u.lane where u.urgent limit p_most) c
    join job_queue q on q.number = c.queue and q.mode <> 1
    cross join lateral (
        select r.arrival, l.priority, r.urgent from job_lane l
        cross join lateral (select o.* from job_ready o where o.lane = l.lane order by o.arrival limit 1) r
        where l.queue = q.number order by l.priority desc limit 1) h
    join job_body b on b.arrival = h.arrival
    cross join lateral (
        select o.id from job_running o join job_lane l on l.lane = o.lane
        where l.queue = q.number and l.priority < h.priority and (o.asked is null or o.asked->'notice' is null)
        order by l.priority, o.token limit 1) v
    where h.urgent and not exists (
        select from job_running o where o.asked is not null and o.asked->'notice'->>'contender' = 'job/' || b.id)
$$;
