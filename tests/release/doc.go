// Package release holds no code, only the test of scripts/release.sh: a release of this checkout,
// published to a directory, can be installed and imported.
package release
