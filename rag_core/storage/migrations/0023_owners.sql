-- Conversations, answers and idempotency keys belong to users. An empty user is unknown: `auth.mode` was none.

alter table messages add groups text[] not null default '{}';  -- of the caller; readers need all of them
update messages m set groups = c.groups from conversations c where c.tenant = m.tenant and c.id = m.conversation_id;

alter table participants add is_invited boolean not null default false;  -- can read the conversation and go on with it
create index participants_by_name on participants (tenant, name) where is_invited;

drop index conversations_by_user;
create index conversations_by_user on conversations (tenant, user_id, last_activity_at desc, id desc);

alter table replies add user_id text collate "C" not null default '';

alter table feedback add user_id text collate "C" not null default '';
drop index feedback_by_idempotency_key;
create unique index feedback_by_idempotency_key on feedback (tenant, user_id, idempotency_key)
  where idempotency_key <> '';

alter table jobs add user_id text collate "C" not null default '';
drop index jobs_by_idempotency_key;
create unique index jobs_by_idempotency_key on jobs (tenant, user_id, idempotency_key) where idempotency_key <> '';
