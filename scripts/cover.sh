#!/usr/bin/env bash
# Measures which code the tests of all packages of all modules together reach.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

scripts/gotest.sh -coverpkg="$(packages | paste -sd,)" -coverprofile=cover.out
go tool cover -func=cover.out
