"""The database roles, and the rows that each of them sees, as statements that change only what differs.

A policy, a right or an owner that exists is not set again, because that would lock the table against all readers. A
migration that changes a policy must drop or alter it itself: these statements create only what is missing.
"""

from typing import LiteralString

from psycopg import Connection

CREATE_ROLES = """
do $$ declare name text; begin
  foreach name in array array['rag_owner', 'rag_app', 'rag_worker', 'rag_reader'] loop
    if not exists (select from pg_roles where rolname = name) then
      execute format('create role %I nologin', name);
      execute format('grant %I to %I', name, session_user);
    elsif not pg_has_role(session_user, name, 'member') then
      execute format('grant %I to %I', name, session_user);
    end if;
  end loop;
exception when insufficient_privilege then null;
end $$"""
# Runs before statements that change rows of all tenants. Row-level security that is not forced does not apply to
# owners. A login without roles would otherwise change no row.
UNFORCE = """
do $$ declare t text; begin
  for t in select c.relname from pg_class c where c.relnamespace = 'rag'::regnamespace
      and c.relforcerowsecurity and not c.relispartition loop
    execute format('alter table rag.%I no force row level security', t);
  end loop;
end $$"""
SEES_ALL_ROWS: LiteralString = """
select rolsuper or rolbypassrls from pg_roles where rolname = session_user"""
HAS_WORKER: LiteralString = """
select coalesce(pg_has_role(session_user, to_regrole('rag_worker'), 'member')
  and has_table_privilege(to_regrole('rag_worker'), to_regclass('rag.jobs'), 'update'), false)"""
ASSUME_WORKER: LiteralString = "set local role rag_worker"
RESET_ROLE: LiteralString = "reset role"
# Runs after every migration over all tables that have a tenant, so that no table lacks its policies.
SECURE = """
do $$ declare
  t record;
  rights text;
  has_roles boolean := (select count(*) = 3 from pg_roles
    where rolname in ('rag_owner', 'rag_app', 'rag_worker') and pg_has_role(session_user, oid, 'member'));
begin
  for t in select c.oid, c.relname as name, c.relrowsecurity as is_secured, c.relforcerowsecurity as is_forced
      from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant'
      where c.relnamespace = 'rag'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition loop
    if not t.is_secured then
      execute format('alter table rag.%I enable row level security', t.name);
    end if;
    if not t.is_forced then
      execute format('alter table rag.%I force row level security', t.name);
    end if;
    if not exists (select from pg_policy where polrelid = t.oid and polname = 'of_tenant') then
      execute format('create policy of_tenant on rag.%I
        using (tenant = (select current_setting(''app.tenant'', true)))
        with check (tenant = (select current_setting(''app.tenant'', true)))', t.name);
    end if;
    if has_roles then
      if not exists (select from pg_policy where polrelid = t.oid and polname = 'of_worker') then
        execute format('create policy of_worker on rag.%I to rag_worker using (true) with check (true)', t.name);
      end if;
      rights := case t.name
        when 'audit' then 'select' when 'audit_heads' then 'select' when 'audit_users' then 'select, delete'
        else 'select, insert, update, delete' end;  -- the function append_audit adds rows to the audit
      if exists (select from unnest(string_to_array(rights, ', ')) r, unnest(array['rag_app', 'rag_worker']) role
          where not has_table_privilege(role, t.oid, r)) then
        execute format('grant %s on rag.%I to rag_app, rag_worker', rights, t.name);
      end if;
    end if;
  end loop;
  for t in select p.oid::regprocedure as name from pg_proc p where p.pronamespace = 'rag'::regnamespace
      and p.proname in ('create_audit_month', 'drop_audit_months')
      and has_function_privilege('public', p.oid, 'execute') loop
    execute format('revoke execute on function %s from public', t.name);
  end loop;
  if not has_roles then
    return;
  end if;
  grant usage on schema rag to rag_app, rag_worker;
  if not has_table_privilege('rag_worker', 'rag.migrations', 'select') then
    grant select on rag.migrations to rag_app, rag_worker;
  end if;
  if (select nspowner <> 'rag_owner'::regrole from pg_namespace where nspname = 'rag') then
    alter schema rag owner to rag_owner;  -- before its tables: their owner needs the right to create in the schema
  end if;
  for t in select c.relname as name, c.relkind as kind from pg_class c where c.relnamespace = 'rag'::regnamespace
      and c.relkind in ('r', 'p', 'v') and c.relowner <> 'rag_owner'::regrole loop
    execute format('alter %s rag.%I owner to rag_owner', case t.kind when 'v' then 'view' else 'table' end, t.name);
  end loop;
  for t in select p.oid::regprocedure as name from pg_proc p where p.pronamespace = 'rag'::regnamespace
      and p.proowner <> 'rag_owner'::regrole loop
    execute format('alter function %s owner to rag_owner', t.name);
  end loop;
  for t in select c.relname as name from pg_class c where c.relnamespace = 'rag'::regnamespace and c.relkind = 'v'
      and not (has_table_privilege('rag_app', c.oid, 'select') and has_table_privilege('rag_worker', c.oid, 'select'))
      loop
    execute format('grant select on rag.%I to rag_app, rag_worker', t.name);
  end loop;
end $$"""
# Partitions are used through their table, whose policies apply. Only pg_dump reads them directly, as the worker.
SECURE_DUMPS = """
do $$ declare
  t record;
begin
  if not coalesce(has_table_privilege(to_regrole('rag_worker'), to_regclass('rag.audit'), 'select'), false) then
    return;
  end if;
  for t in select c.relname as name from pg_class c where c.relnamespace = 'rag'::regnamespace and c.relkind = 'S'
      and not has_table_privilege('rag_worker', c.oid, 'select') loop
    execute format('grant select on sequence rag.%I to rag_worker', t.name);
  end loop;
  for t in select c.oid, c.relname as name from pg_class c where c.relnamespace = 'rag'::regnamespace
      and c.relkind = 'r' and c.relispartition loop
    if not exists (select from pg_policy where polrelid = t.oid and polname = 'of_worker') then
      execute format('create policy of_worker on rag.%I for select to rag_worker using (true)', t.name);
    end if;
    if not has_table_privilege('rag_worker', t.oid, 'select') then
      execute format('grant select on rag.%I to rag_worker', t.name);
    end if;
  end loop;
end $$"""
# Runs after SECURE. A policy of `rag_reader` restricts what `of_tenant` shows. Unset groups can read only documents
# without an access list. The subquery looks up the few restricted documents in their own index, or hashes them once.
#
# The other tables have no text of a document. `lexical_documents` must be complete, because the search excludes hidden
# chunks by its rows. Names of `entities` are compared with questions, and are not returned.
SECURE_READER = """
do $$ declare
  t record;
  groups text := '(select nullif(current_setting(''app.groups'', true), '''')::text[])';
  hidden text := 'select from rag.restricted_documents r where not coalesce(r.access && ' || groups || ', false)';
begin
  if to_regclass('rag.restricted_documents') is null or not exists (
      select from pg_roles where rolname = 'rag_reader' and pg_has_role(session_user, oid, 'member')) then
    return;
  end if;
  grant usage on schema rag to rag_reader;
  for t in select name from unnest(array['migrations', 'collections', 'spaces', 'sources', 'documents',
      'document_texts', 'document_values', 'chunks', 'vectors', 'lexical_segments', 'lexical_documents',
      'lexical_postings', 'entities', 'mentions', 'relations', 'jobs', 'job_items', 'job_events',
      'restricted_documents']) name where not has_table_privilege('rag_reader', 'rag.' || name, 'select') loop
    execute format('grant select on rag.%I to rag_reader', t.name);
  end loop;
  for t in select name, condition from (
      select 'documents' as name, format('access = ''{}'' or coalesce(access && %s, false)', groups) as condition
      union all
      select name, format('not exists (%2$s and r.collection = %1$I.collection and r.id = %1$I.document_id)', name,
                          hidden)
      from unnest(array['document_texts', 'document_values', 'chunks', 'vectors', 'mentions', 'relations']) name
      union all
      select 'job_items', format('not exists (%s and r.id = job_items.document_id)', hidden)
      union all
      select 'job_events', format('stage <> ''document'' or not exists (
        %s and r.id = (job_events.detail ->> ''document_id'')::uuid)', hidden)) wanted
      where not exists (select from pg_policy
        where polrelid = ('rag.' || name)::regclass and polname = 'of_reader') loop
    execute format('create policy of_reader on rag.%I as restrictive for select to rag_reader using (%s)', t.name,
                   t.condition);
  end loop;
end $$"""


def secure(connection: Connection) -> None:
    """Sets policies, rights and owners where they differ. Tables that need no change are not locked."""
    connection.execute(SECURE)
    connection.execute(SECURE_DUMPS)
    connection.execute(SECURE_READER)
