package zktest_test

import (
	"bytes"
	"hash/adler32"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/zktest"
)

// sequenceSeed is where the wrap tests begin: two numbers before the largest.
const sequenceSeed = 2147483646

// seedLog writes a transaction log in which /w has had its counter raised, which no client could do in less than
// two billion creates. A real server that starts from it goes on from there.
func seedLog(t *testing.T) (dir string) {
	t.Helper()
	o := &out{b: []byte("ZKLG")}
	o.i32(2).i64(0)
	txn := func(zxid int64, path string, creates int32) {
		b := (&out{}).i64(1).i32(1).i64(zxid).i64(time.Now().UnixMilli()).i32(1). // header: session, xid, zxid, time, create
												str(path).str("").i32(1).i32(31).str("world").str("anyone").flag(false).i32(creates).b
		o.i64(int64(adler32.Checksum(b)))
		o.i32(int32(len(b)))
		o.b = append(append(o.b, b...), 'B')
	}
	txn(1, "/w", 1)
	txn(2, "/w/seed", sequenceSeed)
	txn(3, "/pad", 1) // SetSequence takes a zxid, too
	dir = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "version-2"), 0o755))
	o.b = append(o.b, make([]byte, 1024)...) // the log's end is zeroes, as in a log that is still open
	require.NoError(t, os.WriteFile(filepath.Join(dir, "version-2", "log.1"), bytes.Clone(o.b), 0o644))
	return dir
}

func TestSequenceWrapsAsOnARealServer(t *testing.T) {
	lines := []string{
		"a create $/s- m=s", "a create2 $/s- m=es", "a create $/s- m=s", "a create $/other", "a exists $",
		"a create $/t- m=s", "a multi create $/m- m=s ; create $/m- m=s ; create $/m- m=es", "a exists $",
		"a delete $/s-2147483647", "a create $/s- m=s", "a create $/s- m=s", "a ls2 $",
	}
	real := ensemble.Start(t, 1, ensemble.WithConfig("dataLogDir="+seedLog(t)),
		ensemble.WithJVM("-Dzookeeper.snapshot.trust.empty=true"))
	ours := zktest.Run(t, sameVersion(t, real))
	require.NoError(t, ours.Create("/w", nil))
	require.NoError(t, ours.Create("/w/seed", nil))
	require.NoError(t, ours.SetSequence("/w", sequenceSeed))
	var traces [2][]string
	for i, addr := range []string{ours.Addr(), real.Nodes[0].Addr()} {
		s := &script{dial: func() (net.Conn, error) { return net.Dial("tcp", addr) }, root: "/w", sessions: map[string]*raw{}}
		_, err := s.session("a")
		require.NoError(t, err)
		require.NoError(t, s.step("a sync /")) // only for its zxid
		s.base = s.sessions["a"].seen
		for _, l := range lines {
			require.NoError(t, s.step(l))
		}
		require.NoError(t, s.end())
		traces[i] = s.trace[1:]
	}
	require.Equal(t, traces[1], traces[0])
}
