#!/usr/bin/env bash
# Static checks of every module. Dependencies are compiled for the race detector, as the tests of make all are: so they
# are compiled once. Packages with files that this leaves out are checked without it as well.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

STATICCHECK=honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOCOGNIT=github.com/uudashr/gocognit/cmd/gocognit@v1.3.0

root=$PWD

# tidy shows what go mod tidy would change. A nested module requires a version of the root module that may not be
# published yet: it is tidied with the checkout in that version's place, in copies of go.mod and go.sum.
tidy() {
	[[ $PWD != "$root" ]] || {
		GOWORK=off go mod tidy -diff
		return
	}
	local tmp path code=0
	tmp=$(mktemp -d)
	path=$(sed -n 's/^module //p' "$root/go.mod")
	cp go.mod go.sum "$tmp"
	go mod edit "-replace=$path=$root" "$tmp/go.mod" &&
		GOWORK=off go mod tidy -modfile="$tmp/go.mod" &&
		go mod edit "-dropreplace=$path" "$tmp/go.mod" || code=1
	diff -u --label go.mod --label 'go.mod, tidy' <(go mod edit -print) <(go mod edit -print "$tmp/go.mod") || code=1
	diff -u --label go.sum --label 'go.sum, tidy' go.sum "$tmp/go.sum" || code=1
	rm -rf "$tmp"
	return "$code"
}

failed=0
say gofmt
unformatted=$(gofmt -l .)
if [[ -n $unformatted ]]; then
	printf 'not formatted, run gofmt -w:\n%s\n' "$unformatted" >&2
	failed=1
fi
mapfile -t all < <(packages)
mapfile -t unraced < <(grep -rl --include='*.go' '^//go:build .*!race' . | xargs -r dirname | sort -u)
say go vet
go vet -race "${all[@]}" || failed=1
go vet "${unraced[@]}" || failed=1
say "staticcheck ($STATICCHECK)"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN=$bin go install "$STATICCHECK"
GOFLAGS="$GOFLAGS -race" "$bin/staticcheck" "${all[@]}" || failed=1
"$bin/staticcheck" "${unraced[@]}" || failed=1
say "cognitive complexity at most 20, outside tests ($GOCOGNIT)"
GOBIN=$bin go install "$GOCOGNIT"
"$bin/gocognit" -over 20 -ignore '_test\.go$|^tests/|^examples/' . || failed=1
say go mod tidy -diff
in_modules tidy || failed=1
exit "$failed"
