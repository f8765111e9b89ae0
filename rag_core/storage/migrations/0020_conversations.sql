-- Conversations: sessions and their messages, with all further state as JSON.

create table conversations (
  tenant text collate "C" not null check (tenant <> ''),
  id uuid not null default gen_random_uuid(),  -- a hash of the tenant, the session id and the groups
  session_id text collate "C" not null check (session_id <> ''),
  groups text[] not null,                      -- of its callers: others have another conversation under the same id
  user_id text not null default '',            -- who began it; never an e-mail address
  metadata jsonb not null default '{}',        -- turn_count, topic
  started_at timestamptz not null default clock_timestamp(),
  last_activity_at timestamptz not null default clock_timestamp(),
  primary key (tenant, id)
);
create index conversations_by_user on conversations (tenant, user_id);
create index conversations_by_activity on conversations (tenant, last_activity_at desc, id desc);

create table messages (
  tenant text collate "C" not null check (tenant <> ''),
  conversation_id uuid not null,
  n int not null check (n > 0),                -- from 1, without a gap
  id text collate "C" not null default gen_random_uuid()::text,
  role text not null check (role in ('user', 'assistant', 'system')),
  text text not null,
  metadata jsonb not null default '{}',        -- intent, entities, confidence, sources
  created_at timestamptz not null default clock_timestamp(),
  primary key (tenant, conversation_id, n),
  unique (tenant, conversation_id, id),
  foreign key (tenant, conversation_id) references conversations (tenant, id) on delete cascade
);
