#!/usr/bin/env bash
# Vets and builds what users import or install on every system it is for. Runs the short tests on
# 386, where an int has 32 bits, if this machine can. Vets it with the oldest Go release that its
# go.mod allows, and tests it on the in-process server with the newest patch of that; the go command
# fetches what is not here. Of tests/ it runs the simulation.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

export CGO_ENABLED=0
failed=0
for target in linux/arm64 windows/amd64 darwin/arm64 freebsd/amd64 linux/386 js/wasm; do
	say "$target"
	for module in "${PUBLIC[@]}"; do
		(cd "$module" && GOOS=${target%/*} GOARCH=${target#*/} go build -o /dev/null ./... && GOOS=${target%/*} GOARCH=${target#*/} go vet ./...) || failed=1
	done
done

# with_386 runs the tests of the module in the working directory.
with_386() {
	# shellcheck disable=SC2046 # several words
	GOARCH=386 ZKLOCK_TEST_BACKEND=inprocess go test -short -vet=off \
		$(go list ./... | grep -v '/locker/tests/\|/examples/')
}
if [[ $(go env GOHOSTOS) == linux ]] &&
	GOARCH=386 go test -vet=off -run '^$' ./recipe >/dev/null 2>&1; then
	say "tests on linux/386"
	for module in "${PUBLIC[@]}"; do
		(cd "$module" && with_386) || failed=1
	done
else
	say "NOT RUN: the tests on linux/386, whose programs this machine does not run"
fi

oldest=$(sed -n 's/^go //p' go.mod)
# Tests in simulated time need the newest patch: the first ones have bugs in testing/synctest.
patched=$(GOWORK=off go list -m -versions go | tr ' ' '\n' | grep -x "${oldest%.*}\.[0-9]*" | sort -V | tail -1)
say "go $oldest, tests with go $patched"
# The checkout's own go.work also uses modules that need a newer release.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
	echo "go $oldest"
	printf "use $PWD/%s\n" "${PUBLIC[@]}" | sed 's|/\.$||'
	grep '^replace ' go.work | sed "s|=> \.$|=> $PWD|"
} >"$work/go.work"
for module in "${PUBLIC[@]}"; do
	(cd "$module" && export GOWORK=$work/go.work ZKLOCK_TEST_BACKEND=inprocess && GOTOOLCHAIN=go$oldest go vet ./... &&
		GOTOOLCHAIN=go$patched go test -vet=off $(go list ./... | grep -v '/locker/tests/\|/examples/')) || failed=1
done
GOWORK=$work/go.work GOTOOLCHAIN=go$patched go test -vet=off ./tests/simulation || failed=1
exit "$failed"
