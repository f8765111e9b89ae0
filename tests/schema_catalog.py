"""What a schema consists of, apart from its rows, and which of its tables a transaction has locked."""

from psycopg import Connection
from targets import superuser

from rag_core.storage.postgres import Postgres

CATALOG = """
select concat_ws(' ', 'column', a.attrelid::regclass, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
    a.attidentity, a.attstorage, pg_get_expr(d.adbin, d.adrelid))
  from pg_attribute a join pg_class c on c.oid = a.attrelid and c.relkind in ('r', 'p', 'v')
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  where c.relnamespace = 'rag'::regnamespace and a.attnum > 0 and not a.attisdropped
union all
select concat_ws(' ', 'relation', c.oid::regclass, c.relkind, c.relpersistence, c.relrowsecurity, c.relforcerowsecurity,
    c.relowner::regrole, c.reloptions, (
      select string_agg(acl::text, ' ' order by acl::text) from unnest(c.relacl) acl
      where acl::text not like c.relowner::regrole || '=%'))
  from pg_class c where c.relnamespace = 'rag'::regnamespace
union all
select concat_ws(' ', 'index', pg_get_indexdef(i.indexrelid), i.indisvalid)
  from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = 'rag'::regnamespace
union all
select concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid))
  from pg_constraint where connamespace = 'rag'::regnamespace
union all
select concat_ws(' ', 'policy', polrelid::regclass, polname, polcmd, polpermissive, (
      select string_agg(case role when 0 then 'public' else role::regrole::text end, ',' order by role)
      from unnest(polroles) role), pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid))
  from pg_policy
union all
select concat_ws(' ', 'function', p.oid::regprocedure, p.proowner::regrole, md5(pg_get_functiondef(p.oid)),
    has_function_privilege('public', p.oid, 'execute'))
  from pg_proc p where p.pronamespace = 'rag'::regnamespace
union all
select concat_ws(' ', 'trigger', pg_get_triggerdef(t.oid)) from pg_trigger t join pg_class c on c.oid = t.tgrelid
  where not tgisinternal and c.relnamespace = 'rag'::regnamespace
union all
select concat_ws(' ', 'schema', nspowner::regrole, has_schema_privilege('rag_app', oid, 'usage'),
    has_schema_privilege('rag_worker', oid, 'usage'), has_schema_privilege('rag_reader', oid, 'usage'))
  from pg_namespace where nspname = 'rag'
order by 1"""

LOCKED = """
select distinct c.relname::text from pg_locks l join pg_class c on c.oid = l.relation
where l.pid = pg_backend_pid() and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
  'AccessExclusiveLock') and c.relnamespace = 'rag'::regnamespace and c.relkind in ('r', 'p')"""


def read_locked(connection: Connection) -> set[str]:
    """The tables on which the connection's transaction has a lock that stops writers."""
    return {str(table) for (table,) in connection.execute(LOCKED)}


def read_catalog(store: Postgres) -> list[str]:
    """A line for each column, relation, index, constraint, policy, function and trigger, with owners and rights."""
    with superuser(store) as connection:
        return [str(line) for (line,) in connection.execute(CATALOG.encode())]
