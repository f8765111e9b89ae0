-- Locks: migrations and the months of the audit, for changes of the catalog only.

-- A program that knows no migration from `needs` on cannot use the store; 0: each program can.
alter table migrations add column needs bigint not null default 0;

-- Months of the audit can be read by the worker, because pg_dump reads partitions one by one.
create or replace function create_audit_month(moment timestamptz) returns void
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
    if to_regrole('rag_worker') is not null and has_table_privilege(to_regrole('rag_worker'), 'rag.audit', 'select') then
      execute format('create policy of_worker on rag.%I for select to rag_worker using (true)', partition);
      execute format('grant select on rag.%I to rag_worker', partition);
    end if;
    execute format('alter table rag.audit attach partition rag.%I for values from (%L) to (%L)', partition, first,
                   date_trunc('month', first + interval '32 days', 'UTC'));
  end if;
end $$;
