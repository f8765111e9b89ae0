-- Rate limits: one bucket per tenant and kind, and one per user and kind. Each operation adds its cost to the bucket's
-- level, and the level falls at the rate of the limit. This is the leaky-bucket form of GCRA (ITU-T I.371, annex A).
-- The table is unlogged, so a charge waits for no disk; after a crash of the server all buckets are empty.

create unlogged table rate_limits (
  tenant text collate "C" not null check (tenant <> ''),
  user_id text collate "C" not null,           -- empty: the bucket of the whole tenant
  kind text collate "C" not null check (kind <> ''),
  level float8 not null default 0,             -- at `measured_at`
  measured_at timestamptz not null default now(),
  primary key (tenant, user_id, kind)
) with (fillfactor = 50);  -- each charge updates a row in place

-- Charges all costs, or none: only if each bucket has room for what its operation needs. A need of -infinity is always
-- available. Rates are per second. Returns a row per bucket, in the order of the arguments: the room that is left, and
-- the seconds until the need is available. The buckets are locked in this order, so all callers must sort them in the
-- same way. Single rows are read and written because a join over the arguments takes three times as long.
create function charge_rate_limits(
  charged_tenant text, users text[], kinds text[], needs float8[], costs float8[], rates float8[], bursts float8[])
returns table (room float8, wait float8) language plpgsql as $$
declare
  bucket record;
  rooms float8[] := '{}';
  moments timestamptz[] := '{}';
  is_admitted boolean := true;
begin
  perform set_config('app.tenant', charged_tenant, true);
  for i in 1 .. cardinality(users) loop
    loop
      select r.level, r.measured_at into bucket from rate_limits r
        where r.tenant = charged_tenant and r.user_id = users[i] and r.kind = kinds[i] for update;
      exit when found;
      insert into rate_limits (tenant, user_id, kind) values (charged_tenant, users[i], kinds[i])
        on conflict do nothing;
    end loop;
    moments[i] := clock_timestamp();  -- after the lock: its earlier holder must not have measured later
    rooms[i] := bursts[i]
      - greatest(0, bucket.level - rates[i] * extract(epoch from moments[i] - bucket.measured_at)::float8);
    is_admitted := is_admitted and rooms[i] >= needs[i];
  end loop;
  for i in 1 .. cardinality(users) loop
    wait := greatest(0, needs[i] - rooms[i]) / rates[i];
    room := rooms[i];
    if is_admitted and costs[i] > 0 then
      room := room - costs[i];
      update rate_limits r set level = bursts[i] - room, measured_at = moments[i]
        where r.tenant = charged_tenant and r.user_id = users[i] and r.kind = kinds[i];
    end if;
    return next;
  end loop;
end $$;
