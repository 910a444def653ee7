package zktest

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/zklock/locker/zktest/fault"
	"github.com/zklock/locker/zktest/internal/rule"
)

// injected is a fault as the server has it.
type injected struct {
	rule.Rule
	effect
	member *Member // the one whose clients it selects, or nil for all
}

// selects reports whether the fault selects a request, whatever its counts say. A notification,
// which is no request, is selected only by a fault that names fault.OpNotify.
func (f *injected) selects(c *conn, op fault.Op, paths []string) bool {
	if len(f.Ops) > 0 && !slices.Contains(f.Ops, int32(op)) {
		return false
	}
	if op == fault.OpNotify && len(f.Ops) == 0 {
		return false
	}
	return f.reaches(c) && f.hasPath(paths)
}

// reaches reports whether the fault selects the connection.
func (f *injected) reaches(c *conn) bool {
	return (len(f.Sessions) == 0 || slices.Contains(f.Sessions, c.session)) &&
		(f.member == nil || f.member == c.member)
}

// hasPath reports whether the fault selects one of the paths that a request names.
func (f *injected) hasPath(paths []string) bool {
	if len(f.Paths) == 0 {
		return true
	}
	for _, pat := range f.Paths {
		for _, p := range paths {
			if matchPath(pat, p) {
				return true
			}
		}
	}
	return false
}

// checkPattern panics if the pattern is malformed.
func checkPattern(pattern string) {
	if _, err := path.Match(strings.TrimSuffix(pattern, "/**"), ""); err != nil {
		panic(fmt.Sprintf("zktest: path pattern %q: %v", pattern, err))
	}
}

// matchPath reports whether a path matches a pattern, which checkPattern has accepted.
func matchPath(pattern, p string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/**"); ok {
		return strings.HasPrefix(p, dir+"/")
	}
	ok, err := path.Match(pattern, p)
	return ok && err == nil
}

// standing reports whether the fault freezes connections from its injection on, rather than from
// the first request that it selects.
func (f *injected) standing() bool { return f.freeze != 0 && len(f.Ops) == 0 && len(f.Paths) == 0 }
