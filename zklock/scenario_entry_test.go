package zklock_test

import (
	"context"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Scenarios 3 to 7: places in line, and which names count as one. More of them are in
// testdata/scripts/create.txt.

// contenderName is the form of the names of our znodes: the id, once and first, then the kind, then
// the number.
const contenderName = `^_c_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-lock-\d{10}$`

// scenario 6: however often a create has to be repeated, the id stands once in the name, and before
// the base name.
func TestScenario6_TheIDIsPutOnceBeforeTheBaseNameHoweverOftenACreateIsRepeated(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		failed := s.Server.Inject(
			fault.CloseBefore().Op(fault.OpCreate).Path("/locks/a/*").Times(4))
		h := s.Lock(c.Mutex(dir))
		require.Equal(s, 4, failed.Hits())
		require.Regexp(s, contenderName, path.Base(h.Node()))
		tried := c.Created()
		require.Len(s, tried, 5)
		for _, name := range tried {
			require.Equal(s, strings.TrimRight(path.Base(h.Node()), "0123456789"), name,
				"the same id each time")
		}
		s.Unlock(h)

		// Also in another session, and when the directory has to be made in between.
		expired := s.Server.Inject(
			fault.ExpireSession().Op(fault.OpMulti).Path("/locks/new/*").Times(1))
		h = s.Lock(c.Mutex("/locks/new"))
		require.Equal(s, 1, expired.Hits())
		require.Regexp(s, contenderName, path.Base(h.Node()))
		s.Owned(c, h)
	})
}

// scenario 7: the data of a holder's znode are for people; no data can disturb a waiter.
func TestScenario7_AContenderWithUnreadableDataIsWaitedForLikeAnyOther(t *testing.T) {
	const name = "_c_ffffffff-ffff-4fff-8fff-ffffffffffff-lock-0000000000"
	for what, data := range map[string]struct {
		data  []byte
		named string // what the waiter's error calls the holder
	}{
		"invalid UTF-8":          {[]byte{0xff, 0xfe, 0xfd}, name},
		"an 8-bit control":       {[]byte("a\x9b2Jb"), name},
		"nothing":                {nil, name},
		"control characters":     {[]byte("a\x1b[2Jb\r\n"), name},
		"JSON of the wrong kind": {[]byte(`[{"host":1}]`), `[{"host":1}]`},
		"JSON with a bad field":  {[]byte(`{"host":"h","pid":"p"}`), `{"host":"h","pid":"p"}`},
		"a long text":            {[]byte(strings.Repeat("x", 5000)), name},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c, other := s.Dir("/locks/a"), s.Client(), s.Stranger()
				node := dir + "/" + name
				_, err := other.Create(s.Context(), node, data.data, session.Ephemeral,
					session.WorldACL())
				require.NoError(s, err)
				require.NoError(s, s.Server.SetSequence(dir, 1))
				ctx, cancel := context.WithTimeout(s.Context(), 2*time.Second)
				defer cancel()
				_, _, err = c.Mutex(dir).Lock(ctx)
				require.ErrorIs(s, err, context.DeadlineExceeded)
				require.ErrorContains(s, err, "2nd in line behind "+data.named)
				_, _, err = c.Mutex(dir).TryLock(s.Context())
				require.ErrorIs(s, err, zklock.ErrBusy)
				next := locktest.Go(s.Context(), c.Mutex(dir).Lock)
				require.False(s, next.Over())
				require.NoError(s, other.Delete(s.Context(), node, -1))
				s.Owned(c, next.Get(s))
			})
		})
	}
}

// scenario 3, second half: whenever the directory is listed, other znodes with our id are deleted.
func TestScenario3_AStrayWithOurIDIsSweptAwayWhenTheDirectoryIsListed(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c, other := s.Dir("/locks/a"), s.Client(), s.Client()
		first := s.Lock(other.Mutex(dir))
		second := locktest.Go(s.Context(), other.Mutex(dir).Lock)
		require.False(s, second.Over())
		third := locktest.Go(s.Context(), c.Mutex(dir).Lock)
		require.False(s, third.Over())
		time.Sleep(time.Second)
		names := c.Created()
		require.Len(s, names, 1)
		stray := dir + "/" + names[0] + "0000000077"
		z, err := c.Session(s.Context())
		require.NoError(s, err)
		// as a late create would be
		_, err = z.Create(s.Context(), stray, nil, session.Ephemeral, session.WorldACL())
		require.NoError(s, err)
		bystander := dir + "/_c_00000000-0000-4000-8000-000000000000-lock-0000000078"
		require.NoError(s, s.Server.Create(bystander, nil))

		// now the third lists again
		require.NoError(s, s.Server.Delete(dir+"/"+locktest.Contenders(s.Server.Children(dir))[1]))
		s.Until(time.Second, "the stray is gone", func() bool {
			_, ok := s.Server.Node(stray)
			return !ok
		})
		require.Contains(s, s.Server.Nodes(), bystander, "nobody else's is touched")
		require.NoError(s, s.Server.Delete(bystander))
		s.Unlock(first)
		s.Unlock(third.Get(s))
		s.Unlock(second.Get(s))
	})
}

// scenario 4, within one call: a znode whose name begins with our id, but which another session
// owns, is not adopted.
func TestScenario4_ANodeWithOurIDThatAnotherSessionOwnsIsNotAdopted(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c, other := s.Dir("/locks/a"), s.Client(), s.Stranger()
		lost := s.Server.Inject(fault.CloseAfter().Op(fault.OpCreate).Path("/locks/a/*").Once())
		refused := s.Server.Inject(fault.Refuse())
		call := locktest.Go(s.Context(), c.Mutex(dir).Lock)
		<-lost.Hit()
		synctest.Wait()
		node := dir + "/" + s.Server.Children(dir)[0]
		require.NoError(s, s.Server.Delete(node))
		s.Plant(other, node)
		refused.Remove()
		s.Until(3*time.Second, "a place of its own", func() bool {
			return len(s.Server.Children(dir)) == 2
		})
		time.Sleep(time.Minute)
		require.False(s, call.Over(), "the other's place comes first")
		require.Contains(s, s.Server.Nodes(), node, "and is nobody's to delete but its owner's")
		require.NoError(s, other.Delete(s.Context(), node, -1))
		h := call.Get(s)
		require.NotEqual(s, node, h.Node())
		s.Owned(c, h)
	})
}
