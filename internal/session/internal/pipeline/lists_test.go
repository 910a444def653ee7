package pipeline_test

import (
	"fmt"
	"strings"
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
	first := []*pipeline.Request{shared("/a"), shared("/b"), shared("/c")}
	add(p, first...)
	all := written(t, p)
	requireOps(t, all, wire.OpMultiRead)
	names := wire.AppendStrings(nil, []string{"n"})
	body := append(resultHeader(nil, wire.OpGetChildren, wire.CodeOK), names...)
	body = refusal(body, wire.CodeNoNode)
	body = append(resultHeader(body, wire.OpGetChildren, wire.CodeOK), names...)
	reply(t, p, all[0], wire.CodeOK, wire.AppendMultiHeader(body, wire.OpError, true))
	requireEnded(t, first)
	require.EqualValues(t, wire.CodeOK, first[0].Header.Code)
	require.EqualValues(t, wire.CodeNoNode, first[1].Header.Code)
	require.Equal(t, string(names)+strings.Repeat("\x00", wire.StatLen), first[2].Body)
}

// shared returns a list of path that may be read together with others.
func shared(path string) *pipeline.Request {
	r := list(path)
	r.Share()
	return r
}

// listings returns the body of the reply to a multiRead whose lists have these names.
func listings(lists ...[]string) (body []byte) {
	for _, names := range lists {
		body = append(body, resultHeader(nil, wire.OpGetChildren, wire.CodeOK)...)
		body = wire.AppendStrings(body, names)
	}
	return wire.AppendMultiHeader(body, wire.OpError, true)
}

func TestAListThatWasLongIsNotReadTogetherWithOthers(t *testing.T) {
	p := newPipeline()
	add(p, shared("/a"), shared("/long"), shared("/c"))
	long, short := []string{strings.Repeat("n", 17<<10)}, []string{"n"}
	reply(t, p, written(t, p)[0], wire.CodeOK, listings(short, long, short))

	add(p, shared("/a"), shared("/c"), shared("/long"))
	all := written(t, p)
	requireOps(t, all, wire.OpMultiRead, wire.OpGetChildren2)
	require.NotContains(t, string(all[0].body), "/long")
}

// A multiRead's reply was too long to be kept. Each list is sent again alone, and nothing is known
// of how long its reply is.
func TestListsWhoseReplyTogetherIsTooLongAreSentAgainAlone(t *testing.T) {
	p := newPipeline()
	lists := []*pipeline.Request{shared("/a"), shared("/b"), shared("/c")}
	add(p, lists...)
	multiRead := take(t, p, written(t, p)[0], wire.MaxFrame+1)
	parts, err := pipeline.Split(multiRead, pipeline.Reply{Size: wire.MaxFrame + 1})
	require.NoError(t, err, "the connection is as good as before")
	p.Learn(multiRead, parts)
	for _, part := range parts {
		part.Deliver()
	}
	resend, failed, trouble := pipeline.SortOut(lists)
	require.Equal(t, lists, resend)
	require.Nil(t, failed)
	require.NoError(t, trouble)

	add(p, append(resend, list("/a"))...)
	requireOps(t, written(t, p), wire.OpGetChildren2, wire.OpGetChildren2, wire.OpGetChildren2)
	requireWaiting(t, p, 1, 3) // the second list of /a waits until the first one's length is known
}

func TestAProgramsOwnListIsReadTogetherWithNoOther(t *testing.T) {
	p := newPipeline()
	add(p, shared("/a"), list("/own"))
	requireOps(t, written(t, p), wire.OpGetChildren2, wire.OpGetChildren2)
}

func TestListsThatAreReadTogetherHaveAtMost32KB(t *testing.T) {
	p := newPipeline()
	for i := range 20 {
		p.Add(shared(fmt.Sprintf("/%d-%s", i, strings.Repeat("x", 4<<10))))
	}
	all := written(t, p)
	requireOps(t, all, wire.OpMultiRead, wire.OpMultiRead, wire.OpMultiRead) // seven, seven and six
	requireNoLonger(t, all, 32<<10)
}

func TestAtMostAHundredListsAreReadTogether(t *testing.T) {
	p := newPipeline()
	for i := range 101 {
		p.Add(shared(fmt.Sprint("/", i)))
	}
	requireOps(t, written(t, p), wire.OpMultiRead, wire.OpGetChildren2)
}
