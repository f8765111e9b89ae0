-- A very large document while its parts are embedded side by side: those that are done wait here for the others.

create table draft_parts (
  tenant text collate "C" not null check (tenant <> ''),
  job_id uuid not null,
  document_id uuid not null,
  part int not null,
  parts int not null,
  draft bytea not null,
  check (0 <= part and part < parts),
  primary key (tenant, job_id, document_id, part)
);
alter table draft_parts alter column draft set storage external;   -- vectors do not compress
