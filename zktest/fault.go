package zktest

import (
	"path"
	"slices"
	"strings"
)

// Fault describes something that goes wrong: what happens, to which requests, and how often. It is a value: the methods
// return changed copies, which read like a sentence and can be kept and reused:
//
//	zktest.DropReply().Op(zktest.OpCreate).Path("/locks/*").Nth(3)
//
// Without a selector it strikes every request of every session, every time. It does nothing until Server.Inject.
type Fault struct {
	effect
	ops      []Op
	paths    []string
	sessions []int64
	members  []*Member
	skip     int
	times    int // 0: no limit
}

// Op selects requests by type; OpNotify stands for outgoing notifications (only effects on replies apply to them),
// OpConnect for the handshake. A multi is OpMulti, whatever is in it.
func (f Fault) Op(ops ...Op) Fault {
	f.ops = append(slices.Clone(f.ops), ops...)
	return f
}

// Path selects requests by any of the paths they name; that of a sequential create is without its number. A pattern is
// one of package path ("/locks/*"); "/locks/**" means everything below /locks.
func (f Fault) Path(patterns ...string) Fault {
	f.paths = append(slices.Clone(f.paths), patterns...)
	return f
}

// Session selects by session id. A handshake has the id that the client claims, 0 for a new session.
func (f Fault) Session(ids ...int64) Fault {
	f.sessions = append(slices.Clone(f.sessions), ids...)
	return f
}

// Member selects by the member that the client is connected to.
func (f Fault) Member(ms ...*Member) Fault {
	f.members = append(slices.Clone(f.members), ms...)
	return f
}

// After exempts the first n selected requests.
func (f Fault) After(n int) Fault { f.skip = n; return f }

// Times limits the fault to n strikes. The default, 0, is no limit.
func (f Fault) Times(n int) Fault { f.times = n; return f }

// Once is Times(1).
func (f Fault) Once() Fault { return f.Times(1) }

// Nth strikes only the nth of the selected requests, counted from 1 since Inject.
func (f Fault) Nth(n int) Fault { return f.After(n - 1).Once() }

// selects says whether the fault selects a request; its counts are left out.
func (f *Fault) selects(c *conn, op Op, paths []string) bool {
	if len(f.ops) > 0 && !slices.Contains(f.ops, op) {
		return false
	}
	// Notifications are not requests. Only faults that name OpNotify get them.
	if op == OpNotify && !slices.Contains(f.ops, op) {
		return false
	}
	return f.reaches(c) && f.hasPath(paths)
}

// reaches says whether the connection is one of those selected.
func (f *Fault) reaches(c *conn) bool {
	return (len(f.sessions) == 0 || slices.Contains(f.sessions, c.session)) &&
		(len(f.members) == 0 || slices.Contains(f.members, c.member))
}

func (f *Fault) hasPath(paths []string) bool {
	if len(f.paths) == 0 {
		return true
	}
	for _, pat := range f.paths {
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
func (f *Fault) standing() bool { return f.freeze != 0 && len(f.ops) == 0 && len(f.paths) == 0 }
