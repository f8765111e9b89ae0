-- The users from whom jobs and documents come, so that both can be erased with the user.

alter table jobs add user_id text collate "C" not null default '';       -- who requested it; empty for `rag ingest`
alter table documents add user_id text collate "C" not null default '';  -- who pushed it last; empty if a source has it
alter table replies add column if not exists user_id text collate "C" not null default '';
