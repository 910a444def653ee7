#!/usr/bin/env bash
# release.sh VERSION: makes the commit and the tags of a release, all of them local: what to push is printed at the end.
# Every module of the checkout gets the same version, since a nested module requires the root module in its own version.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

fail() {
	printf 'release: %s\n' "$*" >&2
	exit 1
}

version=${1:-}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "VERSION is \"$version\", not such as v0.1.0"
[[ -z $(git status --porcelain) ]] || fail "there are changes that are not committed"
! git rev-parse -q --verify "refs/tags/$version" >/dev/null || fail "there is a tag $version already"
grep -qx '## \[Unreleased\]' CHANGELOG.md || fail 'CHANGELOG.md has no section "## [Unreleased]"'
awk '/^## /{here = $0 == "## [Unreleased]"; next} here && NF{found = 1} END{exit !found}' CHANGELOG.md ||
	fail "nothing stands under [Unreleased] in CHANGELOG.md"

path=$(sed -n 's/^module //p' go.mod)
while read -r module; do
	if grep -q "^	$path v" "$module/go.mod"; then # the root module and zklockvet require none of it
		go mod edit "-require=$path@$version" "$module/go.mod"
	fi
done < <(modules)
sed -i "s|^replace $path v[^ ]* => \.\$|replace $path $version => .|" go.work
sed -i "s|^## \[Unreleased\]\$|&\n\n## [${version#v}] - $(date -u +%F)|" CHANGELOG.md
sed -i "s|$path\(/[a-z/]*\)\?@v[0-9][0-9A-Za-z.-]*[0-9A-Za-z]|$path\1@$version|" README.md \
	docs/start.md docs/operate/{command-line,monitoring}.md zklockvet/{README.md,doc.go}
go list ./... >/dev/null || fail "the modules no longer fit each other"

tags=()
while read -r module; do
	[[ $module == . ]] && tags+=("$version") || tags+=("$module/$version")
done < <(modules)
git commit --quiet --all --allow-empty --message "release $version" --message "The tags of this commit, one for each module:" \
	--message "$(printf '%s\n' "${tags[@]}")"
for tag in "${tags[@]}"; do git tag --annotate --message "$tag" "$tag"; done
say "committed and tagged; to publish: git push origin HEAD ${tags[*]}"
