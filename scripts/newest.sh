#!/usr/bin/env bash
# Runs a few tests of each suite that talks to real servers on a newer Debian suite's ZooKeeper. A machine where none is
# to be had passes, since a mirror that is down says nothing about the code; that nothing ran is the last thing it says.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

if [[ -n ${ZKLOCK_TEST_SERVERS:-} ]]; then
	say "not run on a newer ZooKeeper: ZKLOCK_TEST_SERVERS names the servers"
	exit
fi
if ! home=$(scripts/newer.sh); then
	say "NOT RUN: the tests on a newer ZooKeeper; scripts/newer.sh says why, above"
	[[ -z ${GITHUB_ACTIONS:-} ]] || echo "::warning::the tests on a newer ZooKeeper were not run: scripts/newer.sh found none"
	exit
fi
began=$SECONDS
# As make unit and make check have compiled and checked it.
TESTFLAGS="${TESTFLAGS:-} -race" scripts/matrix.sh -brief "$home"
say "the tests on a newer ZooKeeper took $((SECONDS - began)) s"
