"""A gateway that somebody else's Serve runs, as `serve deploy` and KubeRay do, is not open to a network either."""

from pathlib import Path

import pytest
import quiet_serve  # noqa: F401
import yaml

from benchmarks.free_port import find_free_port
from rag_core.errors import ClusterError
from serve.shape.config import parse_serve_config
from serve.shape.local import deploy, wait_until_ready

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # Serve builds the application three times more
    pytest.mark.filterwarnings("ignore"),  # of Ray's own making
]
LOCAL = Path(__file__).parents[2] / "cluster" / "serve" / "local.yaml"


def test_serve_does_not_deploy_an_open_gateway_on_all_addresses(ray_cluster: None) -> None:
    from ray import serve

    host, port = "0.0.0.0", find_free_port()  # noqa: S104
    shape = yaml.safe_load(LOCAL.read_text())
    shape["http_options"] |= {"host": host, "port": port}
    serve.start(proxy_location="HeadOnly", http_options={"host": host, "port": port})
    try:
        deploy(parse_serve_config(shape))
        with pytest.raises(ClusterError, match=r"auth\.mode none"):
            wait_until_ready("127.0.0.1", port, print)
    finally:
        serve.shutdown()
