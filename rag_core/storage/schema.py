"""Brings a database to the newest schema: roles, the extension, numbered migrations, row-level security.

Three roles that own no data of others: `rag_owner` (tables, indexes), `rag_app` (every request; rows of one tenant
only, by forced row-level security), `rag_worker` (fsck, purges and gauges; all rows). A login that may not create
roles, as on some managed servers, works without them: it owns the tables, and forced security still holds for it.
"""

from importlib.resources import files

import psycopg

MIGRATIONS = files("rag_core.storage") / "migrations"
SCHEMA = "rag"

LOCK = "select pg_advisory_xact_lock(hashtextextended('rag.migrations', 0))"
APPLIED = "select to_regclass('rag.migrations') is not null"
VERSION = "select coalesce(max(number), 0) from rag.migrations"
RECORD = "insert into rag.migrations (number, name) values (%(number)s, %(name)s)"
CREATE_ROLES = """
do $$ declare name text; begin
  foreach name in array array['rag_owner', 'rag_app', 'rag_worker'] loop
    if not exists (select from pg_roles where rolname = name) then
      execute format('create role %I nologin', name);
    end if;
    if not pg_has_role(session_user, name, 'member') then
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
# Every table with a tenant gets the policies anew after a migration, so that none can be forgotten.
SECURE = """
do $$ declare t text; has_roles boolean := exists (select from pg_roles where rolname = 'rag_app'); begin
  for t in select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant'
           where c.relnamespace = 'rag'::regnamespace and c.relkind = 'r' loop
    execute format('alter table rag.%I enable row level security', t);
    execute format('alter table rag.%I force row level security', t);
    execute format('drop policy if exists of_tenant on rag.%I', t);
    execute format('create policy of_tenant on rag.%I using (tenant = (select current_setting(''app.tenant'', true)))
                    with check (tenant = (select current_setting(''app.tenant'', true)))', t);
    if has_roles then
      execute format('drop policy if exists of_worker on rag.%I', t);
      execute format('create policy of_worker on rag.%I to rag_worker using (true) with check (true)', t);
      execute format('grant select, insert, update, delete on rag.%I to rag_app, rag_worker', t);
    end if;
  end loop;
  if has_roles then
    grant usage on schema rag to rag_app, rag_worker;
    grant select on rag.migrations to rag_app, rag_worker;
    for t in select c.relname from pg_class c where c.relnamespace = 'rag'::regnamespace and c.relkind = 'r' loop
      execute format('alter table rag.%I owner to rag_owner', t);
    end loop;
    alter schema rag owner to rag_owner;
  end if;
end $$"""


def migrate(dsn: str) -> None:
    """Applies what is not applied yet, in one transaction. Any number of processes may call it at once."""
    with psycopg.connect(dsn) as connection:
        if _version(connection) == _numbered()[-1][0]:
            return
        connection.execute(LOCK)
        connection.execute(CREATE_ROLES)
        connection.execute(CREATE_SCHEMA)
        version = _version(connection)
        connection.execute("set local search_path = rag, public")
        for number, name in _numbered():
            if number > version:
                connection.execute((MIGRATIONS / name).read_bytes())
                connection.execute(RECORD, {"number": number, "name": name})
        connection.execute(SECURE)


def versions(connection: psycopg.Connection) -> tuple[int, int]:
    """The database's, 0 without a schema, and the newest one."""
    return _version(connection), _numbered()[-1][0]


def _version(connection: psycopg.Connection) -> int:
    if not _scalar(connection, APPLIED):
        return 0
    return int(_scalar(connection, VERSION))


def _scalar(connection: psycopg.Connection, statement: str) -> int:
    row = connection.execute(statement.encode()).fetchone()
    return int(row[0]) if row else 0


def _numbered() -> list[tuple[int, str]]:
    names = sorted(file.name for file in MIGRATIONS.iterdir() if file.name.endswith(".sql"))
    return [(int(name[:4]), name) for name in names]
