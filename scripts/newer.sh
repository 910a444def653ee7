#!/usr/bin/env bash
# Prints a folder with the ZooKeeper jars of a newer Debian suite than the installed one, and fetches them through apt
# when they are not there yet. Nothing is installed, and the machine's own package lists are left alone. It fails,
# saying why, on a machine that is not Debian, without a mirror, or that has the newest already.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*" >&2; }
keep=${XDG_CACHE_HOME:-$HOME/.cache}/zklock/zookeeper

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
	say "no newer ZooKeeper: apt-get and dpkg-deb fetch it, and are not here"
	exit 1
}
installed=$(dpkg-query -W -f '${Version}' libzookeeper-java 2>/dev/null || true)

# What was found within the last hour is not looked for again: make all asks twice.
found=$keep/newest
if [[ -n $(find "$found" -mmin -60 2>/dev/null) ]] && read -r than home <"$found" &&
	[[ $than == "${installed:-none}" && -e $home/zookeeper.jar ]]; then
	echo "$home"
	exit 0
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp" # apt's own user reads it
# The mirror that this machine has for its own suite.
mirror=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
	sed -n 's|^\(.*/debian/\) main$|\1|p' | head -n 1)
[[ -n $mirror ]] || {
	say "no newer ZooKeeper: this machine's package sources name no Debian mirror"
	exit 1
}
for suite in stable testing; do
	dir=$tmp/$suite
	mkdir -p "$dir/sources" "$dir/lists/partial" "$dir/deb"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$dir/sources/newer.list"
	apt=(apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$dir/sources"
		-o "Dir::State::lists=$dir/lists" -o "Dir::Cache=$dir" -o APT::Sandbox::User=root)
	"${apt[@]}" update </dev/null >&2 || continue
	(cd "$dir/deb" && "${apt[@]}" download libzookeeper-java </dev/null >&2) || continue
	deb=$(ls "$dir"/deb/*.deb)
	version=$(dpkg-deb -f "$deb" Version)
	if [[ -n $installed ]] && dpkg --compare-versions "$version" le "$installed"; then
		continue
	fi
	home=$keep/$version
	if [[ ! -e $home/zookeeper.jar ]]; then
		dpkg-deb -x "$deb" "$dir/root"
		mkdir -p "$home"
		cp -L "$dir"/root/usr/share/java/zookeeper-jute.jar "$dir"/root/usr/share/java/zookeeper.jar "$home"
	fi
	echo "${installed:-none} $home" >"$tmp/newest"
	mv "$tmp/newest" "$found"
	echo "$home"
	exit 0
done
say "no newer ZooKeeper: $mirror has none newer than ${installed:-(none installed)}"
exit 1
