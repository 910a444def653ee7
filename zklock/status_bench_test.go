package zklock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// BenchmarkLockAndUnlock is what a free lock costs against a server in memory: all of it is this library's and the
// server's own work, so that what book-keeping adds is seen.
func BenchmarkLockAndUnlock(b *testing.B) {
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			srv := zktest.Run(b, zktest.WithoutListener())
			c, err := zklock.Dial(context.Background(), srv.Addr(), zklock.WithDialer(srv.Dial))
			require.NoError(b, err)
			defer c.Close()
			var n atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(goroutines)
			b.RunParallel(func(pb *testing.PB) {
				m := c.Mutex(fmt.Sprint("/l/", n.Add(1)))
				for pb.Next() {
					_, h, err := m.Lock(context.Background())
					if err == nil {
						err = h.Unlock()
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
