package zktest_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func (s *script) zxid(z int64) string {
	if z <= 0 {
		return strconv.FormatInt(z, 10)
	}
	return fmt.Sprintf("z%+d", z-s.base)
}

func (s *script) path(p string) string {
	if s.root != "" && strings.HasPrefix(p, s.root) {
		return "$" + p[len(s.root):]
	}
	return p
}

func (s *script) who(id int64) string {
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
		s.zxid(pz), when(ct), when(mt), v, cv, av, s.who(owner), length, num)
}

func (s *script) acls(i *in) string {
	var v []string
	for n := i.i32(); n > 0; n-- {
		v = append(v, fmt.Sprintf("%d:%s:%s", i.i32(), i.str(), i.str()))
	}
	slices.Sort(v)
	return strings.Join(v, ",")
}

// result shows the body of an answer.
func (s *script) result(op string, i *in) string {
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

func resultIf(s *script, code int32, op string, i *in) string {
	if code != 0 {
		return ""
	}
	return s.result(op, i)
}
