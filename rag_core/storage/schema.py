"""The database schema: roles, the extension, numbered migrations, row-level security.

There are four roles. `rag_owner` owns tables and indexes. `rag_app` writes, and forced row-level security limits it to
the rows of one tenant. `rag_reader` reads for requests; the contents of documents that the groups in `app.groups` may
not read do not exist for it. `rag_worker` sees all rows, for fsck, purges and gauges.

A login without the right to create roles, as on some managed servers, works without them. It then owns the tables, and
forced row-level security applies to it too. Only the conditions of statements then hide documents from other groups.
"""

from importlib.resources import files

import psycopg

MIGRATIONS = files("rag_core.storage") / "migrations"
SCHEMA = "rag"

LOCK = "select pg_advisory_xact_lock(hashtextextended('rag.migrations', 0))"
HAS_SCHEMA = "select to_regclass('rag.migrations') is not null"
VERSION = "select coalesce(max(number), 0) from rag.migrations"
RECORD = "insert into rag.migrations (number, name) values (%(number)s, %(name)s)"
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
CREATE_SCHEMA = """
create extension if not exists vector;
create schema if not exists rag;
create table if not exists rag.migrations (
  number int primary key, name text not null, applied_at timestamptz not null default now())"""
# Runs before the migrations, because they change rows of all tenants. Row-level security that is not forced does not
# apply to owners. A login without roles would otherwise change no row.
UNFORCE = """
do $$ declare t text; begin
  for t in select c.relname from pg_class c where c.relnamespace = 'rag'::regnamespace
      and c.relforcerowsecurity and not c.relispartition loop
    execute format('alter table rag.%I no force row level security', t);
  end loop;
end $$"""
# Runs after every migration over all tables that have a tenant, so that no table lacks its policies. Partitions are
# left out: they are used through their table, whose policies apply.
SECURE = """
do $$ declare t text; has_roles boolean := (
    select count(*) = 3 from pg_roles
    where rolname in ('rag_owner', 'rag_app', 'rag_worker') and pg_has_role(session_user, oid, 'member')); begin
  for t in select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant'
           where c.relnamespace = 'rag'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition loop
    execute format('alter table rag.%I enable row level security', t);
    execute format('alter table rag.%I force row level security', t);
    execute format('drop policy if exists of_tenant on rag.%I', t);
    execute format('create policy of_tenant on rag.%I using (tenant = (select current_setting(''app.tenant'', true)))
                    with check (tenant = (select current_setting(''app.tenant'', true)))', t);
    if has_roles then
      execute format('drop policy if exists of_worker on rag.%I', t);
      execute format('create policy of_worker on rag.%I to rag_worker using (true) with check (true)', t);
      execute format('grant %s on rag.%I to rag_app, rag_worker', case t
        when 'audit' then 'select' when 'audit_heads' then 'select' when 'audit_users' then 'select, delete'
        else 'select, insert, update, delete' end, t);  -- the function append_audit adds rows to the audit
    end if;
  end loop;
  if has_roles then
    grant usage on schema rag to rag_app, rag_worker;
    grant select on rag.migrations to rag_app, rag_worker;
    alter schema rag owner to rag_owner;  -- before its tables: their owner needs the right to create in the schema
    for t in select c.relname from pg_class c where c.relnamespace = 'rag'::regnamespace
        and c.relkind in ('r', 'p') loop
      execute format('alter table rag.%I owner to rag_owner', t);
    end loop;
    for t in select oid::regprocedure from pg_proc where pronamespace = 'rag'::regnamespace loop
      execute format('alter function %s owner to rag_owner', t);
    end loop;
    for t in select c.relname from pg_class c where c.relnamespace = 'rag'::regnamespace and c.relkind = 'v' loop
      execute format('alter view rag.%I owner to rag_owner', t);
      execute format('grant select on rag.%I to rag_app, rag_worker', t);
    end loop;
  end if;
end $$"""
# Runs after SECURE. A policy of `rag_reader` restricts what `of_tenant` shows. Unset groups can read only documents
# without an access list. The subquery looks up the few restricted documents in their own index, or hashes them once.
#
# The other tables have no text of a document. `lexical_documents` must be complete, because the search excludes hidden
# chunks by its rows. Names of `entities` are compared with questions, and are not returned.
SECURE_READER = """
do $$ declare
  t text;
  groups text := '(select nullif(current_setting(''app.groups'', true), '''')::text[])';
  hidden text := 'select from rag.restricted_documents r where not coalesce(r.access && ' || groups || ', false)';
begin
  if to_regclass('rag.restricted_documents') is null or not exists (
      select from pg_roles where rolname = 'rag_reader' and pg_has_role(session_user, oid, 'member')) then
    return;
  end if;
  grant usage on schema rag to rag_reader;
  foreach t in array array['migrations', 'collections', 'spaces', 'sources', 'documents', 'document_texts',
      'document_values', 'chunks', 'vectors', 'lexical_segments', 'lexical_documents', 'lexical_postings', 'entities',
      'mentions', 'relations', 'jobs', 'job_items', 'job_events', 'restricted_documents'] loop
    execute format('grant select on rag.%I to rag_reader', t);
  end loop;
  drop policy if exists of_reader on rag.documents;
  execute format('create policy of_reader on rag.documents as restrictive for select to rag_reader
                  using (access = ''{}'' or coalesce(access && %s, false))', groups);
  foreach t in array array['document_texts', 'document_values', 'chunks', 'vectors', 'mentions', 'relations'] loop
    execute format('drop policy if exists of_reader on rag.%I', t);
    execute format('create policy of_reader on rag.%1$I as restrictive for select to rag_reader using (
                    not exists (%2$s and r.collection = %1$I.collection and r.id = %1$I.document_id))', t, hidden);
  end loop;
  drop policy if exists of_reader on rag.job_items;
  execute format('create policy of_reader on rag.job_items as restrictive for select to rag_reader using (
                  not exists (%s and r.id = job_items.document_id))', hidden);
  drop policy if exists of_reader on rag.job_events;
  execute format('create policy of_reader on rag.job_events as restrictive for select to rag_reader using (
                  stage <> ''document'' or not exists (%s and r.id = (job_events.detail ->> ''document_id'')::uuid))',
                 hidden);
end $$"""


def migrate(dsn: str) -> None:
    """Applies the missing migrations in one transaction. Several processes can call it at the same time."""
    with psycopg.connect(dsn) as connection:
        if _database_version(connection) == _list_migrations()[-1][0]:
            return
        connection.execute(LOCK)
        connection.execute(CREATE_ROLES)
        connection.execute(CREATE_SCHEMA)
        version = _database_version(connection)
        connection.execute("set local search_path = rag, public")
        connection.execute(UNFORCE)
        for number, name in _list_migrations():
            if number > version:
                connection.execute((MIGRATIONS / name).read_bytes())
                connection.execute(RECORD, {"number": number, "name": name})
        connection.execute(SECURE)
        connection.execute(SECURE_READER)


def read_versions(connection: psycopg.Connection) -> tuple[int, int]:
    """The version of the database's schema, or 0 without a schema, and the newest version."""
    return _database_version(connection), _list_migrations()[-1][0]


def _database_version(connection: psycopg.Connection) -> int:
    if not _scalar(connection, HAS_SCHEMA):
        return 0
    return _scalar(connection, VERSION)


def _scalar(connection: psycopg.Connection, statement: str) -> int:
    row = connection.execute(statement.encode()).fetchone()
    return int(row[0]) if row else 0


def _list_migrations() -> list[tuple[int, str]]:
    """The number and the file name of each migration, in order."""
    names = sorted(file.name for file in MIGRATIONS.iterdir() if file.name.endswith(".sql"))
    return [(int(name[:4]), name) for name in names]
