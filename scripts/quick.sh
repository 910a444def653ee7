#!/usr/bin/env bash
# What a contributor runs while working: go vet, and the library's own tests without the race detector, with the
# in-process server in place of real ones.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

say go vet
go vet ./...
say "go test, on the in-process server"
ZKLOCK_TEST_BACKEND=inprocess go test ./recipe/... ./session/... ./zklock/... ./zktest/... ./internal/layout
say "took $SECONDS s"
