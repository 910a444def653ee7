#!/usr/bin/env bash
# Measures, per module, which code the tests of all its packages together reach.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

scripts/gotest.sh -coverpkg=./... -coverprofile=cover.out
in_modules go tool cover -func=cover.out
