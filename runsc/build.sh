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

# gVisor drops the error of the host's fsync: a guest would take for synced what
# a full disk has refused. The calls are made to return theirs. Should gVisor
# change these lines the build fails, and this can go.
go mod download gvisor.dev/gvisor
cp -r --no-preserve=mode "$(go list -m -f '{{.Dir}}' gvisor.dev/gvisor)" "$work/gvisor"
file=$work/gvisor/pkg/sentry/fsimpl/gofer/gofer.go
sed -i -E 's/^(\t+)([rw]h\.sync(Data)?\(ctx\))$/\1if err := \2; err != nil {\n\1\treturn err\n\1}/' "$file"
[ "$(grep -cE '^\s+if err := [rw]h\.sync(Data)?\(ctx\); err != nil' "$file")" -eq 4 ] || { echo "gVisor's fsync is not where it was" >&2; exit 1; }
cp go.mod go.sum "$work"
go mod edit -replace "gvisor.dev/gvisor=$work/gvisor" "$work/go.mod"

version=$(go list -m -f '{{.Version}}' gvisor.dev/gvisor)+billet.1
CGO_ENABLED=0 go build -trimpath -modfile "$work/go.mod" \
	-ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$version" \
	-o "$out" .
