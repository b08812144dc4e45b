-- Jobs in transactions of users' own, from any language: what is rolled back there has not happened here either.
--
-- The SQLSTATEs are those of the fences: FH001 stale, FH002 ended, FH003 unknown; and FH004 where a queue takes no new jobs.

-- Enqueues a job, and returns its id; of one with the same unique key, the first one's. p_after_ms puts it off.
create function enqueue(
    queue text, kind text, payload jsonb, priority smallint default 0, run_at timestamptz default null,
    unique_key text default null, unique_window interval default '1 day', labels jsonb default null,
    namespace text default 'default', id uuid default null
) returns uuid
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
    v_id     uuid := coalesce(enqueue.id, job_new_id());
    v_digest uuid;
    v_key    uuid;
    v_text   text := enqueue.payload::text;
    v_first  record;
    v_pairs  jsonb;
    v_made   bigint;
begin
    perform job_check_name('queue', enqueue.queue, 128), job_check_name('kind', enqueue.kind, 128),
        job_check_name('namespace', enqueue.namespace, 64);
    if enqueue.queue like 'fencehold/%' then
        raise exception using errcode = '22023', message = format('queue %s is reserved: names that start with fencehold/ are', enqueue.queue);
    end if;
    if v_text is null or octet_length(v_text) > 1048576 then
        raise exception using errcode = '22023', message = format('payload takes JSON of up to 1048576 bytes, and this has %s',
            coalesce(octet_length(v_text), 0));
    end if;
    if enqueue.labels is not null then
        if jsonb_typeof(enqueue.labels) <> 'object'
            or exists (select from jsonb_each(enqueue.labels) as l where jsonb_typeof(l.value) <> 'string'
                or octet_length(l.key) not between 1 and 64 or octet_length(l.value #>> '{}') > 256)
            or (select count(*) from jsonb_object_keys(enqueue.labels)) > 16 then
            raise exception using errcode = '22023',
                message = 'labels take an object of up to 16 texts: names of up to 64 bytes, values of up to 256';
        end if;
        select jsonb_agg(jsonb_build_array(l.key, l.value) order by l.key) into v_pairs from jsonb_each(enqueue.labels) as l;
    end if;
    if enqueue.unique_key is not null then
        perform job_check_name('unique key', enqueue.unique_key, 512);
        -- As the library has it: the first half of the SHA-256.
        v_key := encode(substr(sha256(convert_to('job:' || enqueue.unique_key, 'UTF8')), 1, 16), 'hex')::uuid;
        v_digest := encode(substr(sha256(convert_to(v_text, 'UTF8')), 1, 16), 'hex')::uuid;
    end if;
    for attempt in 1 .. 3 loop
        select e into v_made from job_enqueue(enqueue.namespace, array[v_id], array[enqueue.queue], array[enqueue.priority],
            array[enqueue.kind], array[v_text], array[null::jsonb],
            array[nullif(jsonb_strip_nulls(jsonb_build_object('labels', v_pairs, 'unique', enqueue.unique_key)), '{}')],
            array[floor(extract(epoch from enqueue.run_at) * 1000)::bigint], array[null::bigint], array[false],
            case when v_key is null then null else array[v_key] end, array[v_digest],
            array[floor(extract(epoch from enqueue.unique_window) * 1000)::bigint]) as e;
        if v_made is not null then
            return v_id;
        end if;
        select b.payload, b.kind, q.name, q.namespace into v_first
            from job_body b join job_lane l on l.lane = b.lane join job_queue q on q.number = l.queue where b.id = v_id;
        if found then
            if v_first.payload = v_text and v_first.kind = enqueue.kind and v_first.name = enqueue.queue
                and v_first.namespace = enqueue.namespace then
                return v_id;
            end if;
            raise exception using errcode = '23505', message = format('the id is taken by job %s, which has another payload', v_id);
        end if;
        if exists (select from job_queue q where q.namespace = enqueue.namespace and q.name = enqueue.queue and q.mode = 2) then
            raise exception using errcode = 'FH004',
                message = format('queue %s is being drained and takes no new jobs', enqueue.queue), hint = '`queue resume` opens it again.';
        end if;
        -- Somebody has the key: for its window, and until its job has come to its end.
        select u.* into v_first from job_unique u where u.namespace = enqueue.namespace and u.key = v_key for update;
        if found then
            if v_first.until_ms > now_ms() or not job_is_over(v_first.job) then
                if v_first.payload <> v_digest then
                    raise exception using errcode = '23505',
                        message = format('the unique key is taken by job %s, which has another payload', v_first.job);
                end if;
                return v_first.job;
            end if;
            delete from job_unique u where u.namespace = enqueue.namespace and u.key = v_key;
        end if;
    end loop;
    raise exception using errcode = '40001', message = 'others enqueue the same job again and again; try the transaction again';
end $$;

-- An id as the library makes them: a UUID of version 7.
create function job_new_id() returns uuid
language sql security definer set search_path from current as $$
    select encode(set_byte(overlay(uuid_send(gen_random_uuid()) placing substr(int8send(now_ms()), 3) from 1 for 6),
        6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112), 'hex')::uuid
$$;

create function job_check_name(p_what text, p_name text, p_most integer) returns void
language plpgsql immutable set search_path from current as $$
begin
    if p_name is null or octet_length(p_name) not between 1 and p_most or p_name ~ '[[:cntrl:]]' then
        raise exception using errcode = '22023',
            message = format('%s takes 1 to %s bytes without control characters', p_what, p_most);
    end if;
end $$;

-- Passes under the newest token of a job, unless its attempt has ended; one that ran out passes, as long as nobody has had the
-- job since. Until the transaction ends, nobody is given the job; its holder's renewals go on.
create function fence_job(job uuid, token bigint) returns void
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
    v_body    job_body;
    v_newest  bigint;
    v_past    job_past;
    v_settled job_settled;
    v_last    jsonb;
begin
    perform fence_idle_limit();
    select * into v_body from job_body b where b.id = fence_job.job;
    if not found then
        raise exception using errcode = 'FH002', message = format('job %s: there is no such job', fence_job.job),
            hint = 'Roll back. It never was, or it was deleted, or pruned after its time.';
    end if;
    if fence_job.token > job_newest() then
        raise exception using errcode = 'FH003',
            message = format('job %s: token %s was never given here; the newest is %s', fence_job.job, fence_job.token, job_newest()),
            hint = 'Roll back. The store was rewound, or this token is another store''s: see `fencehold store advance`.';
    end if;
    loop
        -- A renewal goes past a lock like this; whatever ends the claim waits for it.
        select r.token into v_newest from job_running r where r.id = fence_job.job for key share;
        if found then
            exit when v_newest = fence_job.token;
            perform job_stale(fence_job.job, fence_job.token, v_newest);
        end if;
        perform from job_ready r where r.lane = v_body.lane and r.arrival = v_body.arrival for key share;
        if not found then
            perform from job_scheduled c where c.arrival = v_body.arrival for key share;
        end if;
        if not found then
            select * into v_settled from job_settled s where s.arrival = v_body.arrival for key share;
        end if;
        -- It may have moved while it was looked for.
        continue when not found and exists (select from job_body b where b.id = fence_job.job);
        select * into v_past from job_past p where p.arrival = v_body.arrival;
        v_newest := coalesce(v_settled.token, v_past.token, 0);
        if v_newest <> fence_job.token then
            perform job_stale(fence_job.job, fence_job.token, v_newest);
        end if;
        v_last := v_past.trail->'attempts'->-1;
        exit when coalesce(v_settled.state, 6) = 6 and (v_last->>'token')::bigint = fence_job.token
            and v_last->>'how' in ('crashed', 'timed_out', 'yielded');
        raise exception using errcode = 'FH002',
            message = format('job %s: the attempt under token %s is over', fence_job.job, fence_job.token),
            hint = 'Roll back: what it had to say of its job has been said, or somebody ended it.';
    end loop;
end $$;

create function job_stale(p_job uuid, p_shown bigint, p_newest bigint) returns void
language plpgsql security definer set search_path from current as $$
begin
    raise exception using errcode = 'FH001',
        message = format('job %s: token %s is stale; the newest is %s', p_job, p_shown, p_newest),
        hint = 'Roll back: the job went on without this attempt.';
end $$;

-- Completes a job in the transaction that does its work: either both are there afterwards, or neither. The hold id is the one
-- that the claim was made with, as 32 hexadecimal digits.
create function complete(job uuid, hold text, token bigint, result jsonb default null) returns void
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
begin
    perform job_complete_hashed(complete.job, encode(substr(sha256(decode(complete.hold, 'hex')), 1, 16), 'hex')::uuid,
        complete.token, complete.result::text);
end $$;

create function job_complete_hashed(p_job uuid, p_hash uuid, p_token bigint, p_result text) returns void
language plpgsql security definer set search_path from current as $$
declare
    v_namespace text;
    v_settled   job_settled;
    v_run       job_running;
begin
    select q.namespace into v_namespace from job_body b join job_lane l on l.lane = b.lane join job_queue q on q.number = l.queue
        where b.id = p_job;
    if octet_length(p_result) > 1048576 then
        raise exception using errcode = '22023', message = 'result takes JSON of up to 1048576 bytes';
    end if;
    if exists (select from job_complete(v_namespace, array[p_job], array[p_hash], array[p_token], array[p_result])) then
        return;
    end if;
    -- The same word again.
    select s.* into v_settled from job_settled s join job_body b on b.arrival = s.arrival where b.id = p_job for key share of s;
    if v_settled.state = 3 and v_settled.token = p_token and v_settled.hash = p_hash then
        return;
    end if;
    perform fence_job(p_job, p_token);
    select * into v_run from job_running r where r.id = p_job;
    if v_run.id is not null and v_run.hash <> p_hash then
        raise exception using errcode = 'FH002', message = format('job %s: the hold id is not the one that token %s was given to', p_job, p_token);
    end if;
    raise exception using errcode = 'FH002',
        message = format('job %s: the claim under token %s has run out, or its end concerns other jobs', p_job, p_token),
        hint = 'Commit the work, and report the completion outside: it is accepted late while nobody else has had the job.';
end $$;

-- Records an effect of a live attempt in the transaction that has it. The value: as it was said, or as the first one said it.
create function once(job uuid, hold text, token bigint, effect text, value jsonb) returns jsonb
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
begin
    return job_once_hashed(once.job, encode(substr(sha256(decode(once.hold, 'hex')), 1, 16), 'hex')::uuid, once.token,
        once.effect, once.value);
end $$;

create function job_once_hashed(p_job uuid, p_hash uuid, p_token bigint, p_effect text, p_value jsonb) returns jsonb
language plpgsql security definer set search_path from current as $$
declare
    v_run   job_running;
    v_found jsonb;
    v_nth   integer;
begin
    perform job_check_name('effect', p_effect, 128);
    if p_value is null or octet_length(p_value::text) > 65536 then
        raise exception using errcode = '22023', message = 'value of the effect takes JSON of up to 65536 bytes';
    end if;
    perform fence_job(p_job, p_token);
    select * into v_run from job_running r where r.id = p_job;
    if v_run.hash is distinct from p_hash then
        raise exception using errcode = 'FH002',
            message = format('job %s: no claim under token %s is live for this hold id', p_job, p_token), hint = 'Roll back.';
    end if;
    -- Effects of one job are recorded one after the other.
    perform pg_advisory_xact_lock(hashtextextended(p_job::text, 7463));
    select e.effect into v_found from job_effect e where e.arrival = v_run.arrival and e.name = p_effect;
    if v_found is not null and jsonb_typeof(v_found->'state') = 'string' then
        return (v_found->>'value')::jsonb;
    end if;
    select coalesce((v_found->>'nth')::integer, max((e.effect->>'nth')::integer) + 1, 0) into v_nth
        from job_effect e where e.arrival = v_run.arrival;
    if v_nth >= 1000 then
        raise exception using errcode = '54000', message = format('job %s: the limit of 1000 effects is reached', p_job);
    end if;
    insert into job_effect (arrival, name, effect)
        values (v_run.arrival, p_effect, jsonb_build_object('name', p_effect, 'nth', v_nth, 'token', p_token, 'at_wall_ms', now_ms(),
            'state', 'done', 'value', p_value::text, 'undo', null, 'undo_job', null))
        on conflict (arrival, name) do update set effect = excluded.effect;
    insert into job_past (arrival, token, failures, crashes, attempts, undo, since_ms)
        values (v_run.arrival, p_token, 0, 0, 0, 0, v_run.since_ms) on conflict do nothing;
    return p_value;
end $$;

do $$
begin
    call permit('fencehold_reader', 'execute on function job_look(uuid[], text, boolean), job_live(), job_queues(text, text), '
        'job_list(text, bigint, text, text, smallint[], jsonb, text, text, integer, integer), job_schedules(text), '
        'job_with_effects(text, bigint, bigint), job_await(uuid, bigint)');
    call permit('fencehold_worker', 'execute on function '
        'job_enqueue(text, uuid[], text[], smallint[], text[], text[], jsonb[], jsonb[], bigint[], bigint[], boolean[], uuid[], uuid[], bigint[]), '
        'job_claim(text, text[], integer[], bigint[], integer, uuid, text, bigint, integer[], bigint[], uuid, boolean), '
        'job_renew(text, uuid[], uuid[], bigint[]), job_complete(text, uuid[], uuid[], bigint[], text[]), '
        'job_load(uuid[], text, uuid[], text[], boolean, bigint), job_keep(jsonb), job_draw(integer), job_under(bigint), '
        'job_line_up(text, text[], uuid, bigint, bigint), job_leave_line(text, uuid, uuid), job_line_beat(uuid[]), '
        'job_run_out(integer), job_tidy(bigint, integer), job_schedules_due(integer), job_room(integer), '
        'job_schedule_hold(text, text), job_unschedule(text, text), '
        'enqueue(text, text, jsonb, smallint, timestamptz, text, interval, jsonb, text, uuid), fence_job(uuid, bigint), '
        'complete(uuid, text, bigint, jsonb), once(uuid, text, bigint, text, jsonb)');
end $$;
