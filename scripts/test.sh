#!/usr/bin/env bash
# What every change has to pass: gofmt, go vet of every module, the library's tests on the in-process server, those with
# real concurrency again with the race detector, a part of the simulation, and a minute and a half of real servers, which it
# installs through apt if it may. PKG=./zklock runs one package on the in-process server. make all runs the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

# What is left out here, and why; make all runs it.
left_out() {
	sed 's/ .*//' <<'EOT' | paste -sd'|'
TestKazooTakesAndReleasesALock needs Kazoo
TestCuratorTakesAndReleasesALock needs Curator
EOT
}

# Tests in which several goroutines are at work at once, by their names.
concurrent='AtOnce|Concurrent|Goroutines|Hammered|Handoff|Many|Random|Share|Together|Thousand|Turns|While'

# What only real servers can show: a leader that is killed, a follower that is cut off, a session that ends by force, a
# process that is killed or stopped; and that the in-process server answers as they do.
real='TestHolderStopsBeforeTheNextBeginsWhenItsLeaderIsKilled|TestHolderStopsBeforeTheNextBeginsWhenItsFollowerIsCutOff
TestKilledHoldersLockIsFreeWithinTheTimeoutAndTwoTicks
TestStoppedHolderFindsItsContextEndedAndItsWritesRefused|TestTurnsGoOnWhenLeadersAreKilled
TestScriptsAreAnsweredAsByARealServer|TestRandomProgramsAreAnsweredAsByARealServer
TestARealServerTakesThePathsThatWeTake|TestAWriteOfAnEarlierConnectionAnswersNoRequestOfALaterOne
TestAStoppedRealServerKillsTheGroupInTime'

packages=(./zklock ./internal/session/... ./recipe ./internal/queue ./zklock/... ./zktest/... ./cmd/zklock ./zklockvet ./examples/quickstart
	./tests/layout ./tests/adapters ./internal/doctor ./internal/queuejson ./tests/locktest ./internal/text)
raced=(./zklock ./internal/session/... ./internal/queue)

# go_test runs tests on the in-process server. They wait for much of their time, so more run at once than there are
# processors.
go_test() {
	# shellcheck disable=SC2086 # TESTFLAGS are several words
	ZKLOCK_TEST_BACKEND=inprocess go test -vet=off -timeout 10m -parallel 4 -skip "^($(left_out))\$" ${TESTFLAGS:-} "$@"
}

formatted() {
	local files
	files=$(gofmt -l .)
	[[ -z $files ]] || {
		printf 'not formatted, run gofmt -w:\n%s\n' "$files"
		return 1
	}
}

# named fails when a test that this script names is gone: it would no longer be run, or no longer be left out.
named() {
	local name failed=0
	for name in $(left_out | tr '|' ' ') ${real//|/ }; do
		grep -rq --include='*_test.go' "^func $name(" . || {
			echo "scripts/test.sh names $name, and there is no such test"
			failed=1
		}
	done
	return "$failed"
}

plain() { go_test "${packages[@]}"; }

raced() {
	local failed=0
	go_test -race -run "$concurrent" "${raced[@]}" || failed=1
	go_test -race ./zklock/internal/handoff || failed=1
	return "$failed"
}

# The last part of a run is the comparison with the model, which takes half of the limit.
simulation() { go test -vet=off -timeout 10m ${TESTFLAGS:-} ./tests/simulation -limit 14s; }

real() {
	# shellcheck disable=SC2086 # TESTFLAGS are several words
	ZKTEST_SEEDS=100 go test -vet=off -timeout 10m ${TESTFLAGS:-} -run "^($(tr '\n' '|' <<<"$real" | sed 's/|$//'))\$" \
		./zklock ./zktest ./internal/session/... ./cmd/zklock
}

vet_others() {
	local others
	mapfile -t others < <(modules | grep -vxF "$(printf '%s\n' "${PUBLIC[@]}")" | sed 's|.*|./&/...|')
	go vet "${others[@]}"
}

exec 3>&1 4>&2
took=() failed=()
# phase runs a command and notes its wall-clock and CPU seconds. After a failure the next ones run too.
phase() {
	local name=$1 line TIMEFORMAT='%0R s (CPU %0U+%0S)'
	shift
	say "$name"
	line=$({ time "$@" >&3 2>&4; } 2>&1) || failed+=("$name")
	took+=("$name ${line##*$'\n'}")
}

if [[ -n ${PKG:-} ]]; then
	phase "go vet" go vet "$PKG"
	phase tests go_test "$PKG"
else
	phase "what the tests need" scripts/servers.sh test
	phase gofmt formatted
	phase "names of tests" named
	phase "go vet" go vet $(printf './%s/... ' "${PUBLIC[@]}")
	phase "tests on the in-process server" plain
	phase "concurrent tests with -race" raced
	phase simulation simulation
	phase "real servers" real
	phase "go vet of the other modules" vet_others
fi

printf '== %s\n' "${took[@]}"
say "not run: most tests of real servers, other clients, chaos, models, the other tests with -race, and in scripts/test.sh $(left_out | tr '|' '\n' | wc -l) by name; make all runs them"
if ((${#failed[@]})); then
	printf '== FAILED after %s s: %s\n' "$SECONDS" "$(IFS=,; echo "${failed[*]}")"
	exit 1
fi
say "passed in $SECONDS s"
