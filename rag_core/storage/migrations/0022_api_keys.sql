-- Keys of the API. A secret is stored only as its hash.

create table api_keys (
  tenant text collate "C" not null check (tenant <> ''),
  id text collate "C" not null check (id ~ '^[A-Za-z0-9]{8}$'),  -- public: the first part of the key
  secret_hash bytea not null check (length(secret_hash) = 32),   -- SHA-256; 256 random bits need no slow hash
  name text not null default '',
  user_id text collate "C" not null check (user_id <> ''),       -- a rotated key keeps it
  scopes text[] not null,
  groups text[] not null default '{}',
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  last_used_at timestamptz,
  revoked_at timestamptz,
  primary key (tenant, id)
);
create unique index api_keys_by_id on api_keys (id);

-- A request presents a key before its tenant is known.
create policy of_presented_key on api_keys for select using (id = (select current_setting('app.key', true)));
