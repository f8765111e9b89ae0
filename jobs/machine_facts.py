"""Facts about the machine of a node: disks, memory, GPUs, ports, and the environment of its processes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Literal, TypeAlias

import psutil

from jobs.node_program import find_version
from rag_core.storage.embedded import rag_home

ENVIRONMENT_PREFIXES = ("RAY_SERVE_", "RAG_")
OWN_VARIABLES = frozenset({"RAG_HOME"})
"""Variables that can differ between nodes."""
GATEWAY_HEALTH = b'{"status":"ok"}'
HTTP_SECONDS = 5.0
IMPORT_SECONDS = 45.0
COUNT_GPUS = "import torch; print(torch.cuda.device_count())"
IMPORT_VLLM = "import vllm; print(vllm.__version__)"

PortState: TypeAlias = Literal["free", "gateway", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    path: str
    free_gb: float
    used_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """`names` has the model and the memory of each GPU. The values after it say what Python can use.

    `visible` is the number that PyTorch sees; -1 and an empty `vllm` mean that the import failed with `errors`.
    """

    names: tuple[str, ...] = ()
    visible: int = 0
    vllm: str = ""
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """`environment` has a salted hash of each variable, so that values can be compared and not be read."""

    home: Disk
    ray: Disk
    memory_gb: float
    gpus: Gpus
    gateway_port: PortState
    environment: Mapping[str, str]


def read_machine(gateway_port: int, salt: bytes) -> MachineFacts:
    """Reads the facts of the machine of the node on which Ray runs this function."""
    import ray

    return MachineFacts(
        home=_measure_disk(rag_home()),
        ray=_measure_disk(Path(ray.get_runtime_context().get_temp_dir())),
        memory_gb=psutil.virtual_memory().available / 1e9,
        gpus=read_gpus(),
        gateway_port=probe_gateway_port(gateway_port),
        environment=hash_environment(os.environ, salt),
    )


def _measure_disk(folder: Path) -> Disk:
    """The disk of the folder, or of its nearest parent that exists."""
    while not folder.exists():
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    return Disk(path=str(folder), free_gb=usage.free / 1e9, used_share=usage.used / (usage.used + usage.free))


def read_gpus() -> Gpus:
    """Asks the driver, and then PyTorch and vLLM in processes of their own: Ray hides GPUs from a task without any."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return Gpus()
    query = ["--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        names = _run_program([program, *query]).splitlines()
    except RuntimeError as error:
        return Gpus(visible=-1, errors=(f"nvidia-smi: {error}",))
    if not names:
        return Gpus()
    errors: list[str] = []
    visible, vllm = "-1", ""
    try:
        visible = _run_program([sys.executable, "-c", COUNT_GPUS])
    except RuntimeError as error:
        errors.append(f"torch: {error}")
    if find_version("vllm"):
        try:
            vllm = _run_program([sys.executable, "-c", IMPORT_VLLM]).rpartition("\n")[2]
        except RuntimeError as error:
            errors.append(f"vllm: {error}")
    return Gpus(names=tuple(names), visible=int(visible), vllm=vllm, errors=tuple(errors))


def _run_program(command: Sequence[str]) -> str:
    """Returns what the program prints. Raises RuntimeError with its last line if it fails or takes too long."""
    variables = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    try:
        ran = subprocess.run(  # noqa: S603 - the arguments are ours
            command, env=variables, capture_output=True, text=True, check=False, timeout=IMPORT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no answer within {IMPORT_SECONDS:g} s") from None
    if ran.returncode:
        raise RuntimeError((ran.stderr.strip() or ran.stdout.strip()).rpartition("\n")[2])
    return ran.stdout.strip()


def probe_gateway_port(port: int) -> PortState:
    """Requests /healthz from this machine. A port at which nothing listens is free."""
    connection = HTTPConnection("127.0.0.1", port, timeout=HTTP_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return "gateway" if connection.getresponse().read(len(GATEWAY_HEALTH) + 1) == GATEWAY_HEALTH else "other"
    except ConnectionRefusedError:
        return "free"
    except (OSError, HTTPException):
        return "other"
    finally:
        connection.close()


def probe_http(host: str, port: int, path: str) -> str:
    """The reason why nothing answers HTTP at the address, or an empty string. Any status is an answer."""
    connection = HTTPConnection(host, port, timeout=HTTP_SECONDS)
    try:
        connection.request("GET", path)
        connection.getresponse()
    except (OSError, HTTPException) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()
    return ""


def hash_environment(environment: Mapping[str, str], salt: bytes) -> dict[str, str]:
    """The salted hashes of the variables that must be equal on all nodes."""
    return {
        name: blake2b(value.encode(errors="surrogateescape"), key=salt, digest_size=8).hexdigest()
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIXES) and name not in OWN_VARIABLES
    }
