-- Locks: nothing.
-- The few failed, skipped and quarantined documents of a large collection, which `rag documents list --status` shows.
create index concurrently if not exists documents_by_status on documents (tenant, collection, status, id)
  where status <> 'completed';
