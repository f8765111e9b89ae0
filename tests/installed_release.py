"""A namespace in which the rendered chart is installed: its secrets, its settings, its volume and its Postgres."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from charts import CHART, render_example
from containers import run_network
from kubernetes_pods import Namespace
from postgres_pod import postgres_spec, wait_for_store

from rag_core.storage.postgres import Postgres
from tools.render_chart import merge, read_values, render_documents

PASSWORD = uuid4().hex
SECRETS = {
    "rag-store": {"dsn": f"host=postgres dbname=rag user=rag password={PASSWORD} sslmode=disable"},
    "rag-ray-token": {"auth_token": uuid4().hex},
    "rag-s3": {"AWS_ACCESS_KEY_ID": uuid4().hex, "AWS_SECRET_ACCESS_KEY": uuid4().hex},
}
HIDDEN = [PASSWORD, *SECRETS["rag-ray-token"].values(), *SECRETS["rag-s3"].values()]
"""What no command line and no log may contain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledRelease:
    """`store`: the server as this machine reaches it."""

    manifests: Sequence[Mapping[str, Any]]
    namespace: Namespace
    store: Postgres

    def find(self, kind: str, name: str) -> Mapping[str, Any]:
        return find_manifest(self.manifests, kind, name)


def render_manifests(example: str, values: str, changes: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The manifests for the values of an example, of a YAML text and of changes. Skips the test without Go."""
    render_example("default")
    changed = merge(read_values([CHART / "examples" / f"{example}.yaml"]), yaml.safe_load(values))
    return render_documents(merge(changed, changes or {}))


def find_manifest(manifests: Sequence[Mapping[str, Any]], kind: str, name: str) -> Mapping[str, Any]:
    """The first manifest of the kind whose name matches the expression."""
    return next(
        manifest
        for manifest in manifests
        if manifest["kind"] == kind and re.fullmatch(name, manifest["metadata"]["name"])
    )


@contextmanager
def install_release(
    folder: Path, manifests: Sequence[Mapping[str, Any]], claims: Mapping[str, Path]
) -> Iterator[InstalledRelease]:
    """Starts Postgres, but no pod of the chart. The path of the folder must be short."""
    folder.mkdir()
    password = folder / "password"
    password.write_text(PASSWORD)
    variables = {
        "POSTGRES_DB": "rag",
        "POSTGRES_PASSWORD_FILE": "/run/secrets/postgres_password",
        "POSTGRES_INITDB_ARGS": "--auth-host=scram-sha-256",
    }
    with run_network(folder) as network:
        network.run("postgres", postgres_spec(network, variables, password))
        settings = find_manifest(manifests, "ConfigMap", "rag-settings")
        namespace = Namespace(
            network=network, secrets=SECRETS, config_maps={"rag-settings": settings["data"]}, claims=claims
        )
        yield InstalledRelease(manifests=manifests, namespace=namespace, store=wait_for_store(network))
