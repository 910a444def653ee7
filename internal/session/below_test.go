package session_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Tests of reads of many children, which are made in small batches. (Scenario 50.)

// crowd makes n children of /dir with data, and returns their names.
func crowd(t *testing.T, srv *zktest.Server, n int, data []byte) (names []string) {
	t.Helper()
	require.NoError(t, srv.Create("/dir", nil))
	for i := range n {
		names = append(names, fmt.Sprintf("child%d", i))
		require.NoError(t, srv.Create("/dir/"+names[i], data))
	}
	return names
}

func whole(zk.Stat) bool { return true }

// However many callers read, one batch is under way at a time, so that another request of the
// session waits for little.
func TestReadsOfManyChildrenLeaveRoomForOthers(t *testing.T) {
	for _, k := range []struct {
		children, size, most int
		op                   fault.Op
	}{
		{1000, 0, 128, fault.OpExists},
		{1000, 10, 128, fault.OpGetData},
		{30, 200_000, 5, fault.OpGetData},
		{5, 1_000_000, 1, fault.OpGetData},
	} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			names := crowd(t, srv, k.children, make([]byte, k.size))
			s := open(t, srv)
			held := srv.Inject(fault.HoldReply().Op(k.op))
			before := srv.Requests()[k.op]
			done := make(chan error, 3)
			for range cap(done) {
				go func() {
					nodes, err := s.ReadBelow(within(t, soon), "/dir", names, whole)
					for _, n := range nodes {
						if err == nil && (n.Err != nil || len(n.Data) != k.size) {
							err = fmt.Errorf("%d bytes, %w", len(n.Data), n.Err)
						}
					}
					done <- err
				}()
			}
			synctest.Wait()
			require.LessOrEqual(t, srv.Requests()[k.op]-before, k.most)
			require.Positive(t, srv.Requests()[k.op]-before)
			held.Remove()
			for range cap(done) {
				require.NoError(t, <-done)
			}
			require.Equal(t, 3*k.children, srv.Requests()[k.op]-before)
		})
	}
}

// Data that have become longer than the caller wants, since their length was read, are left out.
func TestDataThatGrowWhileTheyAreReadAreLeftOut(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		names := crowd(t, srv, 3, []byte("small"))
		s := open(t, srv)
		srv.Inject(fault.Delay(time.Second).Op(fault.OpGetData))
		go func() {
			time.Sleep(time.Second / 2)
			_ = srv.SetData("/dir/child1", make([]byte, 1_000_000))
		}()
		nodes, err := s.ReadBelow(within(t, soon), "/dir", names, func(stat zk.Stat) bool {
			return stat.DataLength < 100
		})
		require.NoError(t, err)
		require.Equal(t, "small", string(nodes[0].Data))
		require.Nil(t, nodes[1].Data)
		require.EqualValues(t, 1_000_000, nodes[1].Stat.DataLength)
		require.Equal(t, "small", string(nodes[2].Data))
	})
}

// A call that waits for its turn to read returns when its ctx or the session ends.
func TestAReaderThatWaitsForOthersEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		names := crowd(t, srv, 3, nil)
		s := open(t, srv)
		held := srv.Inject(fault.HoldReply().Op(fault.OpExists))
		defer held.Remove()
		first := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { _, err := s.StatsBelow(ctx, "/dir", names); first <- err }()
		synctest.Wait()
		began := time.Now()
		_, err := s.StatsBelow(within(t, time.Second), "/dir", names)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "waiting for other reads of many znodes")
		require.Equal(t, time.Second, time.Since(began))
		second := make(chan error, 1)
		go func() { _, err := s.StatsBelow(within(t, soon), "/dir", names); second <- err }()
		synctest.Wait()
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-first, session.ErrClosed)
		err = <-second
		require.ErrorIs(t, err, session.ErrClosed)
		require.ErrorContains(t, err, "waiting for other reads of many znodes")
		cancel()
		_, err = s.StatsBelow(within(t, soon), "/dir", names)
		require.ErrorIs(t, err, session.ErrClosed)
	})
}

// Lists of one directory are requested a few at a time while their length is unknown, and then as
// many as their length allows.
func TestABurstOfListsIsBoundedByTheirLength(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		crowd(t, srv, 10_000, nil) // about 140 KB
		s := open(t, srv)
		burst := func(most int) {
			held := srv.Inject(fault.HoldReply().Op(fault.OpGetChildren2))
			before := srv.Requests()[fault.OpGetChildren2]
			done := make(chan error, 40)
			for range cap(done) {
				go func() {
					_, _, err := s.List(within(t, soon), "/dir")
					done <- err
				}()
			}
			synctest.Wait()
			require.LessOrEqual(t, srv.Requests()[fault.OpGetChildren2]-before, most)
			held.Remove()
			for range cap(done) {
				require.NoError(t, <-done)
			}
		}
		burst(3)
		burst(10)
	})
}
