"""Writes the locks of the images: each package with its version and the hashes of its files.

    make lock

`constraints.txt` decides the versions of the CPU image. Those of the CUDA image are the same, except where vLLM pins
another one. FastAPI's upper bound in vLLM is ignored: it is for the HTTP server of vLLM, which is unused.
Each package has a wheel for the glibc 2.36 of Debian 12, the base image: it has no compiler.
torch is not in the CPU lock but in a file without hashes, because its CPU build comes from an index of its own.
"""

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
FOLDER = ROOT / "cluster" / "docker"
HEADER = "# Written by `make lock` from pyproject.toml and constraints.txt. Do not edit.\n"
EXTRAS = ("s3", "gs", "vault")
CUDA_PACKAGES = (
    *("cuda-bindings", "cuda-toolkit", "triton"),
    *("nvidia-cudnn-cu13", "nvidia-cusparselt-cu13", "nvidia-nccl-cu13", "nvidia-nvshmem-cu13"),
)
"""The packages that torch requires in its CUDA build only."""
COMPILE = (
    *(sys.executable, "-m", "uv", "pip", "compile", "requirements.txt", "--output-file", "lock.txt"),
    *("--overrides", "overrides.txt", "--excludes", "excludes.txt", "--generate-hashes"),
    *("--no-header", "--no-annotate"),
    *("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_36", "--only-binary", ":all:", "--quiet"),
)


@dataclass(frozen=True, slots=True)
class Lock:
    """The packages of one environment. `overrides` replace what other packages require; `excludes` are left out."""

    name: str
    requirements: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()

    @property
    def file(self) -> Path:
        return FOLDER / f"requirements-{self.name}.txt"


LOCKS = (
    Lock("build", ("pip", "setuptools")),
    Lock("cpu", (f"rag-on-ray[{','.join(EXTRAS)}]",), excludes=CUDA_PACKAGES, unlisted=("rag-on-ray", "torch")),
    Lock("cuda", (f"rag-on-ray[{','.join(EXTRAS)},vllm]",), overrides=("fastapi",), unlisted=("rag-on-ray",)),
)


def write_lock(lock: Lock) -> None:
    """Versions of `constraints.txt` are preferred, and given up where the requirements exclude them."""
    with tempfile.TemporaryDirectory() as folder:
        files = {
            "requirements": [requirement.replace("rag-on-ray", f"{ROOT}") for requirement in lock.requirements],
            "overrides": [line for line in pins() if line.partition("==")[0] in lock.overrides],
            "excludes": lock.excludes,
            "lock": pins(),
        }
        for name, lines in files.items():
            (Path(folder) / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        options = [f"--no-emit-package={name}" for name in lock.unlisted]
        subprocess.run([*COMPILE, *options], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        lock.file.write_text(HEADER + (Path(folder) / "lock.txt").read_text())


def pins() -> list[str]:
    """The lines `name==version` of constraints.txt."""
    return [line for line in CONSTRAINTS.read_text().splitlines() if "==" in line and not line.startswith("#")]


def main() -> None:
    torch = next(line for line in pins() if line.startswith("torch=="))
    (FOLDER / "requirements-torch.txt").write_text(f"{HEADER}{torch}\n")
    for lock in LOCKS:
        write_lock(lock)
        print(f"{lock.file.relative_to(ROOT)}: {lock.file.read_text().count('==')} packages", file=sys.stderr)


if __name__ == "__main__":
    main()
