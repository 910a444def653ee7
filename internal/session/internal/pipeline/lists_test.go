package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

func TestAPathThatHasNotBeenReadIsReadByOneRequestAtATime(t *testing.T) {
	p := newPipeline()
	add(p, list("/d"), list("/d"), list("/d"))
	first := written(t, p)
	require.Len(t, first, 1)
	reply(t, p, first[0], wire.CodeOK, make([]byte, 100))
	require.Len(t, written(t, p), 2, "its replies are short")
}

func TestLongRepliesAreAskedForOneAtATime(t *testing.T) {
	p := newPipeline()
	long := make([]byte, 100<<10)
	for _, path := range []string{"/a", "/b"} {
		p.Add(list(path))
		reply(t, p, written(t, p)[0], wire.CodeOK, long)
	}
	short := read("/a")
	add(p, list("/a"), list("/b"), short)
	first := written(t, p)
	require.Len(t, first, 1)
	reply(t, p, first[0], wire.CodeOK, long)
	require.Len(t, written(t, p), 2)
}

func TestListsOfDifferentCallsThatWaitTogetherAreReadTogether(t *testing.T) {
	p := newPipeline()
	paths := []string{"/a", "/b", "/c"}
	shared := func() (all []*pipeline.Request) {
		for _, path := range paths {
			r := list(path)
			r.Share()
			all = append(all, r)
		}
		return all
	}
	first := shared()
	add(p, first...)
	all := written(t, p)
	require.Len(t, all, 1)
	require.Equal(t, wire.OpMultiRead, all[0].op)
	names := wire.AppendStrings(nil, []string{"n"})
	body := append(resultHeader(nil, wire.OpGetChildren, wire.CodeOK), names...)
	body = refusal(body, wire.CodeNoNode)
	body = append(resultHeader(body, wire.OpGetChildren, wire.CodeOK), names...)
	reply(t, p, all[0], wire.CodeOK, wire.AppendMultiHeader(body, wire.OpError, true))
	requireEnded(t, first)
	require.EqualValues(t, wire.CodeOK, first[0].Header.Code)
	require.EqualValues(t, wire.CodeNoNode, first[1].Header.Code)
	require.Equal(t, append(names, make([]byte, wire.StatLen)...), first[2].Body)
}
