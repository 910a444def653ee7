package session_test

import (
	"bytes"
	"encoding/binary"
	"math"
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
		"nil": nil, "empty": {}, "zero": {0}, "text": []byte("hello"), "large": bytes.Repeat([]byte{0xa5}, 1<<20-2000),
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
		Czxid: got.Czxid, Mzxid: got.Mzxid, Ctime: got.Ctime, Mtime: got.Mtime, Version: got.Version, Cversion: got.Cversion,
		Aversion: got.Aversion, EphemeralOwner: got.EphemeralOwner, DataLength: got.DataLength, NumChildren: got.NumChildren, Pzxid: got.Pzxid,
	})
}

func TestTheHandshakeIsCheckedBeforeItIsBelieved(t *testing.T) {
	build := func(version, timeout uint32, id uint64, passwd int, rest ...byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, version)
		b = binary.BigEndian.AppendUint32(b, timeout)
		b = binary.BigEndian.AppendUint64(b, id)
		b = binary.BigEndian.AppendUint32(b, uint32(int32(passwd)))
		return append(append(b, make([]byte, max(0, passwd))...), rest...)
	}
	timeout, id, err := session.ReadConnectResponse(build(0, 4000, 77, 16, 0))
	require.NoError(t, err)
	require.EqualValues(t, 4000, timeout)
	require.EqualValues(t, 77, id)
	_, _, err = session.ReadConnectResponse(build(0, 4000, 77, 16)) // without the flag, for a client that sends none
	require.NoError(t, err)
	_, id, err = session.ReadConnectResponse(build(0, 0, 0, 16, 0)) // expired
	require.NoError(t, err)
	require.Zero(t, id)
	for name, b := range map[string][]byte{
		"version":          build(1, 4000, 77, 16, 0),
		"timeout 0":        build(0, 0, 77, 16, 0),
		"timeout negative": build(0, math.MaxUint32, 77, 16, 0),
		"no password":      build(0, 4000, 77, 0, 0),
		"null password":    build(0, 4000, 77, -1, 0),
		"short password":   build(0, 4000, 77, 15, 0),
		"long password":    build(0, 4000, 77, 17, 0),
		"trailing bytes":   build(0, 4000, 77, 16, 0, 0),
		"empty":            nil,
		"cut":              build(0, 4000, 77, 16)[:20],
		"password cut":     build(0, 4000, 77, 16)[:30],
		"huge password":    build(0, 4000, 77, -2),
	} {
		_, _, err := session.ReadConnectResponse(b)
		require.Error(t, err, name)
	}
}
