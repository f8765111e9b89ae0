"""A Ray Serve deployment that does nothing."""

from fastapi import FastAPI
from ray import serve
from ray.serve import Application

app = FastAPI()


@serve.deployment(max_ongoing_requests=64, ray_actor_options={"num_cpus": 0})
@serve.ingress(app)
class Bare:
    @app.post("/")
    async def nothing(self) -> dict[str, str]:
        return {"status": "ok"}


def bare_app() -> Application:
    return Bare.bind()
