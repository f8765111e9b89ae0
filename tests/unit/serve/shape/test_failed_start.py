"""A gateway whose Ray does not start."""

import pytest
import quiet_serve  # noqa: F401
import ray
from ray import serve

from benchmarks.free_port import find_free_port
from rag_core.errors import ClusterError
from serve.shape import local


def test_ray_that_starts_too_slowly_is_an_error_and_no_other_serve_is_shut_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def time_out(**_options: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(local, "set_environment", lambda _ingress: None)
    monkeypatch.setattr(ray, "init", time_out)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(serve, "shutdown", lambda: pytest.fail("it would start Ray again"))
    served = local.serve_locally(lambda: pytest.fail("Ray did not start"), "127.0.0.1", find_free_port())
    with pytest.raises(ClusterError, match=r"^cannot start the gateway: The current node timed out"), served:
        pass
