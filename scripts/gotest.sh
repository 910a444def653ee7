#!/usr/bin/env bash
# Runs go test with the given flags on the packages of every module, PARALLEL of them at once. The one that takes longest
# is the first. go vet is left to check.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

say "go test $*"
# shellcheck disable=SC2046,SC2086 # several words each
go test -vet=off -timeout "${TEST_TIMEOUT:-30m}" -p "${PARALLEL:-3}" "$@" ${TESTFLAGS:-} ./zklock $(packages)
