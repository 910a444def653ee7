#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME; go test fuzzes one target of one package at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

fuzz() {
	local dir target failed=0
	while IFS=: read -r dir target <&4; do
		say "$dir $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-10s}" "$dir" || failed=1
	done 4< <(
		go list -f '{{$d := .Dir}}{{range .TestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}' ./... |
			while read -r file; do
				[[ -n $file ]] || continue
				sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | sed "s|^|$(dirname "$file"):|"
			done
	)
	return "$failed"
}
in_modules fuzz
