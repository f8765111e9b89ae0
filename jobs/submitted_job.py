"""The runtime environment of the submitted job that this process is, as Ray passes it."""

import json
import os
from collections.abc import Mapping
from typing import Any

SUBMITTED_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable that Ray sets in the process of a submitted job."""


def is_submitted_job() -> bool:
    return SUBMITTED_JOB in os.environ


def read_runtime_env() -> Mapping[str, Any]:
    """The runtime environment that the job was submitted with. It is empty in any other process."""
    job = json.loads(os.environ.get(SUBMITTED_JOB, "{}"))
    return job.get("runtime_env") or {}
