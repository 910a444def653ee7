#!/usr/bin/env bash
# Builds the image of the command-line tool for each architecture (ARCHES), as zklock:VERSION-ARCH. No
# registry is needed. The one for this machine is run once.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

version=${VERSION:-dev}
authorities=/etc/ssl/certs/ca-certificates.crt
[[ -r $authorities ]] || {
	echo "$authorities is missing: apt-get install ca-certificates" >&2
	exit 1
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp cmd/zklock/Dockerfile "$authorities" "$dir"
for arch in ${ARCHES:-amd64 arm64}; do
	say "zklock:$version-$arch"
	(cd cmd/zklock && CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -ldflags=-s -o "$dir/zklock" .)
	docker build --quiet --platform "linux/$arch" --tag "zklock:$version-$arch" "$dir"
	[[ $arch != "$(go env GOHOSTARCH)" ]] || docker run --rm "zklock:$version-$arch" version
done
