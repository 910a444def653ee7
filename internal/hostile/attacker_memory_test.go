package hostile_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

// How much memory a list of eight million empty names takes, which fits into one frame of 32 MB.
func TestAListOfEmptyNamesTakesNoMoreThanItsFrame(t *testing.T) {
	srv := zktest.Run(t)
	p := &peer{srv: srv, lie: func(f said) ([]byte, bool, bool) {
		if f.op != zktest.OpGetChildren2 {
			return honest(f)
		}
		n := 8<<20 - 100
		b := binary.BigEndian.AppendUint32(bytes.Clone(f.body[:16]), uint32(n))
		b = append(b, make([]byte, 4*n)...)
		return framed(append(b, make([]byte, 68)...)), false, false
	}}
	s, err := session.Open(t.Context(), srv.Addr(), session.Config{Dial: p.dial})
	require.NoError(t, err)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	names, _, err := s.List(ctx, "/")
	runtime.ReadMemStats(&after)
	t.Logf("%d names, %v: %d MB allocated, heap %d MB more, of which the peer's own about 140", len(names), err,
		(after.TotalAlloc-before.TotalAlloc)>>20, (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>20)
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("kept: %d MB", (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>20)
	runtime.KeepAlive(names)
}
