-- The audit: what was done, by whom. Rows are added by `append_audit` only, and nobody can change or delete them.
-- Each row has a hash of itself and of the row before it, so that `rag audit verify` finds whatever was changed.

create table audit (
  tenant text collate "C" not null check (tenant <> ''),
  n bigint not null,                -- 1, 2, 3 and so on within a tenant, without gaps
  at timestamptz not null,          -- when the row was written; it never decreases within a tenant
  content text not null,            -- a JSON object, in the bytes that were hashed
  hash bytea not null,
  primary key (tenant, n, at)
) partition by range (at);          -- one partition a month, audit_YYYY_MM, in UTC

-- The end of a tenant's chain, and the last row that retention has deleted. A writer locks the row until its commit.
create table audit_heads (
  tenant text collate "C" not null check (tenant <> ''),
  n bigint not null default 0,
  at timestamptz not null default '-infinity',
  hash bytea not null default '',
  start_n bigint not null default 0,
  start_hash bytea not null default '',
  primary key (tenant)
) with (fillfactor = 20);

-- The users behind the pseudonyms in the audit. To erase a person, delete the row: the salt goes with it, so nobody can
-- compute the pseudonym again.
create table audit_users (
  tenant text collate "C" not null check (tenant <> ''),
  user_id text collate "C" not null,
  salt uuid not null default gen_random_uuid(),
  pseudonym text collate "C" not null,
  primary key (tenant, user_id)
);
create index audit_users_by_pseudonym on audit_users (tenant, pseudonym);

create function audit_pseudonym(salt uuid, user_id text) returns text language sql stable as $$
  select left(encode(sha256(uuid_send(salt) || convert_to(user_id, 'UTF8')), 'hex'), 32) $$;

create function refuse_audit_change() returns trigger language plpgsql as $$
begin
  raise exception 'rows of the audit cannot be changed or deleted';
end $$;
create trigger append_only before update or delete on audit for each row execute function refuse_audit_change();
create trigger append_only_truncate before truncate on audit execute function refuse_audit_change();

-- Attaching a table needs a weaker lock than `create table ... partition of`: other writers go on meanwhile. Partitions
-- have no grants and no policies: they are read through `audit`.
create function create_audit_month(moment timestamptz) returns void
language plpgsql set search_path = rag, pg_temp as $$
declare
  first timestamptz := date_trunc('month', moment, 'UTC');
  partition text := to_char(first at time zone 'UTC', '"audit_"YYYY_MM');
begin
  if to_regclass('rag.' || partition) is not null then
    return;
  end if;
  perform pg_advisory_xact_lock(hashtextextended('rag.audit', 0));
  if to_regclass('rag.' || partition) is null then
    execute format('create table rag.%I (like rag.audit including all)', partition);
    execute format('alter table rag.%I enable row level security', partition);
    execute format('create trigger append_only_truncate before truncate on rag.%I
                    execute function refuse_audit_change()', partition);
    execute format('alter table rag.audit attach partition rag.%I for values from (%L) to (%L)', partition, first,
                   date_trunc('month', first + interval '32 days', 'UTC'));
  end if;
end $$;

-- The hash covers the hash of the previous row and, in lines: n, the time in UTC, the tenant, and the content.
create function append_audit(of_tenant text, user_name text, entry jsonb) returns bigint
language plpgsql security definer set search_path = rag, pg_temp as $$
declare
  head audit_heads;
  own audit_users;
  body text;
begin
  select * into head from audit_heads where tenant = of_tenant for update;
  if not found then
    insert into audit_heads (tenant) values (of_tenant) on conflict do nothing;
    select * into head from audit_heads where tenant = of_tenant for update;
  end if;
  select * into own from audit_users where tenant = of_tenant and user_id = user_name;
  if not found then
    own.salt := gen_random_uuid();
    own.pseudonym := audit_pseudonym(own.salt, user_name);
    insert into audit_users (tenant, user_id, salt, pseudonym) values (of_tenant, user_name, own.salt, own.pseudonym);
  end if;
  head.n := head.n + 1;
  head.at := greatest(clock_timestamp(), head.at);
  body := (entry || jsonb_build_object('user', own.pseudonym))::text;
  head.hash := sha256(head.hash || convert_to(concat_ws(E'\n', head.n,
    to_char(head.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), of_tenant, body), 'UTF8'));
  perform create_audit_month(head.at);
  insert into audit (tenant, n, at, content, hash) values (of_tenant, head.n, head.at, body, head.hash);
  update audit_heads set n = head.n, at = head.at, hash = head.hash where tenant = of_tenant;
  return head.n;
end $$;

-- Drops the months that ended before `moment`, and returns their names. Each tenant's chain then starts after the last
-- row that was dropped. The owner reads a partition directly, because policies would show one tenant only.
create function drop_audit_months(moment timestamptz) returns setof text
language plpgsql security definer set search_path = rag, pg_temp as $$
declare
  partition text;
  last record;
begin
  for partition in select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'rag.audit'::regclass
        and c.relname::text < to_char(moment at time zone 'UTC', '"audit_"YYYY_MM') order by 1 loop
    for last in execute format('select distinct on (tenant) tenant, n, hash from rag.%I order by tenant, n desc',
                               partition) loop
      perform set_config('app.tenant', last.tenant, true);
      update audit_heads set start_n = last.n, start_hash = last.hash where tenant = last.tenant;
    end loop;
    execute format('drop table rag.%I', partition);
    return next partition;
  end loop;
end $$;
revoke execute on function create_audit_month, drop_audit_months from public;

select create_audit_month(now());
select create_audit_month(now() + interval '1 month');
