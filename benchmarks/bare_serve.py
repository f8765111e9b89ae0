"""A Ray Serve deployment that does nothing. It listens without Serve's proxy, like the gateway, until interrupted.

python -m benchmarks.bare_serve 127.0.0.1 8124
"""

import signal
import sys
from contextlib import suppress

from fastapi import FastAPI
from ray import serve
from ray.serve import Application

from benchmarks.scratch import exit_when_terminated
from serve.shape.local import serve_locally
from serve.shape.replica_server import use_lent_listener

app = FastAPI()


@serve.deployment(max_ongoing_requests=64, ray_actor_options={"num_cpus": 0})
@serve.ingress(app)
class Bare:
    def __init__(self) -> None:
        use_lent_listener(header_seconds=10.0)

    @app.post("/")
    async def nothing(self) -> dict[str, str]:
        return {"status": "ok"}


def bare_app() -> Application:
    bound: Application = Bare.bind()
    return bound


def main(host: str, port: int) -> None:
    with serve_locally(bare_app, host, port), suppress(KeyboardInterrupt):
        exit_when_terminated()
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
