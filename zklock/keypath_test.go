package zklock_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zklock"
)

func TestKeyPathKeepsWhatIsSafeAndEscapesTheRest(t *testing.T) {
	for key, want := range map[string]string{
		"42":                     "/k/42",
		"Order_7-b.c":            "/k/Order_7-b.c",
		"a/b":                    "/k/a%2Fb",
		".":                      "/k/%2E",
		"..":                     "/k/%2E.",
		".hidden":                "/k/%2Ehidden",
		"%2E":                    "/k/%252E",
		"~":                      "/k/%7E",
		" ":                      "/k/%20",
		"\x00":                   "/k/%00",
		"ü":                      "/k/%C3%BC",
		"\xff":                   "/k/%FF",
		"zookeeper":              "/k/zookeeper",
		"x-lock-0000000001":      "/k/x-lock-000000000%31",
		"__READ__0000000001":     "/k/__READ__000000000%31",
		"x-lease-3-0000000012":   "/k/x-lease-3-000000001%32",
		"x.done":                 "/k/x.don%65", // else a job's record
		"resized":                "/k/resize%64",
		"":                       "/k/",
		strings.Repeat("a", 200): "/k/" + strings.Repeat("a", 200),
		strings.Repeat("a", 201): "/k/" + strings.Repeat("a", 135) +
			"~6ea719cefa4b31862035a7fa606b7cc3602f46231117d135cc7119b3c1412314",
	} {
		if len(key) != 201 {
			require.Equal(t, want, zklock.KeyPath("/k", key))
		} else {
			require.Equal(t, want[:139], zklock.KeyPath("/k", key)[:139])
		}
	}
	require.Equal(t, "/k/a", zklock.KeyPath("/k/", "a"))
	require.Equal(t, "/a", zklock.KeyPath("/", "a"))
	require.Equal(t, "/%7aookeeper", zklock.KeyPath("/", "zookeeper"))
	require.NotEqual(t, zklock.KeyPath("/", "zookeeper"), zklock.KeyPath("/", "%7aookeeper"))
}

// KeyPath makes a safe component of any key, and different components of different keys.
func FuzzKeyPath(f *testing.F) {
	long := strings.Repeat("é/", 200)
	for _, seed := range [][2]string{
		{"a", "b"}, {".", ".."}, {"a/b", "a%2Fb"}, {"%2F", "/"}, {"", "x"}, {"~", "%7E"},
		{"\x00", "%00"}, {"\xff", "\ufffd"},
		{long, long + "x"}, {strings.Repeat("a", 200), strings.Repeat("a", 201)},
		{"zookeeper", "%7aookeeper"},
		{"x-lock-0000000001", "x-lock-000000000%31"}, {"x-lock--2147483648", "lock-0000000001"},
		{strings.Repeat("x", 190) + "lock-0000000001",
			strings.Repeat("x", 184) + "lock-0000000001"},
		{strings.Repeat("a", 135) + "~" + strings.Repeat("0", 64), strings.Repeat("a", 300)},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, root := range []string{"/locks", "/"} {
			p, q := zklock.KeyPath(root, a), zklock.KeyPath(root, b)
			if (a == b) != (p == q) {
				t.Errorf("%q and %q become %q and %q", a, b, p, q)
			}
			name, ok := strings.CutPrefix(p, strings.TrimSuffix(root, "/")+"/")
			if !ok || strings.Contains(name, "/") || len(name) > 202 {
				t.Errorf("%q becomes %q: not one component of at most 200 bytes", a, p)
			}
			if (a == "") != (name == "") || name == "." || name == ".." {
				t.Errorf("%q becomes %q", a, p)
			}
			if _, contender := recipe.Parse(name); contender {
				t.Errorf("%q becomes %q, which stands in line at %s", a, p, root)
			}
			if err := session.CheckPath(p); a != "" && err != nil {
				t.Error(err)
			}
		}
	})
}
