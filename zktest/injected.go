package zktest

import (
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
	member *Member // nil: all
}

// selects says whether the fault selects a request; its counts are left out.
func (f *injected) selects(c *conn, op fault.Op, paths []string) bool {
	if len(f.Ops) > 0 && !slices.Contains(f.Ops, int32(op)) {
		return false
	}
	// Notifications are not requests. Only faults that name fault.OpNotify get them.
	if op == fault.OpNotify && !slices.Contains(f.Ops, int32(op)) {
		return false
	}
	return f.reaches(c) && f.hasPath(paths)
}

// reaches says whether the connection is one of those selected.
func (f *injected) reaches(c *conn) bool {
	return (len(f.Sessions) == 0 || slices.Contains(f.Sessions, c.session)) &&
		(f.member == nil || f.member == c.member)
}

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

func matchPath(pattern, p string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/**"); ok {
		return strings.HasPrefix(p, dir+"/")
	}
	ok, err := path.Match(pattern, p)
	return ok && err == nil // a bad pattern was refused by Inject
}

// standing says whether the fault selects connections instead of requests.
func (f *injected) standing() bool { return f.freeze != 0 && len(f.Ops) == 0 && len(f.Paths) == 0 }
