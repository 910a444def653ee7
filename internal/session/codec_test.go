package session_test

import (
	"bytes"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
)

// zktest has an independent codec: it decodes what this package encodes, and the other way round.

func TestEveryFieldOfAZnodeCrossesTheWireUnchanged(t *testing.T) {
	srv := zktest.Run(t)
	s := open(t, srv)
	ctx := within(t, soon)
	for name, data := range map[string][]byte{
		"nil": nil, "empty": {}, "zero": {0}, "text": []byte("hello"),
		"large": bytes.Repeat([]byte{0xa5}, 1<<20-2000),
		"bytes": {0xff, 0xfe, 0x00, 0x80},
	} {
		made, err := s.Create(ctx, "/"+name, data, session.Persistent, session.WorldACL())
		require.NoError(t, err, name)
		require.Equal(t, "/"+name, made.Path)
		there, ok := srv.Node("/" + name)
		require.True(t, ok)
		require.Equal(t, data, there.Data, name)
		require.Equal(t, there.Stat.Czxid, made.Czxid, "the reply's header carries the czxid")

		got, stat, err := s.Get(ctx, "/"+name)
		require.NoError(t, err)
		require.Equal(t, data, got, "%s: nil and empty are told apart", name)
		requireStat(t, there.Stat, stat)

		stat, err = s.Set(ctx, "/"+name, []byte("new"), 0)
		require.NoError(t, err)
		there, _ = srv.Node("/" + name)
		requireStat(t, there.Stat, stat)
		require.EqualValues(t, 1, stat.Version)
	}
}

// requireStat compares the Stats that the two codecs have decoded, field by field.
func requireStat(t testing.TB, want zktest.Stat, got zk.Stat) {
	t.Helper()
	require.Equal(t, want, zktest.Stat{
		Czxid: got.Czxid, Mzxid: got.Mzxid, Ctime: got.Ctime, Mtime: got.Mtime,
		Version: got.Version, Cversion: got.Cversion,
		Aversion: got.Aversion, EphemeralOwner: got.EphemeralOwner, DataLength: got.DataLength,
		NumChildren: got.NumChildren, Pzxid: got.Pzxid,
	})
}
