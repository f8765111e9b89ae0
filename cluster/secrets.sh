#!/bin/sh
# Writes the secrets of cluster/compose.yaml into a folder, once: a password for Postgres, the DSN with it, and a token
# for Ray. Containers run as the user 10001, whose group may read the files: giving them to a group requires root.
#   sudo cluster/secrets.sh cluster/secrets
set -eu
folder=$1
mkdir -p "$folder"
[ ! -e "$folder/dsn" ] || { echo "$folder/dsn exists: the store would not accept another password" >&2; exit 1; }
umask 077
password=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
printf '%s\n' "$password" > "$folder/postgres_password"
printf 'host=postgres dbname=rag user=rag password=%s sslmode=disable\n' "$password" > "$folder/dsn"
od -An -N32 -tx1 /dev/urandom | tr -d ' \n' > "$folder/auth_token"
chmod 0440 "$folder"/*
chown "$(id -u):10001" "$folder"/*
