# Sourced by the other scripts: bash, run from the root of the checkout.

# Version control may refuse to describe a checkout that belongs to another user; no test needs the stamp.
export GOFLAGS="${GOFLAGS:-} -buildvcs=false"

# The modules that users import or install; the others are for the checkout only.
PUBLIC=(. cmd/zklock zklock/kerberos zklock/otelzklock)

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
in_modules() {
	local dir failed=0
	while read -r dir <&3; do
		[[ $dir == . ]] || say "module $dir"
		(cd "$dir" && "$@") || failed=1
	done 3< <(modules)
	return "$failed"
}

# packages prints patterns that match the packages of every module, for one go command that runs at the root: go.work
# makes them one build.
packages() { modules | sed 's|^|./|; s|^\./\.$|.|; s|$|/...|'; }
