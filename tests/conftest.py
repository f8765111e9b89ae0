"""Fixtures of all tests: a Postgres server per test process, an empty store per test, one Ray cluster."""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest
from cpu_time import CpuTime
from example_counts import scale_examples
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from rag_core.storage import embedded
from rag_core.storage.postgres import Postgres
from rag_core.telemetry.logs import disable_logs
from rag_core.telemetry.metrics import discard, install_sink
from rag_core.telemetry.traces import install_tracer

SMALL_MODEL_BYTES = 20_000_000
"""A limit above the tests' tiny models and below MiniLM."""

MEMORY_BYTES = 8_000_000_000
"""More than two servers of tests write."""

GARBAGE_THRESHOLD = 20_000
"""New objects before a collection, 700 by default. Hypothesis and pytest create many that live for a test."""

_numbers = count()

# a busy machine takes longer to generate and to run examples, and no test may fail for that
hypothesis_settings.register_profile(
    "unhurried", deadline=None, max_examples=scale_examples(100), suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("unhurried")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuTime())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Takes the collected tests and modules out of every garbage collection, and collects garbage more rarely."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD)
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def no_developer_settings() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith("RAG_")]:
            environment.delenv(name)
        yield


@pytest.fixture(autouse=True)
def reset_telemetry() -> Iterator[None]:
    """Ends logs, metrics and traces that a test has turned on."""
    yield
    disable_logs()
    install_sink(discard)
    install_tracer(None)


@pytest.fixture(autouse=True)
def refuse_what_is_not_marked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that starts Ray or loads MiniLM without the mark that keeps it out of `make test`."""
    marks = {mark.name for mark in request.node.iter_markers()}
    layers, ray_ran = sys.modules.get("rag_core.models.encoders.bert_layers"), _ray_runs()
    if "model" not in marks and layers is not None:
        load_file = layers.load_file

        def load_small_file(path: Path) -> object:
            assert path.stat().st_size < SMALL_MODEL_BYTES, f"a test that loads {path} must be marked model"
            return load_file(path)

        monkeypatch.setattr(layers, "load_file", load_small_file)
    yield
    assert "ray" in marks or ray_ran or not _ray_runs(), "a test that starts Ray must be marked ray"


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a unix socket, readable for the user that root's Postgres runs as.

    It is in memory if there is room: a store has 300 files, and ext4 is slow to create files where many were deleted.
    """
    memory, disk = Path("/dev/shm"), Path("/tmp")  # noqa: S108 - the folder below gets a random name
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > MEMORY_BYTES
    folder = Path(tempfile.mkdtemp(prefix="rag-", dir=memory if has_room else disk))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(short_folder: Path) -> Iterator[Postgres]:
    """A server of this test process. It runs without fsync, which is faster."""
    folder = short_folder / "postgres"
    dsn = embedded.start(folder)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("alter system set fsync = off")
        connection.execute("select pg_reload_conf()")
    yield Postgres.open(dsn)
    embedded.stop(folder)


@pytest.fixture(scope="session")
def template_database(postgres: Postgres) -> str:
    """The name of the database that stores are copied from."""
    name = "migrated"
    _maintain(postgres, SQL("create database {}").format(Identifier(name)))
    Postgres.open(make_conninfo(postgres.dsn, dbname=name))
    return name


@pytest.fixture
def store(postgres: Postgres, template_database: str) -> Iterator[Postgres]:
    """An empty store."""
    with _new_store(postgres, template_database) as store:
        yield store


@pytest.fixture(scope="module")
def module_store(postgres: Postgres, template_database: str) -> Iterator[Postgres]:
    """A store that the tests of a module share, empty before the first."""
    with _new_store(postgres, template_database) as store:
        yield store


@contextmanager
def _new_store(postgres: Postgres, template_database: str) -> Iterator[Postgres]:
    name = f"store_{next(_numbers)}"
    create = SQL("create database {} template {} strategy file_copy").format(
        Identifier(name), Identifier(template_database)
    )
    _maintain(postgres, create)
    yield Postgres(make_conninfo(postgres.dsn, dbname=name))
    _maintain(postgres, SQL("drop database {} with (force)").format(Identifier(name)))


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A local Ray cluster for all tests of this process."""
    from jobs.ray_connection import RAY_ENVIRONMENT, start_ray

    with pytest.MonkeyPatch.context() as environment:
        for name, value in RAY_ENVIRONMENT.items():
            environment.setenv(name, value)
        environment.delenv("RAY_ADDRESS", raising=False)
        environment.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # tests hand their own objects to workers
        start_ray()
        import ray

        yield
        ray.shutdown()


@pytest.fixture
def tenant() -> str:
    return "tenant-under-test"


def _ray_runs() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _maintain(postgres: Postgres, statement: psycopg.sql.Composable) -> None:
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(statement)
