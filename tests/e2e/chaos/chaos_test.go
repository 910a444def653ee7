package chaos_test

import (
	"net/rpc"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/e2e/chaos"
	"github.com/zklock/locker/tests/e2e/servers"
	"github.com/zklock/locker/zktest"
)

func TestTheWitnessNoticesThatAnEnsembleHasLostWrites(t *testing.T) {
	const node = "/round/witness-1"
	for name, goBack := range map[string]func(*session.Session) error{
		"not at all": func(*session.Session) error { return nil },
		"to a znode with fewer writes": func(s *session.Session) error {
			_, err := s.Multi(t.Context(), session.OpDelete{Path: node, Version: -1},
				session.OpCreate{Path: node, ACL: session.WorldACL()})
			return err
		},
		"to no znode": func(s *session.Session) error { return s.Delete(t.Context(), node, -1) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := zktest.Run(t)
			s, err := session.Open(t.Context(), srv.Addr(), session.Config{})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			_, err = s.Create(t.Context(), "/round", nil, session.Persistent, session.WorldACL())
			require.NoError(t, err)
			finish := chaos.Witness(&servers.Ensemble{Addrs: []string{srv.Addr()},
				Tick: time.Second}, "/round")
			written := func() bool {
				stat, err := s.Exists(t.Context(), node)
				return err == nil && stat.Version > 5
			}
			require.Eventually(t, written, time.Minute, 10*time.Millisecond)
			require.NoError(t, goBack(s))
			require.Eventually(t, written, time.Minute, 10*time.Millisecond)
			found := finish()
			if name == "not at all" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Contains(t, found[0], node)
		})
	}
}

func TestStoreRefusesAnOlderTokenWhereItIsFenced(t *testing.T) {
	s, addr, closeStore, err := chaos.OpenStore()
	require.NoError(t, err)
	client, err := rpc.Dial("tcp", addr)
	require.NoError(t, err)
	do := func(a chaos.Access) (answer chaos.Answer) {
		require.NoError(t, client.Call("Store.Do", a, &answer))
		return answer
	}
	write := func(fenced bool, token int64, value string) chaos.Answer {
		return do(chaos.Access{Register: value[:1], Fenced: fenced, Token: token, Write: true,
			Value: value})
	}
	require.Equal(t, chaos.Answer{Seq: 1}, write(true, 7, "f1"))
	require.Equal(t, chaos.Answer{Refused: true}, write(true, 6, "f2"))
	require.Equal(t, chaos.Answer{Seq: 2}, write(true, 7, "f3"))
	require.Equal(t, chaos.Answer{Value: "f3"},
		do(chaos.Access{Register: "f", Fenced: true, Token: 9}))
	require.Equal(t, chaos.Answer{Refused: true}, write(true, 8, "f4"),
		"somebody with a greater token has read it")
	require.Equal(t, chaos.Answer{Seq: 1}, write(false, 7, "u1"))
	require.Equal(t, chaos.Answer{Seq: 2}, write(false, 6, "u2"))
	require.Equal(t, chaos.Answer{Value: "u2"}, s.Do(chaos.Access{Register: "u"}))
	require.NoError(t, closeStore())
	require.NoError(t, client.Close())
}
