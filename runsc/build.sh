#!/bin/sh
# Builds runsc, stripped and static, to the path given (default
# ../build/runsc). Without the version at link time every build says
# VERSION_MISSING, and a memory image could not name the binary that wrote it.
set -eu
out=$(realpath -m "${1:-$(dirname "$0")/../build/runsc}")
cd "$(dirname "$0")"
mkdir -p "$(dirname "$out")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Each patch says why it is there. Should gVisor change those lines the build
# fails, and the patch is made anew or can go.
go mod download gvisor.dev/gvisor
cp -r --no-preserve=mode "$(go list -m -f '{{.Dir}}' gvisor.dev/gvisor)" "$work/gvisor"
patches=$PWD/patches
(cd "$work/gvisor" && GIT_CEILING_DIRECTORIES=$work git apply "$patches"/*.patch)
cp go.mod go.sum "$work"
go mod edit -replace "gvisor.dev/gvisor=$work/gvisor" "$work/go.mod"

version=$(go list -m -f '{{.Version}}' gvisor.dev/gvisor)+billet.2
CGO_ENABLED=0 go build -trimpath -modfile "$work/go.mod" \
	-ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$version" \
	-o "$out" .
