-- Jobs for the rules of the core: one call loads (and locks) all that a decision needs, one keeps what was decided.

-- Locks the rows by which these jobs stand, and the unique keys, in the stated order. A job that moves while it is waited
-- for is looked for again.
create function job_lock(p_ids uuid[], p_namespace text, p_keys uuid[]) returns void
language plpgsql security definer set search_path from current as $$
declare
    v_left uuid[];
begin
    perform from job_unique u where u.namespace = p_namespace and u.key = any(p_keys) order by u.key for update;
    select array_agg(b.id) into v_left from job_body b where b.id = any(p_ids);
    while v_left is not null loop
        with locked as (select r.id from job_running r where r.id = any(v_left) order by r.id for no key update)
        select array_agg(id) into v_left from unnest(v_left) as id where id not in (select id from locked);
        with locked as (
            select b.id from job_ready r join job_body b on b.arrival = r.arrival and b.lane = r.lane
            where b.id = any(v_left) order by b.id for update of r)
        select array_agg(id) into v_left from unnest(v_left) as id where id not in (select id from locked);
        with locked as (
            select b.id from job_scheduled s join job_body b on b.arrival = s.arrival
            where b.id = any(v_left) order by b.id for update of s)
        select array_agg(id) into v_left from unnest(v_left) as id where id not in (select id from locked);
        with locked as (
            select b.id from job_settled s join job_body b on b.arrival = s.arrival
            where b.id = any(v_left) order by b.id for update of s)
        select array_agg(id) into v_left from unnest(v_left) as id where id not in (select id from locked);
        select array_agg(b.id) into v_left from job_body b where b.id = any(v_left);
    end loop;
end $$;

-- The newest token that was given to any job.
create function job_newest() returns bigint
language sql security definer set search_path from current as $$
    select case when is_called then last_value else last_value - 1 end from job_token;
$$;

-- Everything about these jobs, a row of JSON each, after a row that tells the moment. p_notes: also what their holders left
-- behind. p_masks: without what hold ids are recognised by.
create function job_rows(p_ids uuid[], p_namespace text, p_keys uuid[], p_queues text[], p_notes boolean, p_masks boolean)
returns setof text
language plpgsql security definer set search_path from current as $$
begin
    return query select jsonb_build_object(
        'now_ms', now_ms(), 'newest', job_newest(), 'closed_ms', job_closed_ms(),
        'queues', (select jsonb_agg(jsonb_build_object('namespace', q.namespace, 'name', q.name, 'mode', q.mode) order by q.number)
            from job_queue q where q.namespace = p_namespace and q.name = any(p_queues)),
        'uniques', (select jsonb_agg(jsonb_build_object('key', u.key, 'job', u.job, 'payload', u.payload, 'until_ms', u.until_ms))
            from job_unique u where u.namespace = p_namespace and u.key = any(p_keys)))::text;
    return query
    select jsonb_build_object(
        'arrival', b.arrival, 'id', b.id, 'namespace', q.namespace, 'queue', q.name, 'mode', q.mode, 'priority', l.priority,
        'kind', b.kind, 'payload', b.payload, 'enqueued_ms', b.enqueued_ms, 'terms', b.terms, 'extra', b.extra,
        'state', case when r.id is not null then 2 when y.arrival is not null then 0 when c.arrival is not null then 1
            else s.state end,
        'due_ms', c.due_ms,
        'token', coalesce(r.token, s.token, p.token, 0),
        'since_ms', coalesce(r.since_ms, s.since_ms, p.since_ms, b.enqueued_ms),
        'deadline_ms', r.deadline_ms,
        'claim', case when r.id is not null then jsonb_build_object('hash', job_masked(r.hash, p_masks), 'owner', r.owner,
            'ttl_ms', r.ttl_ms, 'since_ms', r.since_ms, 'asked', r.asked) end,
        'last', case when s.hash is not null then jsonb_build_object('token', s.token, 'hash', job_masked(s.hash, p_masks),
            'owner', s.owner, 'began_ms', s.began_ms, 'ended_ms', s.since_ms, 'late', s.late) end,
        'failures', coalesce(p.failures, 0), 'crashes', coalesce(p.crashes, 0), 'undo', coalesce(p.undo, 0),
        'trail', case when not p_masks or p.trail = 'null' then p.trail else jsonb_set(p.trail, '{attempts}', (
            select coalesce(jsonb_agg(jsonb_set(a.value, '{hash}', '[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]') order by a.ordinality), '[]')
            from jsonb_array_elements(p.trail->'attempts') with ordinality as a)) end,
        'has_result', s.result is not null,
        'result', case when p_notes then s.result end,
        'notes', (select jsonb_object_agg(n.what, case when p_notes then encode(n.bytes, 'hex') end)
            from job_note n where n.arrival = b.arrival),
        'effects', (select jsonb_agg(e.effect) from job_effect e where e.arrival = b.arrival),
        'victim', case when b.extra ? 'yield_within_ms' then (select v.id from job_running v
            where v.asked is not null and v.asked->'notice'->>'contender' = 'job/' || b.id limit 1) end)::text
    from job_body b
    join job_lane l on l.lane = b.lane
    join job_queue q on q.number = l.queue
    left join job_running r on r.id = b.id
    left join job_ready y on y.lane = b.lane and y.arrival = b.arrival
    left join job_scheduled c on c.arrival = b.arrival
    left join job_settled s on s.arrival = b.arrival
    left join job_past p on p.arrival = b.arrival
    where b.id = any(p_ids)
    order by b.arrival;
end $$;

create function job_masked(p_hash uuid, p_masks boolean) returns uuid
language sql immutable as $$
    select case when p_masks then '00000000-0000-0000-0000-000000000000'::uuid else p_hash end
$$;

-- Jobs to decide about: locked, and as they then stand. Whatever waits for a lock waits for p_lock_ms at most.
create function job_load(p_ids uuid[], p_namespace text, p_keys uuid[], p_queues text[], p_notes boolean, p_lock_ms bigint)
returns setof text
language plpgsql security definer set search_path from current as $$
begin
    perform set_config('lock_timeout', greatest(p_lock_ms, 1)::text, true);
    perform job_lock(p_ids, p_namespace, p_keys);
    return query select * from job_rows(p_ids, p_namespace, p_keys, p_queues, p_notes, false);
end $$;

-- Jobs to look at.
create function job_look(p_ids uuid[], p_namespace text, p_notes boolean) returns setof text
language sql security definer set search_path from current as $$
    select * from job_rows(p_ids, p_namespace, null, null, p_notes, true)
$$;

-- Tokens that nobody else gets.
create function job_draw(p_count integer) returns setof bigint
language sql security definer set search_path from current as $$
    select nextval('job_token') from generate_series(1, p_count)
$$;

-- The job that is worked on under a token.
create function job_under(p_token bigint) returns uuid
language sql security definer set search_path from current as $$
    select r.id from job_running r where r.token = p_token
$$;

-- Forgets all of these jobs.
create function job_forget(p_arrivals bigint[]) returns void
language plpgsql security definer set search_path from current as $$
begin
    delete from job_ready r using job_body b where b.arrival = any(p_arrivals) and r.lane = b.lane and r.arrival = b.arrival;
    delete from job_running r using job_body b where b.arrival = any(p_arrivals) and r.id = b.id;
    delete from job_scheduled where arrival = any(p_arrivals);
    delete from job_settled where arrival = any(p_arrivals);
    delete from job_past where arrival = any(p_arrivals);
    delete from job_note where arrival = any(p_arrivals);
    delete from job_effect where arrival = any(p_arrivals);
    delete from job_unique u using job_body b where b.arrival = any(p_arrivals) and b.extra ? 'unique' and u.job = b.id;
    delete from job_body where arrival = any(p_arrivals);
end $$;

-- Puts a job where its new record says.
create function job_place(p_job jsonb, p_arrival bigint) returns void
language plpgsql security definer set search_path from current as $$
declare
    v_state smallint := (p_job->>'state')::smallint;
    v_body  record;
    v_claim jsonb := p_job->'claim';
begin
    select b.id, b.lane, octet_length(b.payload) as bytes, b.extra, b.terms into strict v_body
        from job_body b where b.arrival = p_arrival;
    if v_state = 2 then
        update job_running r set asked = nullif(v_claim->'asked', 'null'), deadline_ms = (p_job->>'deadline_ms')::bigint
            where r.id = v_body.id and r.token = (p_job->>'token')::bigint;
        if found then
            return;
        end if;
    end if;
    delete from job_running r where r.id = v_body.id;
    delete from job_ready r where r.lane = v_body.lane and r.arrival = p_arrival;
    delete from job_scheduled c where c.arrival = p_arrival;
    if p_job->'past' <> 'null' then
        insert into job_past (arrival, token, failures, crashes, attempts, undo, since_ms, trail)
            select p_arrival, p.token, p.failures, p.crashes, p.attempts, p.undo, p.since_ms, p.trail
            from jsonb_to_record(p_job->'past') as p(token bigint, failures integer, crashes integer, attempts bigint,
                undo smallint, since_ms bigint, trail jsonb)
            on conflict (arrival) do update set token = excluded.token, failures = excluded.failures,
                crashes = excluded.crashes, attempts = excluded.attempts, undo = excluded.undo,
                since_ms = excluded.since_ms, trail = excluded.trail;
    end if;
    if v_state >= 3 then
        insert into job_settled (arrival, lane, state, since_ms, keeps)
            values (p_arrival, v_body.lane, v_state, (p_job->>'since_ms')::bigint, (p_job->>'keeps')::boolean)
            on conflict (arrival) do update set state = excluded.state, since_ms = excluded.since_ms, keeps = excluded.keeps,
                token = null, hash = null, owner = null, began_ms = null;
        return;
    end if;
    delete from job_settled s where s.arrival = p_arrival;
    if v_state = 0 then
        insert into job_ready (lane, arrival, bytes, back, past, urgent)
            values (v_body.lane, p_arrival, v_body.bytes, true, p_job->'past' <> 'null', coalesce(v_body.extra ? 'yield_within_ms', false));
    elsif v_state = 1 then
        insert into job_scheduled (arrival, lane, due_ms, bytes, past, urgent)
            values (p_arrival, v_body.lane, (p_job->>'due_ms')::bigint, v_body.bytes, p_job->'past' <> 'null',
                coalesce(v_body.extra ? 'yield_within_ms', false));
    else
        perform job_note_ttl((v_claim->>'ttl_ms')::bigint);
        insert into job_running
            (id, arrival, lane, token, hash, owner, ttl_ms, since_ms, deadline_ms, look_ms, limit_ms, plain, asked)
            values (v_body.id, p_arrival, v_body.lane, (p_job->>'token')::bigint, (v_claim->>'hash')::uuid, v_claim->>'owner',
                (v_claim->>'ttl_ms')::bigint, (v_claim->>'since_ms')::bigint, (p_job->>'deadline_ms')::bigint,
                (p_job->>'deadline_ms')::bigint,
                (v_claim->>'since_ms')::bigint + (v_body.terms->>'attempt_ms')::bigint,
                v_body.extra->'undo_of' is null, nullif(v_claim->'asked', 'null'));
    end if;
end $$;

-- Keeps what was decided. False: a unique key has changed hands since it was looked at, and all must be decided again.
create function job_keep(p_changes jsonb) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    c_new constant bigint := 4611686018427387904; -- from here on, places of jobs that are made here
    v_new      bigint[] := '{}';
    v_arrival  bigint;
    v_change   jsonb;
    v_ids      uuid[] := '{}';
    v_stirred  jsonb := '{}';
    v_space    record;
begin
    for v_change in select value from jsonb_array_elements(p_changes) loop
        v_arrival := (v_change->>'arrival')::bigint;
        if v_arrival >= c_new then
            v_arrival := case when v_change->>'what' = 'body' then nextval('job_arrival') else v_new[v_arrival - c_new + 1] end;
        end if;
        case v_change->>'what'
        when 'body' then
            v_new := v_new || v_arrival;
            insert into job_queue (namespace, name) values (v_change->>'namespace', v_change->>'queue') on conflict do nothing;
            insert into job_lane (queue, priority)
                select q.number, (v_change->>'priority')::smallint from job_queue q
                where q.namespace = v_change->>'namespace' and q.name = v_change->>'queue'
                on conflict do nothing;
            insert into job_body (arrival, id, lane, enqueued_ms, kind, payload, terms, extra)
                select v_arrival, (v_change->>'id')::uuid, l.lane, (v_change->>'enqueued_ms')::bigint, v_change->>'kind',
                    v_change->>'payload', nullif(v_change->'terms', 'null'), nullif(v_change->'extra', 'null')
                from job_queue q join job_lane l on l.queue = q.number and l.priority = (v_change->>'priority')::smallint
                where q.namespace = v_change->>'namespace' and q.name = v_change->>'queue';
        when 'place' then
            perform job_place(v_change, v_arrival);
            if (v_change->>'state')::smallint in (0, 1) then
                v_stirred := v_stirred || jsonb_build_object(v_arrival::text, 1);
            elsif (v_change->>'state')::smallint >= 3 then
                v_ids := v_ids || (v_change->>'id')::uuid;
            end if;
        when 'term' then
            update job_running r set deadline_ms = (v_change->>'deadline_ms')::bigint
                from job_body b where b.arrival = v_arrival and r.id = b.id and r.token = (v_change->>'token')::bigint;
        when 'drop' then
            v_ids := v_ids || array(select b.id from job_body b where b.arrival = v_arrival);
            perform job_forget(array[v_arrival]);
        when 'result' then
            update job_settled s set result = v_change->>'text' where s.arrival = v_arrival;
        when 'note' then
            insert into job_note (arrival, what, bytes)
                values (v_arrival, (v_change->>'note')::smallint, decode(v_change->>'hex', 'hex'))
                on conflict (arrival, what) do update set bytes = excluded.bytes;
        when 'effect' then
            insert into job_effect (arrival, name, effect)
                values (v_arrival, v_change->'effect'->>'name', v_change->'effect')
                on conflict (arrival, name) do update set effect = excluded.effect;
        when 'no_effect' then
            delete from job_effect e where e.arrival = v_arrival and e.name = v_change->>'name';
        when 'unique' then
            insert into job_unique (namespace, key, job, payload, until_ms)
                values (v_change->>'namespace', (v_change->>'key')::uuid, (v_change->>'job')::uuid,
                    (v_change->>'payload')::uuid, (v_change->>'until_ms')::bigint)
                on conflict (namespace, key) do update set job = excluded.job, payload = excluded.payload,
                    until_ms = excluded.until_ms
                    where job_unique.job = (v_change->>'was')::uuid;
            if not found then
                return false;
            end if;
        when 'no_unique' then
            delete from job_unique u where u.namespace = v_change->>'namespace' and u.key = (v_change->>'key')::uuid;
        when 'queue' then
            insert into job_queue (namespace, name, mode)
                values (v_change->>'namespace', v_change->>'name', (v_change->>'mode')::smallint)
                on conflict (namespace, name) do update set mode = excluded.mode;
            perform job_stir(v_change->>'namespace', array[v_change->>'name']);
        when 'schedule' then
            insert into job_schedule (namespace, name, spec, next_ms, last_ms)
                values (v_change->>'namespace', v_change->'spec'->>'name', v_change->'spec',
                    (v_change->>'next_ms')::bigint, (v_change->>'last_ms')::bigint)
                on conflict (namespace, name) do update set spec = excluded.spec, next_ms = excluded.next_ms,
                    last_ms = excluded.last_ms;
        when 'no_schedule' then
            delete from job_schedule s where s.namespace = v_change->>'namespace' and s.name = v_change->>'name';
        when 'note_event' then
            perform note(v_change->>'namespace', v_change->>'key', v_change->'fact', (v_change->>'at_ms')::bigint);
        end case;
    end loop;
    for v_space in
        select q.namespace, array_agg(distinct q.name) as names
        from jsonb_object_keys(v_stirred) as k join job_body b on b.arrival = k::bigint
        join job_lane l on l.lane = b.lane join job_queue q on q.number = l.queue
        group by q.namespace
    loop
        perform job_stir(v_space.namespace, v_space.names);
    end loop;
    if cardinality(v_ids) > 0 then
        perform job_tell_end(v_ids);
    end if;
    return true;
end $$;
