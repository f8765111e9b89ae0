"""Responses conform to `/openapi.json` whatever a client sends: no 500, no undocumented status or body.

A longer run needs a running `rag serve`: the command below with `-n 500`, and without `--generation-deterministic`.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
from example_counts import scale_examples
from fakes.serving import serve_graph, serve_profiles
from trees import hashing_settings, ingest, write

from rag_core.scopes import SCOPES
from rag_core.storage.keys import Keys
from rag_core.storage.postgres import Postgres
from serve.gateway_settings import SettingsSource, load_gateway_settings
from serve.profiles import build_profiles
from serve.services import open_shared_resources

pytestmark = [pytest.mark.postgres, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(300)]

FILES = {
    "keys.md": "# Keys\n\nSigning keys are replaced every 45 days. The harbour master keeps a copy.",
    "locks.md": "# Locks\n\nThe sea lock opens two hours before high water. Boats wait at the pontoon.",
    "empty.md": "",
}
OPTIONS = (
    *("--phases", "examples,coverage,fuzzing", "--generation-deterministic", "--no-color"),
    # No schema tells which cursor was given out, or which legs a profile has: well-formed bodies may be refused.
    *("--exclude-checks", "positive_data_acceptance"),
    *("--request-timeout", "100"),  # the first request of a profile loads its models
    *("--exclude-path-regex", "/events$"),  # it lasts as long as the job, which no worker runs
)
CONFIGURATION = """
[parameters]
"header.Prefer" = "respond-async"  # no worker runs the jobs that a client would wait for

[checks.not_a_server_error]
# A search of one millisecond can be too slow, and on a busy machine the store can be too slow for the probe after it.
expected-statuses = ["2xx", "3xx", "4xx", 503, 504]
[checks.negative_data_rejection]
expected-statuses = [207, "4xx"]  # of several documents those that are valid are taken
"""
HOOKS = """
import itertools

import schemathesis

PROFILES = itertools.cycle({profiles!r})


@schemathesis.hook
def before_call(context, case, kwargs):
    if not isinstance(case.body, dict) or "max_num_results" in case.body:
        return
    if "messages" in case.body:
        options = case.body.setdefault("rag", {{}})
    else:
        options = case.body if {{"query", "question"}} & case.body.keys() else None
    if isinstance(options, dict) and isinstance(options.get("profile", ""), str):
        options["profile"] = next(PROFILES)
"""
"""Names a profile in every question, each in turn."""
SETTINGS = "profiles: {lexical: {retrieval: {type: bm25}}}\n"
PROFILES = ["default", "pmc-cpu", "dailymed-cpu", "clinicaltrials-cpu", "lexical"]
SCHEMATHESIS = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]


def test_every_answer_conforms_to_the_schema(store: Postgres, tmp_path: Path) -> None:
    settings = hashing_settings(f"store.url={store.dsn}")
    ingest(store, write(tmp_path / "files", FILES), settings=settings)
    with serve_graph(open_shared_resources(settings).build_services(settings)) as address:
        check_schema(address, tmp_path)


def test_every_answer_of_every_profile_conforms_to_the_schema(store: Postgres, tmp_path: Path) -> None:
    file = tmp_path / "rag.yaml"
    file.write_text(SETTINGS)
    overrides = "embedding={type: hashing}", "answering.budget=none", f"store.url={store.dsn}"
    settings = load_gateway_settings(SettingsSource(file=str(file), set=overrides, environment={}))
    ingest(store, write(tmp_path / "files", FILES), settings=settings.own)
    (tmp_path / "hooks.py").write_text(HOOKS.format(profiles=PROFILES))
    profiles = build_profiles(settings, open_shared_resources(settings.own))
    with serve_profiles(profiles) as address:
        check_schema(address, tmp_path, {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(tmp_path)})
    assert set(PROFILES) <= set(profiles.built_names)


def test_every_answer_to_an_administrator_with_a_key_is_one_of_the_schema(store: Postgres, tmp_path: Path) -> None:
    settings = hashing_settings(f"store.url={store.dsn}", "auth.mode=keys")
    ingest(store, write(tmp_path / "files", FILES), settings=settings)
    with store.connect() as connection:
        key = Keys(connection, settings.tenant).create(SCOPES, user="root")
    with serve_graph(open_shared_resources(settings).build_services(settings)) as address:
        check_schema(address, tmp_path, options=["--header", f"Authorization: Bearer {key.text}"])


def check_schema(
    address: str,
    folder: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
    options: Sequence[str] = (),
) -> None:
    (folder / "schemathesis.toml").write_text(CONFIGURATION)
    command = [*SCHEMATHESIS, "run", f"{address}/openapi.json", *OPTIONS, *options, "-n", str(scale_examples(15))]
    variables = {**os.environ, **environment}
    process = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=290, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
