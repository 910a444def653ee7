#!/usr/bin/env bash
# Runs go test with the given flags in every module.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

say "go test $*"
# shellcheck disable=SC2086 # TESTFLAGS is several words
in_modules go test -timeout "${TEST_TIMEOUT:-20m}" -p "${PARALLEL:-1}" "$@" ${TESTFLAGS:-} ./...
