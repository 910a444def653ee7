package zktest_test

import (
	"fmt"
	"strings"
)

// scripted is one script for two servers; see script_test.go for its language.
type scripted struct {
	name  string
	lines []string
}

// cases is the table of scripts: one per line, "name: step | step | step", grouped in the
// cases_*_test.go files, and those generated from a pattern.
func cases() []scripted {
	var all []scripted
	add := func(name string, lines ...string) { all = append(all, scripted{name, lines}) }
	for _, group := range []string{createCases, deleteCases, dataCases, listCases, aclCases,
		watchCases,
		persistentWatchCases, removeWatchCases, setWatchesCases, multiCases, multiReadCases,
		sessionCases,
		malformedCases} {
		for l := range strings.Lines(group) {
			l = strings.TrimSpace(l)
			if l == "" || strings.HasPrefix(l, "#") {
				continue
			}
			name, body, _ := strings.Cut(l, ": ")
			var lines []string
			for s := range strings.SplitSeq(body, " | ") {
				lines = append(lines, strings.TrimSpace(s))
			}
			add(name, lines...)
		}
	}
	permissions(add)
	badPaths(add)
	badParts(add)
	return all
}

// permissions tries every operation on nodes that allow one permission only, or all but one, first
// without an identity and then with the one that the ACL names.
func permissions(add func(string, ...string)) {
	ops := []string{
		"create $/x/new", "create $/x/new m=s", "create $/x/new m=e acl=read",
		"createc $/x/new m=c",
		"createttl $/x/new m=t", "delete $/x/kid", "delete $/x", "exists $/x", "get $/x",
		"set $/x d=2", "getacl $/x",
		"setacl $/x acl=read", "ls $/x", "ls2 $/x", "count $/x", "sync $/x",
		"multi check $/x", "multi create $/x/new", "multi delete $/x/kid", "multi set $/x d=3",
		"multiread get $/x ; ls $/x",
	}
	for _, perm := range []int{0, 1, 2, 4, 8, 16, 30, 29, 27, 23, 15, 31} {
		lines := []string{"a auth digest u:p", "a create $/x d=1", "a create $/x/kid",
			fmt.Sprintf("a setacl $/x acl=%d:auth:", perm)}
		for _, who := range []string{"b", "a"} {
			for _, op := range ops {
				lines = append(lines, who+" "+op)
			}
		}
		add(fmt.Sprintf("permission %d of digest", perm), lines...)
		lines[3] = fmt.Sprintf("a setacl $/x acl=%d:world:anyone", perm)
		add(fmt.Sprintf("permission %d of world", perm), lines...)
	}
	for _, ip := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.0/8", "127.0.0.0/31",
		"127.0.0.2/31", "10.0.0.0/8",
		"0.0.0.0/0", "127.0.0.1/32", "127.0.0.1/33", "127.0.0.1/-1", "127.0.0.1/x", "127.0.0.1/",
		"127.0.0", "x", "",
		"256.0.0.1", "127.0.0.01", "127.0.0.1.1", "127.0.0.1/8/8"} {
		add("ip "+ip, "a create $/x acl=1:ip:"+ip, "a get $/x", "b ls $/x", "b set $/x d=1",
			"a getacl $/x")
	}
}

// badPaths tries every kind of invalid path, and some that only look invalid, with every operation
// that takes one.
func badPaths(add func(string, ...string)) {
	for _, p := range []string{"<empty>", "a", "$x/", "$/", "$//x", "$/./x", "$/../x", "$/.",
		"$/..", "$/...", "$/.x",
		"$/x..", "$/a<nul>b", "$/a<bel>b", "$/a<9f>b", "$/a<e000>b", "$/a<fff0>b", "$/a<bad>b",
		"$/a<sp>b", "$/ä", "$/日本",
		"$/😀", "//", "/", "$/missing/x", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"} {
		var lines []string
		for _, op := range []string{"exists", "get", "ls", "ls2", "getacl", "sync", "set", "setacl",
			"multi check", "multi set", "create", "create2", "delete", "chkwatch", "count"} {
			if strings.HasPrefix(p, "/") && (op == "setacl" || strings.HasSuffix(op, "set")) {
				continue // no script changes the znodes that all scripts share
			}
			if p == "a" && op == "chkwatch" || strings.Contains(p, "😀") && op == "sync" {
				continue // depends on others' watches; see the differences that doc.go lists
			}
			l := "a " + op + " " + p
			if op == "chkwatch" {
				l += " t=3"
			}
			lines = append(lines, l)
		}
		if p == "/" || p == "/zookeeper" || p == "<empty>" || p == "//" {
			// the number of descendants depends on the other scripts
			lines = lines[:len(lines)-1]
		}
		if strings.HasPrefix(p, "$") {
			lines = append(lines, "a create "+p+" m=s", "a createc "+p+" m=c", "a exists "+p+" w",
				"a ls $")
		}
		add("path "+p, lines...)
	}
}

// badParts tries parts that a multi may not, or can hardly, have.
func badParts(add func(string, ...string)) {
	good := "create $/g"
	for _, part := range []string{"set $/no d=1", "delete $/no", "check $/no", "create $/no/x",
		"create $", "delete $",
		"set $ d=1 v=5", "check $ v=5", "create $/x m=9", "create $/x acl=none",
		"create $/x acl=31:auth:", "create a",
		"create $/x m=t", "createttl $/x m=t ttl=0", "createttl $/x m=p", "createttl $/x m=t ttl=5",
		"create2 $/x",
		"createc $/x m=c", "createc $/x m=p", "create $/x m=c", "create2 $/x m=es",
		"createttl $/x m=ts",
		"setacl $ acl=read", "exists $", "getacl $", "sync $", "ls2 $", "get $", "ls $"} {
		add("multi with "+part+" in the middle", "a multi "+good+" ; "+part+" ; create $/h",
			"a ls2 $", "a ping")
		add("multi with "+part+" alone", "a multi "+part, "a ls2 $")
	}
}
