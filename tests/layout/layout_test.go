package layout_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// files returns the Go files of the root module, or of all modules. Test data are left out.
func files(t *testing.T, allModules bool) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." &&
				(strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || !allModules &&
					nested(p)) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		all = append(all, source{name: rel, text: string(text)})
		return err
	})
	require.NoError(t, err)
	return all
}

// nested reports whether a directory is the root of a module of its own.
func nested(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func TestImportsRunOneWay(t *testing.T) {
	requireNone(t, files(t, false), violations)
}

// requireNone demands that a check finds nothing in any file.
func requireNone(t *testing.T, all []source, check func(source) ([]string, error)) {
	t.Helper()
	require.NotEmpty(t, all)
	for _, s := range all {
		found, err := check(s)
		require.NoError(t, err)
		assert.Empty(t, found)
	}
}

// requireFound demands that a check finds one thing, of which want is a part, in a file; nothing,
// if want is empty.
func requireFound(t *testing.T, check func(source) ([]string, error), s source, want string) {
	t.Helper()
	found, err := check(s)
	require.NoError(t, err)
	if want == "" {
		require.Empty(t, found)
		return
	}
	require.Len(t, found, 1)
	require.Contains(t, found[0], want)
}

func TestTheRulesReportViolations(t *testing.T) {
	const testify = `"github.com/stretchr/testify/require"`
	for name, c := range map[string]struct {
		file string
		text string
		want string // part of the violation; empty: allowed
	}{
		"zktest on the standard library": {"zktest/server.go", `import "net"`, ""},
		"zktest below itself": {"zktest/server.go",
			`import _ "github.com/zklock/locker/zktest/wire"`, ""},
		"zktest on the driver": {"zktest/server.go",
			`import _ "github.com/go-zookeeper/zk"`, "standard library only"},
		"zktest on the library": {"zktest/server.go",
			`import _ "github.com/zklock/locker/internal/session"`, "standard library only"},
		"zktest's tests on the driver": {"zktest/server_test.go",
			`import _ "github.com/go-zookeeper/zk"`, ""},
		"session connects": {"internal/session/internal/driver/dial.go",
			`import "github.com/go-zookeeper/zk"; var _ = zk.Connect`, ""},
		"zklock uses the driver's values": {"zklock/hold.go",
			`import "github.com/go-zookeeper/zk"; var _ zk.ACL; var _ = zk.ErrNoNode`, ""},
		"zklock connects": {"zklock/client.go",
			`import "github.com/go-zookeeper/zk"; var _ = zk.Connect`, "only package driver"},
		"zklock holds a Conn": {"zklock/client.go",
			`import "github.com/go-zookeeper/zk"; type c struct{ c *zk.Conn }`,
			"only package driver"},
		"queue connects by another name": {"internal/queue/enter.go",
			`import driver "github.com/go-zookeeper/zk"; var _ = driver.ConnectWithDialer`,
			"only package driver"},
		"queue hides the driver": {"internal/queue/enter.go",
			`import . "github.com/go-zookeeper/zk"; var _ = Connect`, "dot import"},
		"a program uses the driver's lock": {"cmd/zklock/main.go",
			`import "github.com/go-zookeeper/zk"; var _ = zk.NewLock`, "only package driver"},
		"a test connects by itself": {"internal/queue/enter_test.go",
			`import "github.com/go-zookeeper/zk"; var _ = zk.Connect`, ""},
		"another thing called Conn": {"internal/queue/enter.go",
			`import "net"; type c struct{ c net.Conn }`, ""},
		"queue on session": {"internal/queue/enter.go",
			`import _ "github.com/zklock/locker/internal/session"`, ""},
		"recipe on session": {"recipe/order.go",
			`import _ "github.com/zklock/locker/internal/session"`, "pure functions"},
		"queue on zklock": {"internal/queue/enter.go",
			`import _ "github.com/zklock/locker/zklock"`, "lies below zklock"},
		"queue on a package below zklock": {"internal/queue/enter.go",
			`import _ "github.com/zklock/locker/zklock/lockhttp"`, "lies below zklock"},
		"doctor on zklock": {"internal/doctor/doctor.go",
			`import _ "github.com/zklock/locker/zklock"`, "lies below zklock"},
		"what is internal on admin": {"internal/queuejson/queuejson.go",
			`import _ "github.com/zklock/locker/zklock/admin"`, "lies below zklock"},
		"a test of doctor on zklock": {"internal/doctor/doctor_test.go",
			`import _ "github.com/zklock/locker/zklock"`, ""},
		"what lies below zklock on zklock": {"zklock/internal/errtype/errtype.go",
			`import _ "github.com/zklock/locker/zklock"`, ""},
		"session on queue": {"internal/session/internal/driver/dial.go",
			`import _ "github.com/zklock/locker/internal/queue"`, "session lies below queue"},
		"session on zklock": {"internal/session/internal/driver/dial.go",
			`import _ "github.com/zklock/locker/zklock"`, "lies below zklock"},
		"the face of session on the whole": {"session/op.go",
			`import _ "github.com/zklock/locker/internal/session"`,
			"it lies below all that is internal"},
		"zklock on the test server": {"zklock/client.go",
			`import _ "github.com/zklock/locker/zktest"`, "test server"},
		"an example on the test server": {"examples/quickstart/main.go",
			`import _ "github.com/zklock/locker/zktest"`, ""},
		"a program starts servers": {"cmd/zklock/main.go",
			`import _ "github.com/zklock/locker/tests/ensemble"`, "only tests use"},
		"a test starts servers": {"zklock/mutex_test.go",
			`import _ "github.com/zklock/locker/tests/ensemble"`, ""},
		"what tests share starts servers": {"tests/locktest/site.go",
			`import _ "github.com/zklock/locker/tests/ensemble"`, ""},
		"a program uses what tests share": {"cmd/zklock/main.go",
			`import _ "github.com/zklock/locker/tests/locktest"`, "only tests use"},
		"the library records by itself": {"zklock/client.go",
			`import _ "go.opentelemetry.io/otel/metric"`, "nested module"},
		"the library asserts": {"zklock/mutex.go", `import _ ` + testify,
			"only tests assert"},
		"a test asserts": {"zklock/mutex_test.go", `import _ ` + testify, ""},
		"a name that only begins the same": {"sessions/dial.go",
			`import _ "github.com/zklock/locker/recipe"`, ""},
		"a sibling that begins with zktest": {"zktestutil/dial.go",
			`import _ "github.com/go-zookeeper/zk"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			requireFound(t, violations, source{name: c.file, text: "package p\n" + c.text + "\n"},
				c.want)
		})
	}
}
