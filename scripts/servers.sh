#!/usr/bin/env bash
# Makes sure that what tests start is there, or installs it through apt when this user may, or says what to install.
# servers.sh test: Go, a C compiler, and ZooKeeper unless ZKLOCK_TEST_SERVERS names a running ensemble. servers.sh all: also
# the other programs that make all starts.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

level=${1:-all}
[[ $level == test || $level == all ]] || {
	echo "servers.sh test|all, not $level" >&2
	exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }
jar() { [[ -e /usr/share/java/$1.jar ]]; }

if ! have go; then
	echo "go is not installed: see https://go.dev/doc/install (go.mod says which version is needed)" >&2
	exit 1
fi

needed=()   # without these the tests cannot run
optional=() # without these some tests of make all fail

have gcc || needed+=(gcc libc6-dev) # the race detector links with the C library
if [[ -z ${ZKLOCK_TEST_SERVERS:-} ]]; then
	have java || needed+=(default-jre-headless)
	jar zookeeper || needed+=(libzookeeper-java)
fi
if [[ $level == all ]]; then
	# Debian's own interpreter: another one first on the PATH does not see Debian's packages.
	/usr/bin/python3 -c 'import kazoo' 2>/dev/null || optional+=(python3-kazoo)
	jar curator-recipes || optional+=(libcurator-recipes-java)
	have javac || optional+=(default-jdk-headless)
	# The key distribution center of the Kerberos tests; kadmin.local, which fills it, is in the second package.
	[[ -x /usr/sbin/krb5kdc && -x /usr/sbin/kadmin.local ]] || optional+=(krb5-kdc krb5-admin-server)
	have initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || optional+=(postgresql)
	have chromium || have google-chrome || optional+=(chromium) # for the status page
	have mariadbd || [[ -x /usr/sbin/mariadbd ]] || optional+=(mariadb-server)
	have spin || optional+=(spin) # without it the models are not checked
fi

# as_root prints the words that make a command run as root, and fails when nothing does without a password.
as_root() {
	if [[ $(id -u) == 0 ]]; then
		:
	elif have sudo && sudo -n true 2>/dev/null; then
		echo "sudo -n"
	else
		return 1
	fi
}

apt_install() {
	local sudo
	have apt-get && sudo=$(as_root) || return 1
	say "installing $* through apt"
	# shellcheck disable=SC2086 # $sudo is empty or several words
	$sudo apt-get update -qq </dev/null &&
		$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null
}

if ((${#needed[@]})) && ! apt_install "${needed[@]}"; then
	echo "missing: ${needed[*]}" >&2
	echo "run: apt-get install ${needed[*]}   (or name a running ensemble in ZKLOCK_TEST_SERVERS=host:port,...)" >&2
	exit 1
fi
if ((${#optional[@]})) && ! apt_install "${optional[@]}"; then
	say "not installed, tests that start them will fail: ${optional[*]}"
fi
say "servers: ${ZKLOCK_TEST_SERVERS:-$(readlink -f /usr/share/java/zookeeper.jar), $(java -version 2>&1 | head -n 1)}"
