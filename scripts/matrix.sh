#!/usr/bin/env bash
# Runs the suites that talk to real servers on each ZooKeeper that is named (as ZOOKEEPER_HOME may name one); without a name
# on the installed package, and on a newer Debian suite's where there is one. With -brief it runs a few tests of each suite.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

brief=
if [[ ${1:-} == -brief ]]; then
	brief=1
	shift
fi
homes=("$@")
if [[ $# == 0 ]]; then
	homes=("")
	newer=$(scripts/newer.sh) && homes+=("$newer")
fi

# Of each suite its name, what go test runs, and what it runs with -brief, if anything.
suites='session;./internal/session/...;./internal/session/... -run RealServer
zklock;./zklock/...;./zklock/... -run OnARealServer|OnRealServers|RealServersTell
zktest, same answers;./zktest -run RealServer|RealOne|RealEnsemble;./zktest -run ScriptsAreAnswered
hardened ensembles;./tests/hardened;./tests/hardened -run Enforced|Observer
interop;./tests/interop;
chaos;./tests/e2e -run AllFaults -args -chaos.rounds=1;'

failed=0
for home in "${homes[@]}"; do
	while IFS=';' read -r name whole few; do
		args=$whole
		[[ -z $brief ]] || args=$few
		[[ -n $args ]] || continue
		began=$SECONDS result=passed
		# shellcheck disable=SC2086 # args are several words
		ZOOKEEPER_HOME=$home go test -count=1 -vet=off -timeout 60m ${TESTFLAGS:-} $args </dev/null || failed=1 result=FAILED
		say "$name on ${home:-the installed ZooKeeper}: $result after $((SECONDS - began)) s"
	done <<<"$suites"
done
exit "$failed"
