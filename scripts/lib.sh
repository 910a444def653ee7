# Sourced by the other scripts: bash, run from the root of the checkout.

# Version control may refuse to describe a checkout that belongs to another user; no test needs the stamp.
export GOFLAGS="${GOFLAGS:-} -buildvcs=false"

# The modules that users import or install; the others are for the checkout only.
PUBLIC=(. cmd/zklock zklock/otelzklock)

say() { printf '== %s\n' "$*"; }

# modules prints the directory of every Go module of the checkout, the root first.
modules() {
	{
		git ls-files --cached --others --exclude-standard -- go.mod '*/go.mod' 2>/dev/null ||
			find . -name go.mod -not -path '*/testdata/*' | sed 's|^\./||'
	} | sort -u | while read -r mod; do
		[[ -f $mod ]] && dirname "$mod"
	done
}

# in_modules runs a command in every module and goes on after a failure, so that one run shows all that is wrong.
in_modules() { in_each "$(modules)" "$@"; }

# in_modules_but_root is in_modules for those beside the root.
in_modules_but_root() { in_each "$(modules | grep -vx '\.')" "$@"; }

in_each() {
	local dir failed=0 dirs=$1
	shift
	while read -r dir <&3; do
		[[ $dir == . ]] || say "module $dir"
		(cd "$dir" && "$@") || failed=1
	done 3<<<"$dirs"
	return "$failed"
}
