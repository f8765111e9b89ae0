"""Removes rows of the graph that break its invariants. Ingesting a damaged document again restores its rows.

It waits only while the collection is being deleted. Rows that a publisher has locked are skipped.
"""

from psycopg import Connection

from rag_core.storage.graph.writing import remove_entities
from rag_core.storage.lexical.merging import LOCK_COLLECTION
from rag_core.storage.postgres import transaction

MENTIONS = """
with broken as materialized (
  select m.entity, m.chunk_id from mentions m
  where m.tenant = %(tenant)s and m.collection = %(collection)s and not exists (
    select from {table} where n.tenant = m.tenant and n.collection = m.collection and {matching})
  order by m.entity, m.chunk_id for update of m skip locked
)
delete from mentions m using broken b where m.tenant = %(tenant)s and m.collection = %(collection)s
  and m.entity = b.entity and m.chunk_id = b.chunk_id"""
RELATIONS = """
with broken as materialized (
  select r.source, r.target, r.document_id from relations r
  where r.tenant = %(tenant)s and r.collection = %(collection)s and not exists (
    select from mentions m where m.tenant = r.tenant and m.collection = r.collection
      and m.document_id = r.document_id and m.entity = r.{end})
  order by r.source, r.target, r.document_id for update of r skip locked
)
delete from relations r using broken b where r.tenant = %(tenant)s and r.collection = %(collection)s
  and r.source = b.source and r.target = b.target and r.document_id = b.document_id"""
BROKEN = (
    MENTIONS.format(table="chunks n", matching="n.id = m.chunk_id and n.document_id = m.document_id"),
    MENTIONS.format(table="entities n", matching="n.id = m.entity"),
    RELATIONS.format(end="source"),
    RELATIONS.format(end="target"),
)


def repair(connection: Connection, tenant: str, collection: int) -> int:
    """Returns how many rows it removed. Reads the entire graph of the collection."""
    scope = {"tenant": tenant, "collection": collection}
    with transaction(connection, tenant):
        connection.execute(LOCK_COLLECTION, scope)
        removed = sum(connection.execute(statement.encode(), scope).rowcount for statement in BROKEN)
        return removed + remove_entities(connection, scope)
