#!/usr/bin/env bash
# Measures this library beside other locks: see tests/bench. Installs the others through apt when this user may;
# what is missing is left out of the tables, which say so. Arguments are the benchmark's, for example -quick.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

have() { command -v "$1" >/dev/null 2>&1; }

wanted=()
have etcd || wanted+=(etcd-server)
[[ -e /usr/share/java/curator-recipes.jar ]] || wanted+=(libcurator-recipes-java)
have javac || wanted+=(default-jdk-headless)
# Debian's own interpreter: another one first on the PATH does not see Debian's packages.
/usr/bin/python3 -c 'import kazoo' 2>/dev/null || wanted+=(python3-kazoo)

if ((${#wanted[@]})); then
	sudo=
	[[ $(id -u) == 0 ]] || sudo="sudo -n"
	say "installing ${wanted[*]} through apt"
	# RUNLEVEL: where Debian would start etcd as a service, it does not.
	# shellcheck disable=SC2086 # $sudo is empty or several words
	if ! have apt-get || ! $sudo apt-get update -qq </dev/null ||
		! $sudo env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}" </dev/null >/dev/null; then
		say "not installed: ${wanted[*]}"
	fi
fi

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd tests/bench && go build -o "$bin/bench" .)
"$bin/bench" "$@"
