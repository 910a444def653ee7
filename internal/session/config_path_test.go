package session_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zktest"
)

// goodPaths are accepted by this package, by the driver and by real servers.
var goodPaths = []string{
	"/", "/a", "/a/b", "/a b", "/.a", "/..a", "/a.", "/a..", "/a/...", "/...", "/é", "/日本/語",
	"/%2f", "/_c_x-lock-0000000001",
	"/\u00a0", "/\ufdd0", "/\ufb01", "/zookeeper", "/" + strings.Repeat("x", 4095), "/\\", "/\"",
	"/'", "/*", "/~",
}

// badPaths are refused, with the rule in the message.
var badPaths = map[string]string{
	"":                              "is empty",
	"a":                             "does not begin with a slash",
	"a/b":                           "does not begin with a slash",
	" /a":                           "does not begin with a slash",
	"/a/":                           "ends with a slash",
	"//":                            "ends with a slash",
	"//a":                           "empty component",
	"/a//b":                         "empty component",
	"/.":                            "relative component .",
	"/..":                           "relative component ..",
	"/a/./b":                        "relative component .",
	"/a/../b":                       "relative component ..",
	"/a/..":                         "relative component ..",
	"/\x00":                         "character that ZooKeeper excludes",
	"/a\x00b":                       "character that ZooKeeper excludes",
	"/a\nb":                         "character that ZooKeeper excludes",
	"/\x1f":                         "character that ZooKeeper excludes",
	"/\x7f":                         "character that ZooKeeper excludes",
	"/\u0085":                       "character that ZooKeeper excludes",
	"/\u009f":                       "character that ZooKeeper excludes",
	"/\ue000":                       "character that ZooKeeper excludes",
	"/\uf8ff":                       "character that ZooKeeper excludes",
	"/\ufff0":                       "character that ZooKeeper excludes",
	"/\ufffd":                       "character that ZooKeeper excludes",
	"/\uffff":                       "character that ZooKeeper excludes",
	"/😀":                            "character that ZooKeeper excludes",
	"/\U0010ffff":                   "character that ZooKeeper excludes",
	"/\xff":                         "is not UTF-8",
	"/\xed\xa0\x80":                 "is not UTF-8", // a surrogate
	"/" + strings.Repeat("x", 4096): "longer than 4096 bytes",
}

func TestPaths(t *testing.T) {
	for _, path := range goodPaths {
		require.NoError(t, session.CheckPath(path))
		require.True(t, javaTakes(path), path)
	}
	for path, rule := range badPaths {
		err := session.CheckPath(path)
		require.ErrorIs(t, err, session.ErrPath, "%.40q", path)
		require.ErrorContains(t, err, rule)
		require.Less(t, len(err.Error()), 1200)
	}
	require.ErrorContains(t, session.CheckPath("/a/../b"), `"/a/../b"`,
		"the message names the path")
}

func TestABadPathIsRefusedByEveryOperationBeforeAnyDial(t *testing.T) {
	s, err := session.Start("zk1",
		session.Config{Dial: func(string, string, time.Duration) (net.Conn, error) {
			// the session itself may dial; the operation must not wait for that
			return nil, errors.New("not here")
		}})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	ctx := context.Background() // no deadline: an operation that waited would hang
	acl := session.WorldACL()
	for path, rule := range badPaths {
		shape := strings.Contains(rule, "slash") || strings.Contains(rule, "component") ||
			path == ""
		for name, op := range map[string]func() error{
			"create": func() error {
				_, err := s.Create(ctx, path, nil, session.Persistent, acl)
				return err
			},
			"create all": func() error {
				return s.CreateAll(ctx, path, nil, session.Persistent, acl)
			},
			"delete":     func() error { return s.Delete(ctx, path, -1) },
			"get":        func() error { _, _, err := s.Get(ctx, path); return err },
			"set":        func() error { _, err := s.Set(ctx, path, nil, -1); return err },
			"list":       func() error { _, _, err := s.List(ctx, path); return err },
			"exists":     func() error { _, err := s.Exists(ctx, path); return err },
			"exists now": func() error { _, err := existsNow(ctx, s, path); return err },
			"acl":        func() error { _, _, err := s.ACL(ctx, path); return err },
			"set acl":    func() error { _, err := s.SetACL(ctx, path, acl, -1); return err },
			"sync":       func() error { return s.Sync(ctx, path) },
			"watch":      func() error { _, err := s.Watch(ctx, path); return err },
			"multi create": func() error {
				_, err := s.Multi(ctx, session.OpCreate{Path: path, ACL: acl})
				return err
			},
			"multi delete": func() error {
				_,
					err := s.Multi(ctx, session.OpDelete{Path: path})
				return err
			},
			"multi set": func() error {
				_,
					err := s.Multi(ctx, session.OpSet{Path: path})
				return err
			},
			"multi check": func() error {
				_,
					err := s.Multi(ctx, session.OpCheck{Path: path})
				return err
			},
			"multi second": func() error {
				_, err := s.Multi(ctx, session.OpDelete{Path: "/fine"}, session.OpCheck{Path: path})
				return err
			},
		} {
			if shape || strings.Contains(name, "create") || strings.HasPrefix(name, "multi") ||
				name == "and list" {
				require.ErrorIs(t, op(), session.ErrPath, "%s %.40q", name, path)
			}
		}
	}
}

// Znodes whose names we would refuse to create may exist: they can be read, watched and deleted
// like others. (Scenario 50.)
func TestNamesThatAListBroughtAreNotHeldToOurPathRule(t *testing.T) {
	srv := zktest.Run(t)
	s := open(t, srv)
	long := "/dir/" + strings.Repeat("x", 10_000) + "-lock-0000000003"
	require.NoError(t, srv.Create("/dir", nil))
	require.NoError(t, srv.Create(long, []byte("data")))
	ctx := within(t, soon)
	require.ErrorIs(t, session.CheckPath(long), session.ErrPath)
	names, _, err := s.List(ctx, "/dir")
	require.NoError(t, err)
	nodes, err := s.ReadBelow(ctx, "/dir", names, func(zk.Stat) bool { return true })
	require.NoError(t, err)
	require.Equal(t, "data", string(nodes[0].Data))
	data, _, err := s.Get(ctx, long)
	require.NoError(t, err)
	require.Equal(t, "data", string(data))
	w, err := s.Watch(ctx, long)
	require.NoError(t, err)
	require.True(t, w.Exists)
	children, _, err := s.List(ctx, long)
	require.NoError(t, err)
	require.Empty(t, children)
	acl, _, err := s.ACL(ctx, long)
	require.NoError(t, err)
	require.Equal(t, everybody, acl)
	ws, err := s.WatchAll(ctx, long)
	require.NoError(t, err)
	require.True(t, ws[0].Exists)
	below, _, _, err := s.WatchChildren(ctx, long)
	require.NoError(t, err)
	for name, op := range map[string]func() error{
		"exists":     func() error { _, err := s.Exists(ctx, long); return err },
		"exists now": func() error { _, err := existsNow(ctx, s, long); return err },
		"sync":       func() error { return s.Sync(ctx, long) },
		"set ACL":    func() error { _, err := s.SetACL(ctx, long, acl, -1); return err },
	} {
		require.NoError(t, op(), name)
	}
	_, err = s.Set(ctx, long, []byte("new"), -1)
	require.NoError(t, err)
	eventually(t, session.Fired(w), "the data were set")
	require.NoError(t, s.Delete(ctx, long, -1))
	eventually(t, session.Fired(below), "it is deleted")
	require.NoError(t, srv.Create(long, nil))
	errs := deleteAll(ctx, s, []string{long, long})
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], zk.ErrNoNode)
	_, _, err = s.Get(ctx, "/dir/a\u0085b")
	require.ErrorIs(t, err, zk.ErrNoNode, "the server has the word")
}

func TestASequentialNameMayBeTheNumberAlone(t *testing.T) {
	srv := zktest.Run(t)
	s := open(t, srv)
	require.NoError(t, srv.Create("/q", nil))
	made, err := s.Create(within(t, soon), "/q/", nil, session.EphemeralSequential,
		session.WorldACL())
	require.NoError(t, err)
	require.Equal(t, "/q/0000000000", made.Path)
	for _, name := range []string{"/q/.", "/q/.."} { // with the number no relative component
		made, err = s.Create(within(t, soon), name, nil, session.EphemeralSequential,
			session.WorldACL())
		require.NoError(t, err)
		require.Regexp(t, `^/q/\.+\d{10}$`, made.Path)
	}
	_, err = s.Create(within(t, soon), "/q/", nil, session.Ephemeral, session.WorldACL())
	require.ErrorIs(t, err, session.ErrPath)
	// The number does not count.
	for length, want := range map[int]error{4096: nil, 4097: session.ErrPath} {
		_, err = s.Create(within(t, soon), "/"+strings.Repeat("x", length-1), nil,
			session.EphemeralSequential, session.WorldACL())
		require.ErrorIs(t, err, want)
	}
}

func TestARealServerTakesThePathsThatWeTake(t *testing.T) {
	s := openAt(t, ensemble.Shared(t, 1).Connect())
	for _, path := range goodPaths {
		_, err := s.Exists(within(t, soon), path)
		if err != nil {
			// any answer except that the path is bad, which the server reports by BadArguments or
			// by closing the connection
			require.ErrorIs(t, err, zk.ErrNoNode, "%.40q", path)
		}
		made := ensemble.Shared(t,
			1).Path(t) + strings.TrimSuffix(strings.ReplaceAll(path, "/zookeeper", "/x"), "/")
		if len(made) > 4096 || strings.Count(path, "/") > 1 {
			continue
		}
		require.NoError(t,
			s.CreateAll(within(t, soon), made, nil, session.Persistent,
				session.WorldACL()), "%.40q", path)
		require.NoError(t, s.Delete(within(t, soon), made, -1), "%.40q", path)
	}
}

// javaTakes is org.apache.zookeeper.common.PathUtils.validatePath (3.8), word for word: over
// UTF-16.
func javaTakes(path string) bool {
	chars := utf16.Encode([]rune(path))
	if len(chars) == 0 || chars[0] != '/' {
		return false
	}
	if len(chars) == 1 {
		return true
	}
	if chars[len(chars)-1] == '/' {
		return false
	}
	last := chars[0]
	for i := 1; i < len(chars); i++ {
		c := chars[i]
		switch {
		case c == 0:
			return false
		case c == '/' && last == '/':
			return false
		case c == '.' && last == '.':
			if chars[i-2] == '/' && (i+1 == len(chars) || chars[i+1] == '/') {
				return false
			}
		case c == '.':
			if chars[i-1] == '/' && (i+1 == len(chars) || chars[i+1] == '/') {
				return false
			}
		case c > 0 && c < 0x1f, c > 0x7f && c < 0x9f, c > 0xd800 && c < 0xf8ff, c > 0xfff0 &&
			c < 0xffff:
			return false
		}
		last = c
	}
	return true
}

// driverTakes reports whether the driver accepts a path: on a closed connection the error is then
// that it is closed.
func driverTakes(t testing.TB) func(path string) bool {
	conn, _, err := zk.Connect([]string{"nowhere:1"}, time.Second, zk.WithLogInfo(false),
		zk.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
			return nil, net.ErrClosed
		}),
		zk.WithLogger(silent{}), zk.WithHostProvider(&oneHost{}))
	require.NoError(t, err)
	conn.Close()
	return func(path string) bool {
		_, _, err := conn.Exists(path)
		return !errors.Is(err, zk.ErrInvalidPath)
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// oneHost is a host list that needs no resolver.
type oneHost struct{}

func (*oneHost) Init([]string) error  { return nil }
func (*oneHost) Len() int             { return 1 }
func (*oneHost) Next() (string, bool) { return "nowhere:1", true }
func (*oneHost) Connected()           {}

func FuzzCheckPath(f *testing.F) {
	for _, path := range goodPaths {
		f.Add(path[:min(len(path), 300)])
	}
	for path := range badPaths {
		f.Add(path[:min(len(path), 300)])
	}
	driver := driverTakes(f)
	f.Fuzz(func(t *testing.T, path string) {
		if err := session.CheckPath(path); err != nil {
			require.ErrorIs(t, err, session.ErrPath)
			require.Less(t, len(err.Error()), 2000)
			return
		}
		require.True(t, driver(path), "the driver refuses %q", path)
		require.True(t, javaTakes(path), "the server refuses %q", path)
		if path == "/" {
			return
		}
		if _, chroot, err := session.ParseConnect("zk1" + path); err == nil {
			// some paths are no chroots
			require.Equal(t, path, chroot)
		} else {
			require.ErrorIs(t, err, session.ErrConfig)
		}
		if len(path) < 4000 {
			require.NoError(t, session.CheckPath(path+"/x"), "a path can have children")
		}
	})
}
