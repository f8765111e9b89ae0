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
-- the seconds until the need is available. Rows are locked in the order of the key, so charges cannot deadlock.
create function charge_rate_limits(
  charged_tenant text, users text[], kinds text[], needs float8[], costs float8[], rates float8[], bursts float8[])
returns table (room float8, wait float8) language plpgsql as $$
declare moment timestamptz;
begin
  perform set_config('app.tenant', charged_tenant, true);
  insert into rate_limits (tenant, user_id, kind)
    select charged_tenant, b.user_id, b.kind from unnest(users, kinds) b (user_id, kind) order by 2, 3
    on conflict do nothing;
  perform from rate_limits r join unnest(users, kinds) b (user_id, kind) on r.user_id = b.user_id and r.kind = b.kind
    where r.tenant = charged_tenant order by r.user_id, r.kind for update of r;
  moment := clock_timestamp();  -- after the locks: an earlier holder must not have measured later
  return query
    with buckets as materialized (
      select b.*, greatest(0, r.level - b.rate * extract(epoch from moment - r.measured_at)::float8) as level
      from unnest(users, kinds, needs, costs, rates, bursts)
        with ordinality b (user_id, kind, need, cost, rate, burst, position)
      join rate_limits r on r.tenant = charged_tenant and r.user_id = b.user_id and r.kind = b.kind
    ), decision as materialized (
      select bool_and(b.burst - b.level >= b.need) as is_admitted from buckets b
    ), charged as (
      update rate_limits r set level = b.level + b.cost, measured_at = moment from buckets b, decision d
      where d.is_admitted and b.cost > 0 and r.tenant = charged_tenant and r.user_id = b.user_id and r.kind = b.kind
    )
    select b.burst - b.level - case when d.is_admitted then b.cost else 0 end,
      greatest(0, b.need - (b.burst - b.level)) / b.rate
    from buckets b, decision d order by b.position;
end $$;
