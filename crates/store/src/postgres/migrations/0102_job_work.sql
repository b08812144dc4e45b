-- What workers and those who give them work ask, each in one call. What these functions do not take, they leave untouched
-- and say so: the caller then decides it by the rules of the core, in a transaction of its own.

-- Tells whoever is first in the lines of these queues that something has happened there. Nobody waits: nobody is told.
create function job_stir(p_namespace text, p_queues text[]) returns void
language sql security definer set search_path from current as $$
    select tell('line/' || f.hash) from (
        select distinct w.hash from unnest(p_queues) as n(name) cross join lateral (
            select o.hash from job_waiter o
            where o.namespace = p_namespace and o.queue = n.name and o.beat > clock_timestamp() - interval '5 seconds'
                and o.until_ms > now_ms()
            order by o.since_ms, o.place limit 1) w) f
$$;

-- Tells those who wait for the end of these jobs.
create function job_tell_end(p_ids uuid[]) returns void
language sql security definer set search_path from current as $$
    select tell('job/' || a.id) from job_awaited a where a.id = any(p_ids)
$$;

-- Whether a job has come to its end, or is gone.
create function job_is_over(p_id uuid) returns boolean
language sql security definer set search_path from current as $$
    select not exists (
        select from job_body b left join job_settled s on s.arrival = b.arrival and s.state in (3, 4, 5)
        where b.id = p_id and s.arrival is null)
$$;

-- Puts jobs into their queues, and returns the numbers (from 1) of those that are new. One whose id is being enqueued at the same
-- moment by somebody else is a unique violation: tried again, it is found.
create function job_enqueue(
    p_namespace text, p_ids uuid[], p_queues text[], p_priorities smallint[], p_kinds text[], p_payloads text[],
    p_terms jsonb[], p_extras jsonb[], p_at_ms bigint[], p_after_ms bigint[], p_urgent boolean[],
    p_keys uuid[], p_digests uuid[], p_windows bigint[]
) returns setof bigint
language plpgsql security definer set search_path from current as $$
declare
    v_now   bigint;
    v_won   uuid[];
begin
    if exists (
        select from unnest(p_queues, p_priorities) as n(name, priority)
        left join job_queue q on q.namespace = p_namespace and q.name = n.name
        left join job_lane l on l.queue = q.number and l.priority = n.priority
        where l.lane is null
    ) then
        insert into job_queue (namespace, name)
            select distinct p_namespace, n.name from unnest(p_queues) as n(name)
            where (select count(*) from job_queue) < 100000
            order by 2
            on conflict do nothing;
        insert into job_lane (queue, priority)
            select distinct q.number, n.priority from unnest(p_queues, p_priorities) as n(name, priority)
            join job_queue q on q.namespace = p_namespace and q.name = n.name
            order by 1, 2
            on conflict do nothing;
    end if;
    -- As `next_event` has it: first the number of the transaction, then those of its events.
    perform pg_current_xact_id();
    v_now := now_ms();
    if p_keys is not null then
        -- A job with a unique key is made only by whoever got the key; of two in one call, by the first.
        with won as (
            insert into job_unique as u (namespace, key, job, payload, until_ms)
                select distinct on (n.key) p_namespace, n.key, n.id, n.digest, v_now + n.span
                from unnest(p_ids, p_queues, p_keys, p_digests, p_windows)
                    with ordinality as n(id, name, key, digest, span, nth)
                join job_queue q on q.namespace = p_namespace and q.name = n.name and q.mode <> 2
                where n.key is not null and not exists (select from job_body b where b.id = n.id)
                order by n.key, n.nth
                on conflict (namespace, key) do update set job = excluded.job, payload = excluded.payload,
                    until_ms = excluded.until_ms
                    where u.until_ms <= v_now and job_is_over(u.job)
                returning job
        )
        select coalesce(array_agg(job), '{}') into v_won from won;
    end if;
    return query
    with fresh as (
        -- The same id twice in one call: the first is the one.
        select distinct on (n.id) n.*, l.lane, coalesce(n.at_ms, v_now + n.after_ms, 0) as due_ms
        from unnest(p_ids, p_queues, p_priorities, p_kinds, p_payloads, p_terms, p_extras, p_at_ms, p_after_ms, p_urgent, p_keys)
            with ordinality as n(id, name, priority, kind, payload, terms, extra, at_ms, after_ms, urgent, key, nth)
        join job_queue q on q.namespace = p_namespace and q.name = n.name and q.mode <> 2
        join job_lane l on l.queue = q.number and l.priority = n.priority
        where (n.key is null or n.id = any(v_won)) and not exists (select from job_body b where b.id = n.id)
        order by n.id, n.nth
    ), new as materialized (
        select f.*, nextval('job_arrival') as arrival from (select * from fresh order by nth) f
    ), body as (
        insert into job_body (arrival, id, lane, enqueued_ms, kind, payload, terms, extra)
            select n.arrival, n.id, n.lane, v_now, n.kind, n.payload, n.terms, n.extra from new n
    ), ready as (
        insert into job_ready (lane, arrival, bytes, back, past, urgent)
            select n.lane, n.arrival, octet_length(n.payload), false, false, n.urgent from new n where n.due_ms <= v_now
    ), later as (
        insert into job_scheduled (arrival, lane, due_ms, bytes, past, urgent)
            select n.arrival, n.lane, n.due_ms, octet_length(n.payload), false, n.urgent from new n where n.due_ms > v_now
    ), told as (
        insert into event (seq, at_ms, namespace, key, fact)
            select nextval('event_seq'), v_now, p_namespace, 'job/' || n.id, jsonb_build_object('job_enqueued', jsonb_build_object(
                'queue', n.name, 'kind', n.kind, 'state', case when n.due_ms > v_now then 'scheduled' else 'queued' end))
            from new n
    )
    select n.nth from new n;
    perform job_stir(p_namespace, p_queues);
end $$;

-- Moves scheduled jobs of these lanes whose time has come to their places among the ready ones. How many were moved.
create function job_wake(p_lanes integer[], p_most integer) returns bigint
language sql security definer set search_path from current as $$
    with due as (
        delete from job_scheduled where ctid = any(array(
            select s.ctid from job_scheduled s where s.lane = any(p_lanes) and s.due_ms <= now_ms()
            order by s.due_ms limit p_most for update skip locked))
        returning lane, arrival, bytes, past, urgent
    ), moved as (
        insert into job_ready (lane, arrival, bytes, back, past, urgent)
            select lane, arrival, bytes, true, past, urgent from due
        returning 1
    )
    select count(*) from moved;
$$;

-- For how long nobody is given anything: somebody may hold a job of whom this store has forgotten.
create function job_closed_ms() returns bigint
language sql security definer set search_path from current as $$
    select greatest(closed_until_ms - now_ms(), 0) from store_state
$$;

-- The longest ttl that was ever given, for `store advance`. Hardly ever a write.
create function job_note_ttl(p_ttl_ms bigint) returns void
language sql security definer set search_path from current as $$
    update store_state set longest_ttl_ms = p_ttl_ms where longest_ttl_ms < p_ttl_ms
$$;

-- Takes jobs. Rows without an id tell the moment, in queue what became of the claim itself (0: it was served; 1: it has these
-- jobs already; -1: the store is
-- closed for so long; -2: its time in line is up; -3: it does not stand in line any more; -4: others come first where there is
-- something), and last the turns of its queues.
--
-- p_heads are positions up to which the asker found a lane's jobs taken a moment ago: below them only jobs that came back
-- are looked for, so that a claim does not wade through what the server has not cleared away yet. p_pushes: past everybody in line.
create function job_claim(
    p_namespace text, p_queues text[], p_weights integer[], p_turns bigint[], p_limit integer,
    p_hash uuid, p_owner text, p_ttl_ms bigint, p_lanes integer[], p_heads bigint[], p_sending uuid, p_pushes boolean
) returns table (
    id uuid, token bigint, queue integer, lane integer, arrival bigint, priority smallint, kind text, payload text,
    attempt bigint, remaining_ms bigint, terms jsonb, extra jsonb, urgent boolean, failures integer, crashes integer,
    checkpoint bytea, effects jsonb
)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
    c_bytes_max constant bigint := 8388608; -- beyond the first job
    c_stride    constant bigint := 1048576;
    v_now     bigint;
    v_closed  bigint;
    v_until   bigint;
    v_since   bigint;
    v_place   bigint;
    v_nth     integer[];  -- by lane: which of the queues
    v_lane    integer[];
    v_head    bigint[];
    v_room    integer[];  -- by queue: how many to take from it
    v_turns   bigint[] := p_turns;
    v_clock   bigint := 0;
    v_pick    integer;
    v_order   integer[] := '{}'; -- the queues in the order of their turns
    v_behind  integer[];
    v_woken   bigint := 0;
    v_bytes   bigint := 0;
    v_ctids   tid[];
    v_sizes   integer[];
    v_keys    bigint[];
    v_past    boolean[];
    v_urgent  boolean[];
    v_got     integer;
    v_most    integer;
    a_nth     integer[] := '{}';
    a_key     bigint[] := '{}';
    a_past    boolean[] := '{}';
    a_urgent  boolean[] := '{}';
begin
    -- The same claim sent twice waits for itself.
    perform pg_advisory_xact_lock(hashtextextended(p_hash::text, 7461));
    v_now := now_ms();
    v_closed := job_closed_ms();
    perform job_note_ttl(p_ttl_ms);
    if v_closed > 0 then
        return query select null::uuid, v_now, -1, null::integer, null::bigint, null::smallint, null::text, null::text, null::bigint,
            v_closed, null::jsonb, null::jsonb, false, 0, 0, null::bytea, null::jsonb;
        return;
    end if;
    return query select null::uuid, v_now, 0, null::integer, null::bigint, null::smallint, null::text, null::text, null::bigint,
        0::bigint, null::jsonb, null::jsonb, false, 0, 0, null::bytea, null::jsonb;
    if exists (
        select from job_running r join job_lane l on l.lane = r.lane join job_queue q on q.number = l.queue
        where r.hash = p_hash and r.deadline_ms > v_now and q.namespace = p_namespace
    ) then
        return query
            select r.id, r.token, array_position(p_queues, q.name), r.lane, r.arrival, l.priority, b.kind, b.payload,
                coalesce(p.attempts, 0) + 1, r.deadline_ms - v_now, b.terms, b.extra, false,
                coalesce(p.failures, 0), coalesce(p.crashes, 0),
                (select n.bytes from job_note n where n.arrival = r.arrival and n.what = 0),
                (select jsonb_agg(e.effect) from job_effect e where e.arrival = r.arrival)
            from job_running r
            join job_body b on b.arrival = r.arrival
            join job_lane l on l.lane = r.lane
            join job_queue q on q.number = l.queue and q.namespace = p_namespace
            left join job_past p on p.arrival = r.arrival
            where r.hash = p_hash and r.deadline_ms > v_now
            order by r.token;
        return query select null::uuid, v_now, 1, null::integer, null::bigint, null::smallint, null::text, null::text,
            null::bigint, 0::bigint, null::jsonb, null::jsonb, false, 0, 0, null::bytea, null::jsonb;
        return;
    end if;
    if p_sending is not null then
        -- Whoever stands in line is given nothing once its time is up, or once a later sending has taken its place.
        select max(w.until_ms), min(w.since_ms), min(w.place) into v_until, v_since, v_place from job_waiter w
            where w.namespace = p_namespace and w.queue = any(p_queues) and w.hash = p_hash and w.sending = p_sending;
        if v_until is null or v_until <= v_now then
            return query select null::uuid, v_now, case when v_until is null then -3 else -2 end, null::integer, null::bigint,
                null::smallint, null::text, null::text, null::bigint, 0::bigint, null::jsonb, null::jsonb, false, 0, 0,
                null::bytea, null::jsonb;
            return;
        end if;
    end if;
    select array_agg(s.nth order by s.nth, s.priority desc) filter (where not s.behind),
        array_agg(s.lane order by s.nth, s.priority desc) filter (where not s.behind),
        array_agg(s.head order by s.nth, s.priority desc) filter (where not s.behind),
        array_agg(s.lane) filter (where s.behind)
        into v_nth, v_lane, v_head, v_behind
        from (
            select n.nth::integer, l.lane, l.priority, coalesce(h.head, 0) as head, exists (
                select from job_waiter w
                where w.namespace = p_namespace and w.queue = n.name and w.hash <> p_hash and w.until_ms > v_now
                    and w.beat > clock_timestamp() - interval '5 seconds'
                    and (v_place is null or (w.since_ms, w.place) < (v_since, v_place))) and not p_pushes as behind
            from unnest(p_queues) with ordinality as n(name, nth)
            join job_queue q on q.namespace = p_namespace and q.name = n.name and q.mode <> 1
            join job_lane l on l.queue = q.number
            left join unnest(p_lanes, p_heads) as h(lane, head) on h.lane = l.lane
        ) s;
    if v_behind is not null and (exists (select from job_ready r where r.lane = any(v_behind))
        or exists (select from job_scheduled s where s.lane = any(v_behind) and s.due_ms <= v_now)) then
        return query select null::uuid, v_now, -4, null::integer, null::bigint, null::smallint, null::text, null::text,
            null::bigint, 0::bigint, null::jsonb, null::jsonb, false, 0, 0, null::bytea, null::jsonb;
    end if;
    if v_lane is null then
        return;
    end if;
    if exists (select from job_scheduled s where s.lane = any(v_lane) and s.due_ms <= v_now) then
        v_woken := job_wake(v_lane, greatest(p_limit, 1000));
    end if;
    v_room := array_fill(p_limit, array[cardinality(p_queues)]);
    if cardinality(p_queues) > 1 then
        -- Whose turn it is: the queue whose own clock is furthest behind; a turn moves it on by the less the more it weighs.
        v_room := array_fill(0, array[cardinality(p_queues)]);
        declare
            v_offers integer[] := v_room;
            v_left   integer;
        begin
            for i in 1 .. cardinality(v_lane) loop
                v_left := p_limit - v_offers[v_nth[i]];
                if v_left > 0 then
                    v_offers[v_nth[i]] := v_offers[v_nth[i]]
                        + (select count(*) from (select from job_ready r
                            where r.lane = v_lane[i] and r.arrival > v_head[i] limit v_left) s)
                        + case when v_head[i] = 0 then 0 else (select count(*) from (select from job_ready r
                            where r.lane = v_lane[i] and r.back and r.arrival <= v_head[i] limit v_left) s) end;
                end if;
            end loop;
            for i in 1 .. p_limit loop
                v_pick := null;
                for j in 1 .. cardinality(p_queues) loop
                    if v_offers[j] > v_room[j]
                        and (v_pick is null or greatest(v_turns[j], v_clock) < greatest(v_turns[v_pick], v_clock)) then
                        v_pick := j;
                    end if;
                end loop;
                exit when v_pick is null;
                v_clock := greatest(v_turns[v_pick], v_clock);
                v_turns[v_pick] := v_clock + c_stride / least(greatest(p_weights[v_pick], 1), c_stride);
                v_room[v_pick] := v_room[v_pick] + 1;
                v_order := v_order || v_pick;
            end loop;
        end;
    end if;
    <<lanes>>
    for i in 1 .. cardinality(v_lane) loop
        for below in 0 .. 1 loop
            v_most := v_room[v_nth[i]];
            continue lanes when v_most <= 0;
            continue when below = 0 and v_head[i] = 0;
            if below = 0 then
                select array_agg(s.ctid), array_agg(s.bytes), array_agg(s.arrival), array_agg(s.past), array_agg(s.urgent)
                    into v_ctids, v_sizes, v_keys, v_past, v_urgent
                    from (select r.ctid, r.* from job_ready r where r.lane = v_lane[i] and r.back and r.arrival <= v_head[i]
                        order by r.arrival limit v_most for update skip locked) s;
            else
                select array_agg(s.ctid), array_agg(s.bytes), array_agg(s.arrival), array_agg(s.past), array_agg(s.urgent)
                    into v_ctids, v_sizes, v_keys, v_past, v_urgent
                    from (select r.ctid, r.* from job_ready r where r.lane = v_lane[i] and r.arrival > v_head[i]
                        order by r.arrival limit v_most for update skip locked) s;
            end if;
            continue when v_ctids is null;
            v_got := cardinality(v_ctids);
            if v_bytes + (select sum(b) from unnest(v_sizes) as b) > c_bytes_max then
                v_got := 0;
                for k in 1 .. cardinality(v_sizes) loop
                    exit when cardinality(a_key) + v_got > 0 and v_bytes + v_sizes[k] > c_bytes_max;
                    v_bytes := v_bytes + v_sizes[k];
                    v_got := v_got + 1;
                end loop;
                v_room := array_fill(0, array[cardinality(p_queues)]);
            else
                v_bytes := v_bytes + (select sum(b) from unnest(v_sizes) as b);
                v_room[v_nth[i]] := v_most - v_got;
            end if;
            delete from job_ready r where r.ctid = any(v_ctids[1:v_got]);
            a_nth := a_nth || array_fill(v_nth[i], array[v_got]);
            a_key := a_key || v_keys[1:v_got];
            a_past := a_past || v_past[1:v_got];
            a_urgent := a_urgent || v_urgent[1:v_got];
        end loop;
    end loop;
    if cardinality(a_key) = 0 then
        if exists (select from job_ready r where r.lane = any(v_lane)) then
            -- Somebody is about to take it, or to give it back.
            return query select null::uuid, v_now, -4, null::integer, null::bigint, null::smallint, null::text, null::text,
                null::bigint, 0::bigint, null::jsonb, null::jsonb, false, 0, 0, null::bytea, null::jsonb;
        end if;
        return;
    end if;
    -- The jobs are ours: now the moment counts.
    v_now := now_ms();
    return query
    with turn as (
        select t.queue, row_number() over (partition by t.queue order by t.nth) as rank, t.nth
        from unnest(v_order) with ordinality as t(queue, nth)
    ), picked as (
        select a.nth, a.arrival, a.past, a.urgent, coalesce(turn.nth, a.pos) as pos
        from (select u.*, row_number() over (partition by u.nth order by u.pos) as rank
            from unnest(a_nth, a_key, a_past, a_urgent) with ordinality as u(nth, arrival, past, urgent, pos)) a
        left join turn on turn.queue = a.nth and turn.rank = a.rank
        order by 5
    ), job as materialized (
        select p.pos, p.nth, p.urgent, p.past, b.*, nextval('job_token') as token, coalesce(h.attempts, 0) + 1 as attempt,
            coalesce(h.failures, 0) as failures, coalesce(h.crashes, 0) as crashes,
            least(p_ttl_ms, coalesce((b.terms->>'attempt_ms')::bigint, p_ttl_ms)) as lasts_ms
        from picked p
        join job_body b on b.arrival = p.arrival
        left join job_past h on p.past and h.arrival = p.arrival
        order by p.pos
    ), ran as (
        insert into job_running
            (id, arrival, lane, token, hash, owner, ttl_ms, since_ms, deadline_ms, look_ms, limit_ms, plain)
            select j.id, j.arrival, j.lane, j.token, p_hash, p_owner, p_ttl_ms, v_now, v_now + j.lasts_ms, v_now + j.lasts_ms,
                v_now + (j.terms->>'attempt_ms')::bigint, j.extra->'undo_of' is null
            from job j
    ), told as (
        insert into event (seq, at_ms, namespace, key, fact)
            select nextval('event_seq'), v_now, p_namespace, 'job/' || j.id, jsonb_build_object('job_claimed',
                jsonb_build_object('token', j.token, 'owner', p_owner, 'attempt', j.attempt))
            from job j
    )
    select j.id, j.token, j.nth, j.lane, j.arrival, l.priority, j.kind, j.payload, j.attempt, j.lasts_ms, j.terms, j.extra, j.urgent,
        j.failures, j.crashes,
        case when j.past then (select n.bytes from job_note n where n.arrival = j.arrival and n.what = 0) end,
        case when j.past then (select jsonb_agg(e.effect) from job_effect e where e.arrival = j.arrival) end
    from job j join job_lane l on l.lane = j.lane
    order by j.pos;
    if p_sending is not null then
        delete from job_waiter w where w.namespace = p_namespace and w.queue = any(p_queues) and w.hash = p_hash;
    end if;
    if p_sending is not null or v_woken > cardinality(a_key) then
        perform job_stir(p_namespace, p_queues);
    end if;
    return query select null::uuid, null::bigint, n.nth::integer, null::integer, null::bigint, null::smallint, null::text, null::text,
        null::bigint, n.clock, null::jsonb, null::jsonb, false, 0, 0, null::bytea, null::jsonb
        from unnest(v_turns || v_clock) with ordinality as n(clock, nth) where cardinality(p_queues) > 1;
end $$;

-- Renews claims that are live and of which nobody asks anything; returns the numbers (from 1) of those, and what remains.
create function job_renew(p_namespace text, p_ids uuid[], p_hashes uuid[], p_tokens bigint[])
returns table (nth bigint, remaining_ms bigint)
language plpgsql security definer set search_path from current as $$
declare
    v_now bigint;
begin
    perform from job_running r where r.id = any(p_ids) order by r.id for no key update;
    v_now := now_ms();
    return query
    -- Named twice in one call, an attempt is renewed for one of its names here, and for the others by the rules.
    with kept as (
        update job_running r
            set deadline_ms = case when r.deadline_ms > v_now + r.ttl_ms then v_now + r.ttl_ms
                else greatest(r.deadline_ms, v_now + least(r.ttl_ms, coalesce(r.limit_ms - v_now, r.ttl_ms))) end
            from unnest(p_ids, p_hashes, p_tokens) with ordinality as s(id, hash, token, nth), job_lane l, job_queue q
            where r.id = s.id and r.hash = s.hash and r.token = s.token and r.deadline_ms > v_now and r.asked is null
                and l.lane = r.lane and q.number = l.queue and q.namespace = p_namespace
            returning s.nth, r.deadline_ms - v_now as remaining_ms
    )
    select k.nth, k.remaining_ms from kept k;
end $$;

-- Completes jobs whose end concerns no other job, under claims that are live, or have run out without anybody noting it; returns
-- the ids of those, and whether it was late.
create function job_complete(p_namespace text, p_ids uuid[], p_hashes uuid[], p_tokens bigint[], p_results text[])
returns table (id uuid, late boolean)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
    v_now  bigint;
    v_done uuid[];
    v_late boolean[];
begin
    perform from job_running r where r.id = any(p_ids) order by r.id for update;
    v_now := now_ms();
    with gone as (
        delete from job_running r
            using unnest(p_ids, p_hashes, p_tokens, p_results) as s(id, hash, token, result), job_lane l, job_queue q
            where r.id = s.id and r.hash = s.hash and r.token = s.token and r.plain
                and l.lane = r.lane and q.number = l.queue and q.namespace = p_namespace
            returning r.id, r.arrival, r.lane, r.token, r.hash, r.owner, r.since_ms, r.deadline_ms <= v_now as late, s.result
    ), settled as (
        insert into job_settled (arrival, lane, state, since_ms, keeps, token, hash, owner, began_ms, late, result)
            select g.arrival, g.lane, 3, v_now, false, g.token, g.hash, g.owner, g.since_ms, g.late, g.result
            from gone g order by g.arrival
    ), told as (
        insert into event (seq, at_ms, namespace, key, fact)
            select nextval('event_seq'), v_now, p_namespace, 'job/' || g.id, jsonb_build_object('job_attempt_ended',
                jsonb_build_object('token', g.token, 'owner', g.owner,
                    'how', case when g.late then 'completed_late' else 'completed' end, 'state', 'completed',
                    'again_in_ms', null))
            from gone g
    )
    select array_agg(g.id), array_agg(g.late) into v_done, v_late from gone g;
    if v_done is not null then
        perform job_tell_end(v_done);
    end if;
    return query select d.id, d.late from unnest(v_done, v_late) as d(id, late);
end $$;
