package ensemble

import (
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// WithCounter starts a server with a znode path, a child of the root with an open ACL, whose
// counter of creates is n, which would take a client days to reach. It writes the transaction log
// that such a server would have. The znode has a child "seed". For one node only.
func WithCounter(tb testing.TB, path string, n int32) Option {
	tb.Helper()
	const create = 1 // the operation
	log := appendInts([]byte("ZKLG"), 2, 0, 0)
	txn := func(zxid int64, path string, creates int32) {
		// Header: session, xid, zxid, time, create; then path, no data, an ACL for everybody, not
		// ephemeral, the parent's counter.
		b := appendInts(nil, 0, 1, 1, int32(zxid>>32), int32(zxid))
		b = binary.BigEndian.AppendUint64(b, uint64(time.Now().UnixMilli()))
		b = appendText(appendInts(b, create), path)
		b = appendText(appendText(appendInts(appendText(b, ""), 1, 31), "world"), "anyone")
		b = appendInts(append(b, 0), creates)
		log = binary.BigEndian.AppendUint64(log, uint64(adler32.Checksum(b)))
		log = append(append(appendInts(log, int32(len(b))), b...), 'B')
	}
	txn(1, path, 1)
	txn(2, path+"/seed", n)
	txn(3, "/pad", 1)
	log = append(log, make([]byte, 1024)...) // a log that is still open ends with zeroes
	dir := tb.TempDir()
	err := os.Mkdir(filepath.Join(dir, "version-2"), 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "version-2", "log.1"), log, 0o644)
	}
	if err != nil {
		tb.Fatal(fmt.Errorf("ensemble: log with a counter: %w", err))
	}
	return func(c *config) {
		WithConfig("dataLogDir=" + dir)(c)
		WithJVM("-Dzookeeper.snapshot.trust.empty=true")(c)
	}
}

func appendInts(b []byte, vs ...int32) []byte {
	for _, v := range vs {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return b
}

func appendText(b []byte, s string) []byte { return append(appendInts(b, int32(len(s))), s...) }
