-- The users from whom rows come, so that they can be erased with the user. Other migrations add some of these columns, too.

alter table documents add user_id text collate "C" not null default '';               -- who pushed it last, if anyone did
alter table jobs add column if not exists user_id text collate "C" not null default '';
alter table replies add column if not exists user_id text collate "C" not null default '';
alter table feedback add column if not exists user_id text collate "C" not null default '';
