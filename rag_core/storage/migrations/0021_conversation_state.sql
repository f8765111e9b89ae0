-- The second version of the state of conversations: what is read by name has a column, and participants have rows.

alter table conversations
  add title text not null default '',          -- the beginning of the first question
  add memory_store text not null default '',   -- of the nodes' sessions; empty for those of the gateway's callers
  add n_messages int not null default 0 check (n_messages >= 0),
  add n_turns int not null default 0 check (n_turns >= 0);

alter table messages
  add turn int not null default 0 check (turn >= 0),  -- the questions up to this message
  add answer_id text collate "C" not null default '', -- the id that a gateway gave the answer of the turn
  add collection_name text not null default '',       -- and no key, because collections can be dropped
  add titles text[] not null default '{}',            -- of the documents that the answer cites
  add entities text[] not null default '{}',
  add intent text not null default '',
  add standalone text not null default '',            -- the question as it was searched
  add is_shift boolean not null default false,
  add drift double precision,
  add confidence double precision check (confidence between 0 and 1),
  add verdict text not null default 'unchecked'
    check (verdict in ('supported', 'partial', 'unsupported', 'unchecked')),
  add finish text not null default '',
  add sources jsonb not null default '[]';            -- the citations of an answer

update messages m set
  turn = (select count(*) from messages q
    where q.tenant = m.tenant and q.conversation_id = m.conversation_id and q.role = 'user' and q.n <= m.n),
  intent = coalesce(metadata->>'intent', ''),
  entities = array(select jsonb_array_elements_text(coalesce(metadata->'entities', '[]'))),
  confidence = (metadata->>'confidence')::double precision,
  sources = coalesce(metadata->'sources', '[]'),
  metadata = metadata - array['intent', 'entities', 'confidence', 'sources'];
update conversations c set
  title = coalesce((select left(text, 200) from messages m
    where m.tenant = c.tenant and m.conversation_id = c.id and m.role = 'user' order by n limit 1), ''),
  n_messages = (select count(*) from messages m where m.tenant = c.tenant and m.conversation_id = c.id),
  n_turns = (select count(*) from messages m
    where m.tenant = c.tenant and m.conversation_id = c.id and m.role = 'user'),
  metadata = metadata - 'turn_count';

create table participants (
  tenant text collate "C" not null check (tenant <> ''),
  conversation_id uuid not null,
  name text collate "C" not null check (name <> ''),  -- a user id, or a role where users have no ids
  joined_at timestamptz not null default clock_timestamp(),
  primary key (tenant, conversation_id, name),
  foreign key (tenant, conversation_id) references conversations (tenant, id) on delete cascade
);
insert into participants (tenant, conversation_id, name)
select distinct tenant, conversation_id, coalesce(nullif(metadata->>'participant', ''), role) from messages;

alter table replies add conversation_id uuid;         -- null without a session
create index replies_by_conversation on replies (tenant, conversation_id) where conversation_id is not null;

-- One row a turn: the question with its answer.
create view conversation_turns with (security_invoker = true) as
select q.tenant, q.id, q.conversation_id, q.turn as turn_number, q.text as question, a.text as answer,
  array(select distinct unnest(q.entities || a.entities) order by 1) as entities_mentioned, q.intent, a.confidence,
  a.sources, q.metadata, q.created_at
from messages q
left join messages a on a.tenant = q.tenant and a.conversation_id = q.conversation_id and a.n = q.n + 1
  and a.role = 'assistant'
where q.role = 'user';
