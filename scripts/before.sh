#!/usr/bin/env bash
# Shows a bug on the code from before its fix: scripts/before.sh COMMIT PACKAGE TEST runs the test that the commit brought on the
# commit before it, with the tests of the fix. It ends with 0 when the test fails there, and passes with the fix.
set -euo pipefail
fix=$1 package=$2 test=$3
tree=$(mktemp -d)
trap 'git worktree remove --force "$tree/it" 2>/dev/null; rm -rf "$tree"' EXIT

run() { (cd "$tree/it/$package" && go test -vet=off -count=1 -timeout 5m -run "^$test\$" . >"$tree/out" 2>&1); }

git worktree add --quiet --detach "$tree/it" "$fix"
if ! run; then
  cat "$tree/out"
  echo "before.sh: with its fix, $fix, $test fails as well" >&2
  exit 1
fi
# The tests stay, the rest becomes what it was.
mapfile -t changed < <(git diff --name-only --diff-filter=MD "$fix^" "$fix" -- ':!*_test.go' '*.go')
mapfile -t added < <(git diff --name-only --diff-filter=A "$fix^" "$fix" -- ':!*_test.go' '*.go')
if ((${#changed[@]})); then git -C "$tree/it" checkout --quiet "$fix^" -- "${changed[@]}"; fi
if ((${#added[@]})); then git -C "$tree/it" rm --quiet -- "${added[@]}"; fi
if run; then
  echo "before.sh: $test passes without the fix" >&2
  exit 1
fi
if ! grep -qE -- '--- FAIL|^panic:' "$tree/out"; then
  cat "$tree/out"
  echo "before.sh: $test does not build without the fix" >&2
  exit 1
fi
grep -vE '^\s*$' "$tree/out" | head -40
echo "before.sh: so it was before $fix; with it, the test passes"
