package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestSessionExpiresAtTheFirstFullTickAfterItsTimeout(t *testing.T) {
	for _, at := range []time.Duration{0, 1, 500, 1999, 2000, 2001, 3999} {
		// ms after the server's start
		bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
			born := time.Now()
			time.Sleep(at * time.Millisecond)
			c.do(t, "a connect t=5000")
			c.ok(t, "a create /e m=e")
			const tick = 2 * time.Second
			due := ((at*time.Millisecond+5*time.Second)/tick + 1) * tick
			time.Sleep(due - time.Since(born) - 1)
			synctest.Wait()
			assert.True(t, exists(s, "/e"), "at %v", at)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			assert.False(t, exists(s, "/e"), "at %v", at)
			assert.Equal(t, "a eof: closed", c.do(t, "a eof"))
		})
	}
}

func TestASessionsEphemeralsAreDeletedWithItInOneTransaction(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a create /e1 m=e", "a create /e2 m=e", "a create /p", "a create /p/e3 m=e",
			"b ls / w", "b ls /p w")
		id, z := c.sessions["a"].id, s.Zxid()
		require.NoError(t, s.Expire(id))
		assert.Equal(t, z+1, s.Zxid())
		got := c.do(t, "b ping")
		assert.Contains(t, got, "b ! 4 3 / ")
		assert.Contains(t, got, "b ! 4 3 /p ")
		root, _ := s.Node("/")
		assert.Equal(t, z+1, root.Stat.Pzxid)
		assert.False(t, exists(s, "/p/e3"))
		require.ErrorIs(t, s.Expire(id), fault.CodeUnknownSession)
	})
}

func TestConnectionWithoutHandshakeIsClosedAfterTenSeconds(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		nc, err := s.Dial("", "", 0)
		require.NoError(t, err)
		start := time.Now()
		_, err = nc.Read(make([]byte, 1))
		require.ErrorContains(t, err, "EOF")
		assert.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestTheSessionTimeoutIsWithinItsBoundsAndCountedInTicks(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		assert.Contains(t, c.do(t, "a connect t=1"), "timeout=50 ")
		assert.Contains(t, c.do(t, "b connect t=999999"), "timeout=60000 ")
		time.Sleep(61 * time.Millisecond)
		synctest.Wait()
		assert.Len(t, s.Sessions(), 1)
	}, zktest.WithTick(10*time.Millisecond),
		zktest.WithSessionTimeouts(50*time.Millisecond, time.Minute))
}

func TestImpossibleOptionsAreRefused(t *testing.T) {
	for name, o := range map[string]zktest.Option{
		"tick":             zktest.WithTick(0),
		"packet limit":     zktest.WithJuteMaxBuffer(1),
		"sweep interval":   zktest.WithSweepInterval(0),
		"session timeouts": zktest.WithSessionTimeouts(2, 1),
		"logger":           zktest.WithLogger(nil),
	} {
		_, err := zktest.Start(o)
		require.Error(t, err, name)
	}
}

func TestContainersAndTTLNodesAreDeletedWhenTheirTimeIsUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a createc /c m=c", "a createc /unused m=c", "a create /c/x",
			"a createttl /t m=t ttl=90000", "a delete /c/x")
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }

		// The server looks once a minute: /c is due at the first look, and /t at the second.
		pass(59 * time.Second)
		assert.True(t, exists(s, "/c"))
		pass(2 * time.Second)
		assert.False(t, exists(s, "/c"))
		assert.True(t, exists(s, "/unused"), "a container that never had a child stays")
		pass(58 * time.Second)
		assert.True(t, exists(s, "/t"), "its time is up, and the server has not looked")
		pass(2 * time.Second)
		assert.False(t, exists(s, "/t"))
	})
}

func TestNoSessionExpiresWhileThereIsNoLeader(t *testing.T) {
	for name, outage := range map[string]func(s *zktest.Server) (end func()){
		"all members are down": func(s *zktest.Server) func() {
			s.Leader().Down()
			return s.Leader().Up
		},
		"a member is added when all are down": func(s *zktest.Server) func() {
			s.Leader().Down()
			return func() {
				_, err := s.Follower()
				require.NoError(t, err)
			}
		},
		"the clock is stopped": func(s *zktest.Server) func() {
			s.StopClock()
			return s.StartClock
		},
	} {
		bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
			c.do(t, "a connect t=5000")
			c.ok(t, "a createc /c m=c", "a create /c/x", "a delete /c/x", "a create /e m=e")
			end := outage(s)
			time.Sleep(time.Hour)
			synctest.Wait()
			assert.True(t, exists(s, "/e"), name)
			assert.True(t, exists(s, "/c"), name)
			end()
			time.Sleep(4900 * time.Millisecond)
			synctest.Wait()
			assert.True(t, exists(s, "/e"), "%s: it has its whole timeout again", name)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			assert.False(t, exists(s, "/e"), name)
			assert.False(t, exists(s, "/c"), name)
		})
	}
}

func TestTheEnsembleFailsWhenASessionEndsWithMoreEphemeralsThanATransactionCanList(t *testing.T) {
	for name, k := range map[string]struct {
		ephemerals int
		end        string
		fails      bool
	}{
		// 4 + 64 × (4 + 27) bytes: just below 2 × 1000, which is all that servers read
		"just not": {64, "a close", false},
		"closed":   {65, "a close", true},
		"expired":  {65, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := zktest.Start(zktest.WithoutListener(), zktest.WithJuteMaxBuffer(1000))
				require.NoError(t, err)
				defer func() { require.NoError(t, s.Close()) }()
				follower, err := s.Follower()
				require.NoError(t, err)
				c := scriptOn(t, s.Dial)
				for range k.ephemerals {
					c.ok(t, "a create /ephemeral-znode- m=es")
				}
				if k.end != "" {
					_ = c.step(k.end)
				} else {
					require.NoError(t, s.Expire(s.Sessions()[0].ID))
				}
				synctest.Wait()
				if !k.fails {
					require.NoError(t, s.Failure())
					c.ok(t, "b create /later")
					return
				}
				require.ErrorContains(t, s.Failure(), "65 ephemerals, a list of 2019 bytes")
				s.Leader().Up()
				follower.Up()
				for _, m := range []*zktest.Member{s.Leader(), follower} {
					_, err := m.Dial("", "", 0)
					assert.Error(t, err)
				}
			})
		})
	}
}
