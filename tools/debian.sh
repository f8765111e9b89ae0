#!/usr/bin/env bash
# Unpacks packages of Debian into a folder, without installing them: tools that only tests and checks need.
#   tools/debian.sh build/debian prometheus golang-1.19-go
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
downloads=$(mktemp -d)
trap 'rm -rf "$downloads"' EXIT
[ "$(id -u)" -ne 0 ] || apt-get update -qq
cd "$downloads"
apt-get download -qq -o APT::Sandbox::User=root "$@"
for package in *.deb; do dpkg -x "$package" "$folder"; done
