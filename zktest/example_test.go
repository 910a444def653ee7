package zktest_test

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// A server for one test, and a fault at an exact moment: the second create is carried out, but its
// reply is lost.
func ExampleRun() {
	t := &exampleT{} // in a test, its own *testing.T
	defer t.end()

	srv := zktest.Run(t)
	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, zk.WithLogInfo(false),
		zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer conn.Close()

	srv.Inject(fault.CloseAfter().Op(fault.OpCreate).Path("/b"))
	for _, path := range []string{"/a", "/b"} {
		_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		fmt.Println(path, err)
	}
	_, there := srv.Node("/b")
	fmt.Println("but /b exists:", there)
	// Output:
	// /a <nil>
	// /b zk: connection closed
	// but /b exists: true
}

// exampleT replaces the *testing.T that an example does not have.
type exampleT struct{ cleanups []func() }

func (*exampleT) Helper()                           {}
func (t *exampleT) Cleanup(f func())                { t.cleanups = append(t.cleanups, f) }
func (*exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleT) end() {
	for _, f := range t.cleanups {
		f()
	}
}
