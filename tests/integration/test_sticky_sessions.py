"""The router of the shipped shape for GPUs: requests of one session reach the same replica of the gateway."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import quiet_serve  # noqa: F401
import yaml

from serve.shape.config import read_serve_config

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore"),  # of Ray's own making
]

SHIPPED = Path(__file__).parents[2] / "cluster" / "serve" / "gpu.yaml"


class Replica:
    """A deployment that returns the id of its process."""

    def __call__(self) -> int:
        import os

        return os.getpid()


@pytest.fixture
def serving(ray_cluster: None) -> Iterator[None]:
    from ray import serve

    serve.start(proxy_location="Disabled")
    yield
    serve.shutdown()


def router() -> Mapping[str, Any]:
    read_serve_config(SHIPPED)  # raises for a key that Serve does not know
    deployments = yaml.safe_load(SHIPPED.read_text())["applications"][0]["deployments"]
    config: Mapping[str, Any] = next(deployment for deployment in deployments if deployment["name"] == "Gateway")[
        "request_router_config"
    ]
    return config


def test_a_session_stays_at_its_replica_and_sessions_are_spread(serving: None) -> None:
    from ray import serve
    from ray.serve.config import RequestRouterConfig

    options = {"num_cpus": 0}
    deployment = serve.deployment(
        Replica, num_replicas=2, ray_actor_options=options, request_router_config=RequestRouterConfig(**router())
    )
    handle = serve.run(deployment.bind(), name="sticky", route_prefix=None)

    async def ask(session: str) -> set[int]:
        return {await handle.options(session_id=session).remote() for _ in range(5)}

    async def ask_all() -> list[set[int]]:
        return [await ask(f"session-{number}") for number in range(12)]

    replicas = asyncio.run(ask_all())
    assert {len(replica) for replica in replicas} == {1}
    assert len(set.union(*replicas)) == 2
