#!/bin/sh
# Builds runsc, stripped and static, to the path given (default
# ../build/runsc). Without the version at link time every build says
# VERSION_MISSING, and a memory image could not name the binary that wrote it.
set -eu
out=$(realpath -m "${1:-$(dirname "$0")/../build/runsc}")
cd "$(dirname "$0")"
mkdir -p "$(dirname "$out")"
version=$(go list -m -f '{{.Version}}' gvisor.dev/gvisor)
CGO_ENABLED=0 go build -trimpath \
	-ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$version" \
	-o "$out" .
