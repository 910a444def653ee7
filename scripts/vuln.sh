#!/usr/bin/env bash
# Looks for known vulnerabilities. Fails when it finds one, and never because it could not look: neither the program
# nor its database is reachable everywhere.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

GOVULNCHECK=golang.org/x/vuln/cmd/govulncheck@v1.9.0
DATABASE=https://vuln.go.dev

# First, since building it and loading all packages takes twenty seconds.
if command -v curl >/dev/null && ! says=$(curl -sSf --max-time 30 -o /dev/null "$DATABASE/index/db.json" 2>&1); then
	say "govulncheck: skipped, it could not look: $says"
	exit 0
fi

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
if ! GOBIN=$bin timeout 120 go install "$GOVULNCHECK" >"$bin/log" 2>&1; then
	say "govulncheck: skipped, it cannot be built here: $(grep -v '^go: downloading' "$bin/log" | tail -n 1)"
	exit 0
fi

code=0
# shellcheck disable=SC2046 # several words
timeout 300 "$bin/govulncheck" -db "$DATABASE" $(packages) >"$bin/log" 2>&1 || code=$?
case $code in
0) say "govulncheck: nothing found" ;;
3)
	cat "$bin/log"
	exit 1
	;;
*) say "govulncheck: skipped, it could not look: $(tail -n 1 "$bin/log")" ;;
esac
