#!/usr/bin/env bash
# Runs go test with the given flags in every module, one after the other. With BESIDE=yes the other modules' tests run
# beside the root's, since both mostly wait: quicker, where there are cores for it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

# shellcheck disable=SC2086 # TESTFLAGS is several words
gotest() { go test -timeout "${TEST_TIMEOUT:-20m}" -p "${PARALLEL:-1}" "$@" ${TESTFLAGS:-} ./...; }

say "go test $*"
if [[ ${BESIDE:-no} != yes ]]; then
	in_modules gotest "$@"
	exit
fi
log=$(mktemp)
trap 'kill "$others" 2>/dev/null || true; rm -f "$log"' EXIT
in_modules_but_root gotest "$@" >"$log" 2>&1 &
others=$!
failed=0
gotest "$@" || failed=1
wait "$others" || failed=1
cat "$log"
exit "$failed"
