-- Looking at many jobs.

-- The jobs that match, in the order of their arrival, of the next p_look ones; then a row without an id that tells where the look
-- ended, and null where there is nothing beyond.
create function job_list(
    p_namespace text, p_from bigint, p_queue text, p_kind text, p_states smallint[], p_labels jsonb, p_owner text,
    p_contains text, p_limit integer, p_look integer
) returns table (arrival bigint, id uuid)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
    v_last  bigint;
    v_count bigint;
begin
    return query
    select b.arrival, b.id
    from (select o.* from job_body o where o.arrival >= p_from order by o.arrival limit p_look) b
    join job_lane l on l.lane = b.lane
    join job_queue q on q.number = l.queue
    left join job_running r on r.id = b.id
    left join job_ready y on y.lane = b.lane and y.arrival = b.arrival
    left join job_scheduled c on c.arrival = b.arrival
    left join job_settled s on s.arrival = b.arrival
    where q.namespace = p_namespace
        and (p_queue is null or q.name = p_queue)
        and (p_kind is null or b.kind = p_kind)
        and (p_states is null or p_states @> array[case when r.id is not null then 2 when y.arrival is not null then 0
            when c.due_ms <= now_ms() then 0 when c.arrival is not null then 1 else s.state end::smallint])
        and (p_owner is null or r.owner = p_owner)
        and (p_contains is null or position(p_contains in b.payload) > 0)
        and not exists (
            select from jsonb_array_elements(p_labels) as want
            where not exists (select from jsonb_array_elements(b.extra->'labels') as has where has = want))
    order by b.arrival
    limit p_limit;
    select max(o.arrival), count(*) into v_last, v_count
        from (select o.arrival from job_body o where o.arrival >= p_from order by o.arrival limit p_look) o;
    return query select case when v_count = p_look then v_last end, null::uuid;
end $$;

-- Every queue of a namespace with its jobs in each state (1 to 8, in the order of the states) and those who wait for them.
create function job_queues(p_namespace text, p_name text)
returns table (name text, mode smallint, counts bigint[], claimers bigint)
language sql security definer set search_path from current as $$
    with mine as (
        select q.number, q.name, q.mode from job_queue q
        where q.namespace = p_namespace and (p_name is null or q.name = p_name)
    ), tally as (
        select l.queue, 0 as state, count(*) as n from job_ready r join job_lane l on l.lane = r.lane group by 1
        union all
        select l.queue, case when c.due_ms <= now_ms() then 0 else 1 end, count(*)
            from job_scheduled c join job_lane l on l.lane = c.lane group by 1, 2
        union all
        select l.queue, 2, count(*) from job_running r join job_lane l on l.lane = r.lane group by 1
        union all
        select l.queue, s.state, count(*) from job_settled s join job_lane l on l.lane = s.lane group by 1, 2
    ), line as (
        select w.queue, count(*) as n from job_waiter w
        where w.namespace = p_namespace and w.until_ms > now_ms() and w.beat > clock_timestamp() - interval '5 seconds'
            and (p_name is null or w.queue = p_name)
        group by 1
    )
    select coalesce(m.name, line.queue), coalesce(m.mode, 0::smallint),
        array(select coalesce((select sum(t.n) from tally t where t.queue = m.number and t.state = k), 0)::bigint
            from generate_series(0, 7) as k order by k),
        coalesce(line.n, 0)
    from mine m full join line on line.queue = m.name
    order by 1
$$;

-- From now on the end of this job is told.
create function job_await(p_id uuid, p_wait_ms bigint) returns void
language sql security definer set search_path from current as $$
    insert into job_awaited as a (id, until) values (p_id, clock_timestamp() + make_interval(secs => p_wait_ms / 1000.0 + 60))
        on conflict (id) do update set until = greatest(a.until, excluded.until)
$$;

-- Jobs that have effects, in the order of their arrival.
create function job_with_effects(p_namespace text, p_from bigint, p_limit bigint) returns setof uuid
language sql security definer set search_path from current as $$
    select b.id from job_body b
    join job_lane l on l.lane = b.lane
    join job_queue q on q.number = l.queue and q.namespace = p_namespace
    where b.arrival >= p_from and exists (select from job_effect e where e.arrival = b.arrival)
    order by b.arrival limit p_limit
$$;

create function job_schedule_text(p_schedule job_schedule) returns text
language sql immutable as $$
    select jsonb_build_object('namespace', p_schedule.namespace, 'spec', p_schedule.spec, 'next_ms', p_schedule.next_ms,
        'last_ms', p_schedule.last_ms)::text
$$;

create function job_schedules(p_namespace text) returns setof text
language sql security definer set search_path from current as $$
    select job_schedule_text(s) from job_schedule s where s.namespace = p_namespace order by s.name collate "C"
$$;

-- A schedule that is about to be made or changed, and how many there are: whoever is about to do the same waits.
create function job_schedule_hold(p_namespace text, p_name text, out schedule text, out total bigint)
language plpgsql security definer set search_path from current as $$
begin
    perform pg_advisory_xact_lock(hashtextextended(p_namespace || '/' || p_name, 7462));
    select job_schedule_text(s) into schedule from job_schedule s where s.namespace = p_namespace and s.name = p_name;
    select count(*) into total from job_schedule s where s.namespace = p_namespace;
end $$;

create function job_unschedule(p_namespace text, p_name text) returns boolean
language sql security definer set search_path from current as $$
    with gone as (delete from job_schedule s where s.namespace = p_namespace and s.name = p_name returning 1)
    select exists (select from gone)
$$;
