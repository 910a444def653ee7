package zktest_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// zxid shows a zxid as its distance from the script's beginning, and one that is none as it is.
func (s *script) zxid(z int64) string {
	if z <= 0 {
		return strconv.FormatInt(z, 10)
	}
	return fmt.Sprintf("z%+d", z-s.base)
}

// path shows a path relative to the script's own directory.
func (s *script) path(p string) string {
	if s.root != "" && strings.HasPrefix(p, s.root) {
		return "$" + p[len(s.root):]
	}
	return p
}

// owner shows a session id as the name of the session.
func (s *script) owner(id int64) string {
	if id == 0 {
		return "0"
	}
	for _, n := range s.order { // in order: two names may be of one session
		if s.sessions[n].id == id {
			return n
		}
	}
	return "?"
}

// event shows an event whose header has been read.
func (s *script) event(r *raw, i *in, zxid int64, code int32) string {
	typ, state := i.i32(), i.i32()
	return fmt.Sprintf("%s ! %d %d %s zxid=%s code=%d", r.name, typ, state, s.path(i.str()),
		s.zxid(zxid), code)
}

// showXid shows the xid of an answer, in full only if it is not the one expected.
func showXid(got, want int32) string {
	if got == want {
		return "xid"
	}
	return fmt.Sprintf("xid=%d", got)
}

// stat reads a stat and shows it.
func (s *script) stat(i *in) string {
	when := func(t int64) string {
		if t == 0 {
			return "0"
		}
		return "t"
	}
	cz, mz, ct, mt := i.i64(), i.i64(), i.i64(), i.i64()
	v, cv, av := i.i32(), i.i32(), i.i32()
	owner, length, num, pz := i.i64(), i.i32(), i.i32(), i.i64()
	return fmt.Sprintf("{c=%s m=%s p=%s ct=%s mt=%s v=%d cv=%d av=%d own=%s len=%d num=%d}",
		s.zxid(cz), s.zxid(mz),
		s.zxid(pz), when(ct), when(mt), v, cv, av, s.owner(owner), length, num)
}

// acls reads a list of ACLs and shows it, sorted.
func (s *script) acls(i *in) string {
	var v []string
	for n := i.i32(); n > 0; n-- {
		v = append(v, fmt.Sprintf("%d:%s:%s", i.i32(), i.str(), i.str()))
	}
	slices.Sort(v)
	return strings.Join(v, ",")
}

// result reads the body of an answer to an operation and shows it. One that failed has none.
func (s *script) result(op string, code int32, i *in) string {
	if code != 0 {
		return ""
	}
	switch op {
	case "create", "sync":
		return s.path(i.str())
	case "create2", "createc", "createttl":
		return s.path(i.str()) + " " + s.stat(i)
	case "exists", "set", "setacl":
		return s.stat(i)
	case "get":
		return fmt.Sprintf("%q %s", i.str(), s.stat(i))
	case "ls", "ephemerals", "ls2":
		c := i.strs()
		for k := range c {
			c[k] = s.path(c[k])
		}
		slices.Sort(c)
		v := "[" + strings.Join(c, " ") + "]"
		if op == "ls2" {
			v += " " + s.stat(i)
		}
		return v
	case "getacl":
		return s.acls(i) + " " + s.stat(i)
	case "count", "addwatch":
		return strconv.Itoa(int(i.i32()))
	case "whoami":
		var v []string
		for n := i.i32(); n > 0; n-- {
			v = append(v, i.str()+":"+i.str())
		}
		slices.Sort(v)
		return strings.Join(v, ",")
	case "multi", "multiread":
		return s.multiResult(i)
	}
	return ""
}

// multiResult reads the results of the parts of a multi and shows them.
func (s *script) multiResult(i *in) string {
	var v []string
	for {
		op, done, code := i.i32(), i.take(1)[0] != 0, i.i32()
		one := fmt.Sprintf("(%d %v %d", op, done, code)
		if done {
			return strings.Join(append(v, one+")"), " ")
		}
		switch op {
		case -1:
			one += fmt.Sprintf(" err=%d", i.i32())
		case 1:
			one += " " + s.path(i.str())
		case 15:
			one += " " + s.path(i.str()) + " " + s.stat(i)
		case 4:
			one += fmt.Sprintf(" %q %s", i.str(), s.stat(i))
		case 5:
			one += " " + s.stat(i)
		case 8:
			c := i.strs()
			slices.Sort(c)
			one += fmt.Sprint(" ", c)
		}
		v = append(v, one+")")
	}
}
