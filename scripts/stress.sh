#!/usr/bin/env bash
# Runs the compiled tests again and again for FOR (10m), shuffled, on the in-process server, in two copies, so that every test
# has another one beside it. It prints each failure with its log, and in the end each test that has failed with its rate.
# PKG=./zklock runs the tests of one package.
set -euo pipefail
cd "$(dirname "$0")/.."

read -ra patterns <<<"${PKG:-./internal/session/... ./internal/queue ./zklock ./zklock/lockhttp ./cmd/zklock ./zklock/internal/handoff}"
# The packages that have tests, by their folders.
packages=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' "${patterns[@]}" | sed "s|^$PWD/|./|")
mapfile -t packages <<<"$packages"
work=$(mktemp -d)
sleep "${FOR:-10m}" &
timer=$!
trap 'kill "$timer" 2>/dev/null || true; rm -rf "$work"' EXIT
export ZKLOCK_TEST_BACKEND=inprocess

for p in "${packages[@]}"; do
	go test -vet=off -c -o "$work/${p//[\/.]/_}.test" "$p"
done

# run_copy runs the packages, one after the other, until the time is over; $1 names the copy.
run_copy() {
	local p log
	while true; do
		for p in "${packages[@]}"; do
			kill -0 "$timer" 2>/dev/null || return 0
			log=$(mktemp "$work/log.XXXXXX")
			echo "$p" >>"$work/runs.$1"
			(cd "$p" && "$work/${p//[\/.]/_}.test" -test.shuffle=on -test.parallel=4 -test.timeout=10m) >"$log" 2>&1 && continue
			echo "== $p"
			cat "$log"
			awk -v p="$p" '/^ *--- FAIL: / { t[$3] } /running tests:/ { getline; t[$1] } END { if (!length(t)) t["?"]; for (n in t) print p, n }' \
				"$log" >>"$work/failed.$1"
		done
	done
}

run_copy 1 &
copy=$!
run_copy 2
wait "$copy"

sort "$work"/runs.* | uniq -c | awk '{ print $2 ": " $1 " runs" }'
if ls "$work"/failed.* >/dev/null 2>&1; then
	echo "failed:"
	awk 'FILENAME ~ /runs\.[12]$/ { runs[$1]++; next } { failed[$1 " " $2]++ }
		END { for (t in failed) { split(t, at, " "); print t ": " failed[t] " of " runs[at[1]] } }' "$work"/runs.* "$work"/failed.* | sort
	exit 1
fi
echo "no test failed"
