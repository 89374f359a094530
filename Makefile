# The two commands that matter: `make demo` and `make test`. Both run as root on
# a Debian machine with Go and git, set up what they need, and may be repeated.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := build

# Binaries that are shipped are static, stripped and say which commit they are.
VCS       := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false)
GO_BUILD  := CGO_ENABLED=0 go build -trimpath -buildvcs=$(VCS) -ldflags='-s -w'
RESULTS   := build/results
TESTSUM   := build/tools/testsum

# A race-enabled process sleeps a second before it exits, for races that are at
# it; the tests' processes are many, and end when they have been waited for.
export GORACE := atexit_sleep_ms=0

# Tests that need root, a sandbox, FUSE or a server say so by testenv. Those
# packages run one at a time and never from the cache: two of them at once only
# time each other out on two cores. Everything else is a unit test.
HEAVY      = $(filter-out ./internal/faults,$(shell grep -rl --include='*_test.go' '"github.com/billethq/billet/internal/testenv"' bench cmd internal | xargs -r dirname | sort -u | sed 's,^,./,'))
LIGHT      = $(filter-out $(HEAVY),$(shell go list -e -f '{{if or .TestGoFiles .XTestGoFiles}}.{{slice .ImportPath (len .Module.Path)}}{{end}}' ./...))

.PHONY: build
build: ## build/billet and build/billet-guest
	$(GO_BUILD) -o build/ ./cmd/...

.PHONY: runsc
runsc: build/runsc ## gVisor's sandbox, from its Go module

build/runsc: $(wildcard runsc/* runsc/patches/*)
	sh runsc/build.sh $@

.PHONY: deps
deps: ## install what billet needs of Debian; with the tests' needs: make test-deps
	@bash scripts/deps.sh

.PHONY: test-deps
test-deps:
	@bash scripts/deps.sh test

.PHONY: tools
tools: ## lint and test tools, from their own module
	@go -C tools build -o ../build/tools/ tool ./testsum

.PHONY: check
check: tools ## format, vet, lint and the rules of the house
	@unformatted=$$(gofmt -l bench cmd internal runsc scripts tools); [ -z "$$unformatted" ] || { echo "not formatted (gofmt -w):"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go vet -tags failpoint ./...
	go -C tools vet ./...
	build/tools/staticcheck ./...
	build/tools/staticcheck -tags failpoint ./internal/faults ./internal/failpoint
	build/tools/exhaustive -check=switch -typeonly='^github.com/billethq/billet/' ./...
	go test -count=1 ./internal/archtest

# Each suite runs whatever the others did; the summary decides.
.PHONY: test
test: test-deps build runsc tools ## every test; closes with "N passed, N failed, N skipped"
	@rm -rf $(RESULTS)
	@go -C tools test -json ./... | $(TESTSUM) -save $(RESULTS)/tools.json || true
	@go test -json -race -p 2 -timeout 10m $(LIGHT) | $(TESTSUM) -save $(RESULTS)/unit.json || true
	@go test -json -race -tags failpoint ./internal/failpoint | $(TESTSUM) -save $(RESULTS)/failpoint.json || true
	@go test -json -race -p 1 -timeout 20m -count=1 $(HEAVY) | $(TESTSUM) -save $(RESULTS)/heavy.json || true
	@go test -json -tags failpoint -timeout 20m -count=1 ./internal/faults | $(TESTSUM) -save $(RESULTS)/faults.json || true
	@$(TESTSUM) -skips .ci/skips $(if $(BILLET_CI),-strict) $(RESULTS)/{tools,unit,failpoint,heavy,faults}.json

.PHONY: demo
demo: deps build runsc ## the main job, for real, with its times
	@go run ./scripts/demo

.PHONY: bench
bench: test-deps build runsc ## figures as ratios against a baseline of the same run (bench/README.md)
	go test -run='^$$' -bench='Create|Start' -benchtime=25x -timeout 30m ./bench
	go test -run='^$$' -bench='StopUpload|Idle|Memory' -benchtime=5x -timeout 30m ./bench

.PHONY: bench-resume
bench-resume: test-deps build runsc ## hibernate and resume against bare checkpoint and restore (bench/README.md)
	go test -v -run='^$$' -bench='Resume|Hibernate|Fork' -benchtime=30x -timeout 90m ./bench
	go test -v -run='^$$' -bench='Burst' -benchtime=5x -timeout 30m ./bench

.PHONY: soak
soak: test-deps build runsc ## the same tests for long: fuzz each parser, repeat each fault
	@SOAK=$${SOAK:-30s} bash scripts/soak.sh

.PHONY: clean
clean:
	rm -rf build

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 10
