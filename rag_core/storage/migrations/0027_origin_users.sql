-- The users from whom documents come, so that they can be erased with the user.

alter table documents add user_id text collate "C" not null default '';  -- who pushed it last; empty if a source has it

alter table participants add has_written boolean not null default true;  -- false for a user who was only invited
