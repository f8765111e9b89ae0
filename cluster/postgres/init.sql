-- Run once by Postgres' image, as the superuser, in the database `rag`: what docs/how-to/own-postgres.md asks a DBA for.
-- The superuser loses its password afterwards, so that it can only connect inside the container.
\set ON_ERROR_STOP 1
\getenv password POSTGRES_PASSWORD
create role rag login password :'password';
create role rag_owner nologin;
create role rag_app nologin;
create role rag_worker nologin;
create role rag_reader nologin;
grant rag_owner, rag_app, rag_worker, rag_reader to rag;
alter database rag owner to rag;
create extension vector;
alter role postgres password null;
