-- Documents that a scan keeps out, until someone lets exactly these bytes in.

alter table documents
  add column released bytea not null default '',   -- the sha256 of bytes that are ingested whatever a scan finds
  drop constraint documents_status_check,
  add constraint documents_status_check check (status in ('completed', 'failed', 'skipped', 'quarantined'));

alter table job_items
  drop constraint job_items_status_check,
  add constraint job_items_status_check
    check (status in ('queued', 'completed', 'same', 'failed', 'skipped', 'quarantined', 'deleted')),
  add constraint job_items_quarantined_check check (status <> 'quarantined' or reason is not null);
