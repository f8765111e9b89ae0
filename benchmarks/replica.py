"""The process of the gateway that Ray Serve runs for this process."""


def find_replica() -> tuple[int, float]:
    """The process id of the gateway's running replica, and the time at which Serve started it."""
    from ray.serve.context import _get_global_client

    details = _get_global_client().get_serve_details()  # type: ignore[union-attr]
    replicas = details["applications"]["rag"]["deployments"]["Gateway"]["replicas"]
    return next((replica["pid"], replica["start_time_s"]) for replica in replicas if replica["state"] == "RUNNING")
