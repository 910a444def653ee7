package dial_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/internal/dial"
)

// retained is the lease of a session that a lock relies on.
func retained(left time.Duration) func() (time.Duration, bool) {
	return func() (time.Duration, bool) { return left, true }
}

func unasked(string, time.Duration) error { return nil }

// The session may end at the moment at which an attempt does. Connect returns all the same.
func TestConnectEndsWithTheSession(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			life, end := context.WithCancel(t.Context())
			d := dial.New(life, dial.Config{
				Servers: []string{"a:1", "b:1"},
				Timeout: 10 * time.Second,
				Dial: func(_, _ string, limit time.Duration) (net.Conn, error) {
					time.Sleep(300 * time.Millisecond)
					return nil, errors.New("refused")
				},
			}, retained(5*time.Second))
			time.AfterFunc(300*time.Millisecond, end)
			_, _, _, err := d.Connect(unasked)
			require.Error(t, err)
			d.Wait()
			time.Sleep(time.Minute) // the dialer's calls that were given up have returned
		})
	}
}

// A server that does not answer costs a retained session 200 ms, and one that is not retained an
// attempt.
func TestOnlyARetainedSessionDialsServersBesideEachOther(t *testing.T) {
	for name, isRetained := range map[string]bool{"retained": true, "not retained": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dialled atomic.Int32
				ours, theirs := net.Pipe()
				d := dial.New(t.Context(), dial.Config{
					Servers: []string{"a:1", "b:1", "c:1"},
					Timeout: 10 * time.Second,
					Dial: func(_, _ string, limit time.Duration) (net.Conn, error) {
						if dialled.Add(1) == 3 {
							return ours, nil
						}
						time.Sleep(limit)
						return nil, context.DeadlineExceeded
					},
				}, func() (time.Duration, bool) { return 5 * time.Second, isRetained })
				began := time.Now()
				_, _, _, err := d.Connect(unasked)
				if isRetained {
					require.NoError(t, err)
					require.Equal(t, 400*time.Millisecond, time.Since(began))
				} else {
					require.Error(t, err)
					require.EqualValues(t, 1, dialled.Load())
				}
				require.NoError(t, errors.Join(ours.Close(), theirs.Close()))
				d.Wait()
				time.Sleep(time.Minute) // the dialer's calls that were given up have returned
			})
		})
	}
}
