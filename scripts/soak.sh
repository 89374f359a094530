#!/usr/bin/env bash
# Fuzzes every parser and codec for $SOAK each, then repeats the tests that
# inject faults. Not part of `make test`: it looks for what no seed has shown.
set -euo pipefail
cd "$(dirname "$0")/.."
soak=${SOAK:-30s}

grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' internal | while IFS=: read -r file fn; do
	name=${fn#func }
	echo "fuzz ${file%/*} $name $soak"
	go test -run='^$' -fuzz="^$name\$" -fuzztime="$soak" "./${file%/*}"
done

go test -race -p 1 -count=5 -timeout 120m -run='Fault|Kill|Crash' ./...
go test -tags failpoint -count=5 -timeout 120m ./internal/faults
