#!/usr/bin/env bash
# Runs go test with the given flags on the packages of every module, PARALLEL of them at once. Those that take longest
# are the first, so that none of them is left over at the end. go vet is left to check.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

say "go test $*"
# shellcheck disable=SC2046,SC2086 # several words each
go test -vet=off -timeout "${TEST_TIMEOUT:-30m}" -p "${PARALLEL:-3}" "$@" ${TESTFLAGS:-} ./zklock ./tests/e2e $(packages)
