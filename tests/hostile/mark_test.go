package hostile_test

import (
	"context"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

const markSuffix = "-released"

// note is the frame of a notification.
func note(typ, state int, path string) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0xffffffff)
	b = binary.BigEndian.AppendUint64(b, 0xffffffffffffffff)
	for _, v := range []int{0, typ, state, len(path)} {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return framed(append(b, path...))
}

// threeInLine puts a client behind two others, the second of which stops waiting or is released;
// from then on liar sits between the third and its server. holds: the third holds when the second
// is gone.
func threeInLine(
	t *testing.T, version zktest.Version, release bool, liesAbout func(second string) liar,
) (holds bool, lists int) {
	locktest.SimulateAlone(t, func(s *locktest.Sim) {
		var lie atomic.Pointer[liar] // nil: honest
		p := &peer{srv: s.Server, lie: func(f said) ([]byte, bool, bool) {
			if lie := lie.Load(); lie != nil {
				return (*lie)(f)
			}
			return honest(f)
		}}
		mutex := func(opts ...zklock.Option) *zklock.Mutex {
			return locktest.Dial(s, s.Server, opts...).Mutex(dir)
		}
		first := s.Lock(mutex())
		giveUp, cancel := context.WithCancel(s.Context())
		defer cancel()
		second := locktest.Go(giveUp, mutex().Lock)
		synctest.Wait()
		third := s.Start(mutex(zklock.WithDialer(p.dial)).Lock)
		liar := liesAbout(dir + "/" + locktest.Contenders(s.Server.Children(dir))[1])
		lie.Store(&liar)
		if release {
			s.Unlock(first)
			first = second.Get(s)
			synctest.Wait()
		}
		lists = -s.Server.Requests()[fault.OpGetChildren2]
		if release {
			s.Unlock(first)
		}
		cancel()
		holds = third.Over()
		lists += s.Server.Requests()[fault.OpGetChildren2]
		if !release {
			s.Unlock(first)
		}
		s.Unlock(third.Get(s))
	}, zktest.WithVersion(version))
	return holds, lists
}

func TestANotificationOfAMarkThatWasNeverMadeLetsNoContenderHold(t *testing.T) {
	for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
		holds, _ := threeInLine(t, version, false, func(second string) liar {
			return func(f said) ([]byte, bool, bool) {
				if f.op == fault.OpNotify && f.path == second {
					return append(note(1, 3, second+markSuffix), framed(f.body)...), false, false
				}
				return honest(f)
			}
		})
		// Before 3.9 a notification does not name its transaction: such a server's notification is
		// trusted.
		require.Equal(t, version == zktest.Version38, holds, "%v", version)
	}
}

func TestAMarkWithoutADeletionLetsNoContenderHold(t *testing.T) {
	for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
		holds, lists := threeInLine(t, version, false, func(second string) liar {
			return func(f said) ([]byte, bool, bool) {
				if f.op == fault.OpNotify && f.path == second {
					// there was one; the client gets the mark in its place
					return note(1, 3, second+markSuffix), false, false
				}
				return honest(f)
			}
		})
		require.False(t, holds, "%v", version)
		require.Zero(t, lists)
	}
}

func TestANotificationOfTheMarkAfterThatOfTheDeletionLetsTheNextContenderHold(t *testing.T) {
	var mark []byte
	holds, lists := threeInLine(t, zktest.Version39, true, func(second string) liar {
		return func(f said) ([]byte, bool, bool) {
			switch {
			case f.op == fault.OpNotify && strings.HasSuffix(f.path, markSuffix):
				mark = framed(f.body)
				return []byte{}, false, false
			case f.op == fault.OpNotify && f.path == second && mark != nil:
				return append(framed(f.body), mark...), false, false
			}
			return honest(f)
		}
	})
	require.NotNil(t, mark)
	require.True(t, holds)
	require.LessOrEqual(t, lists, 1)
}
