#!/usr/bin/env bash
# Static checks of every module.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

STATICCHECK=honnef.co/go/tools/cmd/staticcheck@v0.8.2

failed=0
say gofmt
unformatted=$(gofmt -l .)
if [[ -n $unformatted ]]; then
	printf 'not formatted, run gofmt -w:\n%s\n' "$unformatted" >&2
	failed=1
fi
say go vet
in_modules go vet ./... || failed=1
say "staticcheck ($STATICCHECK)"
in_modules go run "$STATICCHECK" ./... || failed=1
say go mod tidy -diff
in_modules go mod tidy -diff || failed=1
exit "$failed"
