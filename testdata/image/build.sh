#!/usr/bin/env bash
# Builds a container image of ZooKeeper out of what this machine has: its Java, Debian's jars, and a shell. For machines
# that reach no registry; elsewhere the official image, zookeeper:3.9, is used. It reads the same environment variables
# as that one, as far as the tests and docker-compose.yml set them (entrypoint.sh).
#
#   testdata/image/build.sh [name:tag]     default: zklock/zookeeper:local; an image of that name is replaced
#
# It needs docker, and what the tests need anyway: libzookeeper-java and a Java.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tag=${1:-zklock/zookeeper:local}

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,lib,tmp,data,conf,zookeeper}
chmod 1777 "$root/tmp"

# place copies a program or library, and what it is linked with, to where the loader looks for it.
place() {
	local file
	for file in "$1" $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*' || true); do
		[[ -e $root$file ]] || install -D "$(readlink -f "$file")" "$root$file"
	done
}

for program in bash cat grep mkdir; do
	path=$(command -v "$program") || { echo "$program is not installed" >&2; exit 1; }
	place "$path"
	[[ $path == /bin/$program ]] || ln -sf "$path" "$root/bin/$program"
done

java=$(readlink -f "$(command -v java)") || { echo "java is not installed: apt-get install default-jre-headless" >&2; exit 1; }
home=$(dirname "$(dirname "$java")")
# What ZooKeeper uses of Java: 60 MB instead of 200.
modules=java.base,java.logging,java.management,java.naming,java.security.jgss,java.security.sasl,java.sql,java.xml,jdk.crypto.ec,jdk.management,jdk.unsupported
if [[ -x $home/bin/jlink && -d $home/jmods ]]; then
	"$home/bin/jlink" --add-modules "$modules" --strip-java-debug-attributes --no-header-files --no-man-pages --output "$root/jre"
else
	cp -rL "$home" "$root/jre"
fi
for library in "$root/jre/bin/java" "$root"/jre/lib/*.so "$root"/jre/lib/server/*.so; do
	for needed in $(ldd "$library" | grep -o '/[^ ]*' | grep -v "^$root" || true); do
		place "$needed"
	done
done

jars=/usr/share/java
[[ -e $jars/zookeeper.jar ]] || { echo "$jars/zookeeper.jar is missing: apt-get install libzookeeper-java" >&2; exit 1; }
for jar in zookeeper zookeeper-jute slf4j-api slf4j-simple metrics-core snappy-java commons-cli commons-io \
	netty-{buffer,codec,common,handler,resolver,transport,transport-native-epoll,transport-native-unix-common} \
	jackson-{annotations,core,databind} jetty9-{client,http,io,security,server,servlet,util}; do
	if [[ -e $jars/$jar.jar ]]; then cp -L "$jars/$jar.jar" "$root/zookeeper/"; fi
done
install -m 755 "$here/entrypoint.sh" "$root/docker-entrypoint.sh"

# An import needs no builder, and no image to begin from.
tar -C "$root" -c . | docker import --message "ZooKeeper out of Debian's packages" \
	--change 'ENV PATH=/jre/bin:/bin' \
	--change 'ENTRYPOINT ["/docker-entrypoint.sh"]' \
	--change 'EXPOSE 2181 2888 3888' - "$tag" >/dev/null
echo "$tag"
