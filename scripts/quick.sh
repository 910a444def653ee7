#!/usr/bin/env bash
# What a contributor runs while working: go vet, and the library's own tests without the race detector, with the
# in-process server in place of real ones. What needs Java or another client is skipped; make test runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

say go vet
go vet ./...
say "go test, on the in-process server"
# zklock takes longest. Many of its tests wait, so more of them run at once than there are processors.
ZKLOCK_TEST_BACKEND=inprocess ZKTEST_CLIENTS=skip go test -vet=off -parallel 4 \
	./zklock ./session/... ./recipe/... ./zklock/... ./zktest/... ./internal/layout
say "took $SECONDS s"
