package zktest_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// args are the words of a line after the operation.
type args struct {
	pos []string          // those without a key
	kv  map[string]string // those of the form key=value
}

// num returns the number after a key, or its default if there is none.
func (a args) num(key string, or int64) int64 {
	v, ok := a.kv[key]
	if !ok {
		return or
	}
	n, err := strconv.ParseInt(v, 0, 64)
	if err != nil {
		panic(fmt.Sprintf("script: %s=%s", key, v))
	}
	return n
}

// parse sorts the words of a line. $ becomes the script's own directory.
func (s *script) parse(words []string) args {
	a := args{kv: map[string]string{}}
	for _, w := range words {
		w = strings.ReplaceAll(w, "$", s.root)
		if k, v, ok := strings.Cut(w, "="); ok && !strings.Contains(k, "/") && k != "" {
			a.kv[k] = v
		} else {
			a.pos = append(a.pos, w)
		}
	}
	return a
}

// unwritable replaces the names of what a line cannot contain.
var unwritable = strings.NewReplacer(
	"<empty>", "",
	"<nul>", "\x00",
	"<bel>", "\x07",
	"<9f>", "\u009f",
	"<e000>", "\ue000",
	"<fff0>", "\ufff0",
	"<sp>", " ",
	"<bad>", "\xff",
)

// path returns the request's path, the first word without a key.
func (a args) path() string {
	if len(a.pos) == 0 {
		return ""
	}
	return unwritable.Replace(a.pos[0])
}

// watch reports whether the request sets a watch.
func (a args) watch() bool { return slices.Contains(a.pos, "w") }

// aclNames are the lists that have a name.
var aclNames = map[string][][3]string{
	"open": {{"31", "world", "anyone"}},
	"read": {{"1", "world", "anyone"}},
	"none": {},
}

// acl writes the list that acl= names: a word from above, or perms:scheme:id,perms:scheme:id.
func (a args) acl(o *out) {
	name, ok := a.kv["acl"]
	if !ok {
		name = "open"
	}
	if name == "null" {
		o.i32(-1)
		return
	}
	list, ok := aclNames[name]
	if !ok {
		for _, e := range strings.Split(name, ",") {
			p := strings.SplitN(e, ":", 3)
			list = append(list, [3]string{p[0], p[1], p[2]})
		}
	}
	o.i32(int32(len(list)))
	for _, e := range list {
		n, err := strconv.Atoi(e[0])
		if err != nil {
			panic("script: acl=" + name)
		}
		o.i32(int32(n)).str(e[1]).str(e[2])
	}
}

// modes are the letters of the create modes.
var modes = map[string]int32{"": 0, "p": 0, "e": 1, "s": 2, "es": 3, "c": 4, "t": 5, "ts": 6}

// mode returns the mode of a create: a letter from above, or a number.
func (a args) mode() int32 {
	m, ok := modes[a.kv["m"]]
	if !ok {
		return int32(a.num("m", 0))
	}
	return m
}

// opcodes are the types of the requests that have a name.
var opcodes = map[string]int32{
	"create": 1, "delete": 2, "exists": 3, "get": 4, "set": 5, "getacl": 6, "setacl": 7, "ls": 8,
	"sync": 9,
	"ping": 11, "ls2": 12, "check": 13, "multi": 14, "create2": 15, "reconfig": 16, "chkwatch": 17,
	"rmwatch": 18,
	"createc": 19, "deletec": 20, "createttl": 21, "multiread": 22, "auth": 100, "setwatches": 101,
	"sasl": 102, "ephemerals": 103,
	"count": 104, "setwatches2": 105, "addwatch": 106, "whoami": 107, "close": -11,
}

// list returns the values after a key, which are separated by commas.
func (a args) list(key string) []string {
	if a.kv[key] == "" {
		return nil
	}
	return strings.Split(a.kv[key], ",")
}

// parts writes the parts of a multi and what ends them.
func (s *script) parts(o *out, words []string) {
	for _, part := range strings.Split(strings.Join(words, " "), " ; ") {
		f := strings.Fields(part)
		if len(f) == 0 {
			continue
		}
		o.i32(opcodes[f[0]]).flag(false).i32(-1)
		s.body(o, f[0], f[1:])
	}
	o.i32(-1).flag(true).i32(-1)
}

// body writes the body of one request or part of a multi.
func (s *script) body(o *out, op string, words []string) {
	a := s.parse(words)
	switch op {
	case "create", "create2", "createc", "createttl":
		o.str(a.path()).data(a.kv["d"])
		a.acl(o)
		o.i32(a.mode())
		if op == "createttl" {
			o.i64(a.num("ttl", 3600_000))
		}
	case "delete", "check":
		o.str(a.path()).i32(int32(a.num("v", -1)))
	case "exists", "get", "ls", "ls2":
		o.str(a.path()).flag(a.watch())
	case "set":
		o.str(a.path()).data(a.kv["d"]).i32(int32(a.num("v", -1)))
	case "setacl":
		o.str(a.path())
		a.acl(o)
		o.i32(int32(a.num("v", -1)))
	case "getacl", "sync", "count", "ephemerals", "deletec":
		o.str(a.path())
	case "addwatch", "rmwatch", "chkwatch":
		o.str(a.path()).i32(int32(a.num("t", 0)))
	case "auth":
		o.i32(0).str(a.pos[0]).data(a.pos[1])
	case "sasl":
		o.data(a.kv["d"])
	case "reconfig":
		o.str("").str("").str("").i64(-1)
	case "setwatches", "setwatches2":
		o.i64(s.base + a.num("z", 0))
		lists := []string{"d", "e", "c"}
		if op == "setwatches2" {
			lists = append(lists, "p", "r")
		}
		for _, k := range lists {
			o.strs(a.list(k))
		}
	case "multi", "multiread":
		s.parts(o, words)
	case "ping", "whoami", "close":
	default:
		panic("script: unknown operation " + op)
	}
}
