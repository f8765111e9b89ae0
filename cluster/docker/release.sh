#!/usr/bin/env bash
# Builds an image for a release from a tree without changes. The digests of the base image and of torch's wheel are
# required: what a tag or a version names can change. docs/how-to/images.md says where to look them up.
#   cluster/docker/release.sh cpu BASE_DIGEST TORCH_SHA256
#   cluster/docker/release.sh cuda BASE_DIGEST
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${1:?the target must be cpu or cuda} base_digest=${2:-} torch_sha256=${3:-}

refuse() { echo "no release: $1" >&2; exit 2; }
[[ $target =~ ^(cpu|cuda)$ ]] || refuse "the target must be cpu or cuda, got '$target'"
[[ $base_digest =~ ^sha256:[0-9a-f]{64}$ ]] || refuse "BASE_DIGEST must be sha256: and 64 digits, got '$base_digest'"
[[ $target = cuda || $torch_sha256 =~ ^[0-9a-f]{64}$ ]] || refuse "TORCH_SHA256 must be 64 digits, got '$torch_sha256'"
changes=$(git status --porcelain)
[[ -z $changes ]] || refuse "the tree has changes that are not committed: $changes"

version=$(< rag_core/VERSION)
suffix=${target#cpu}
exec docker build --file cluster/docker/Dockerfile --target "$target" --tag "rag-on-ray:$version${suffix:+-$suffix}" \
  --platform linux/amd64 --build-arg BASE_DIGEST="$base_digest" --build-arg TORCH_SHA256="$torch_sha256" \
  --label org.opencontainers.image.version="$version" \
  --label org.opencontainers.image.revision="$(git rev-parse HEAD)" .
