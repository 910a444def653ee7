package pipeline_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// results returns the body of the reply to a multi whose operations, all creates, have these codes.
func results(codes ...int32) (body []byte) {
	for _, code := range codes {
		if code == wire.CodeOK {
			body = wire.AppendString(resultHeader(body, wire.OpCreate, code), "/made")
		} else {
			body = refusal(body, code)
		}
	}
	return wire.AppendMultiHeader(body, wire.OpError, true)
}

func resultHeader(body []byte, op, code int32) []byte {
	return wire.AppendInt(wire.AppendBool(wire.AppendInt(body, op), false), code)
}

func refusal(body []byte, code int32) []byte {
	return wire.AppendInt(resultHeader(body, wire.OpError, code), code)
}

func TestIndependentWritesThatWaitTogetherLeaveAsOneTransaction(t *testing.T) {
	p := newPipeline()
	a, b, sameDir, ownMulti := contend("/a"), contend("/b"), contend("/a"), write("/c", 10)
	add(p, a, b, sameDir, ownMulti)
	all := written(t, p)
	require.Len(t, all, 3, "the second one of a directory, and a write of the program, go alone")
	require.Equal(t, []int32{wire.OpMulti, wire.OpCreate, wire.OpSetData}, []int32{all[0].op, all[1].op, all[2].op})

	reply(t, p, all[0], wire.CodeOK, results(0, 0))
	requireEnded(t, []*pipeline.Request{a, b}, sameDir)
	require.Equal(t, wire.AppendString(nil, "/made"), a.Body, "as if it had been sent alone")
}

func TestOneRefusalOfAGroupIsForOneCallAndTheOthersSendAgain(t *testing.T) {
	p := newPipeline()
	a, b, c := contend("/a"), contend("/b"), contend("/c")
	add(p, a, b, c)
	group := written(t, p)
	require.Len(t, group, 1)
	reply(t, p, group[0], wire.CodeOK, results(wire.CodeInconsistent, wire.CodeNoNode, wire.CodeInconsistent))

	require.NoError(t, b.Err())
	require.EqualValues(t, wire.CodeNoNode, b.Header.Code)
	resend, failed, _ := pipeline.SortOut([]*pipeline.Request{a, c})
	require.Equal(t, []*pipeline.Request{a, c}, resend)
	require.Nil(t, failed)
}

// A directory was missing. From now on creates that may meet the same are grouped only with each
// other, until some groups have been carried out.
func TestAfterAMissingDirectoryUntriedCreatesKeepApart(t *testing.T) {
	p := newPipeline()
	tried := contend("/tried")
	add(p, contend("/missing"), tried)
	reply(t, p, written(t, p)[0], wire.CodeOK, results(wire.CodeNoNode, wire.CodeInconsistent))
	resend, _, _ := pipeline.SortOut([]*pipeline.Request{tried})

	add(p, resend[0], contend("/new-1"), contend("/new-2"))
	all := written(t, p)
	require.Len(t, all, 2)
	require.Equal(t, []int32{wire.OpCreate, wire.OpMulti}, []int32{all[0].op, all[1].op})
	reply(t, p, all[0], wire.CodeOK, wire.AppendString(nil, "/made"))
	reply(t, p, all[1], wire.CodeOK, results(0, 0))
	for range 15 {
		add(p, contend("/x"), contend("/y"))
		reply(t, p, written(t, p)[0], wire.CodeOK, results(0, 0))
	}

	refused := contend("/again")
	add(p, refused, contend("/z"))
	reply(t, p, written(t, p)[0], wire.CodeOK, results(-4, wire.CodeInconsistent))
	tried = contend("/tried")
	add(p, tried, contend("/z"))
	require.Len(t, written(t, p), 1, "quarantine is over")
}

func TestAWriteThatWasRefusedWithOthersThreeTimesIsSentAlone(t *testing.T) {
	p := newPipeline()
	unlucky := contend("/unlucky")
	for i := range 3 {
		add(p, contend(fmt.Sprint("/other-", i)), unlucky)
		all := written(t, p)
		require.Len(t, all, 1, "attempt %d", i)
		reply(t, p, all[0], wire.CodeOK, results(wire.CodeNoAuth, wire.CodeInconsistent))
		resend, _, _ := pipeline.SortOut([]*pipeline.Request{unlucky})
		require.Len(t, resend, 1)
	}
	add(p, contend("/other"), unlucky)
	require.Len(t, written(t, p), 2)
}

// Whatever a server answers to a transaction of several calls: each call is completed once, or none
// is and the connection is given up.
func FuzzSplit(f *testing.F) {
	f.Add(int32(0), results(0, 0, 0), false)
	f.Add(int32(0), results(wire.CodeInconsistent, wire.CodeNoNode, wire.CodeInconsistent), false)
	f.Add(int32(0), results(wire.CodeInconsistent, wire.CodeInconsistent, wire.CodeInconsistent), false)
	f.Add(int32(0), results(-1, 0, 0), false)
	f.Add(wire.CodeNoNode, []byte(nil), true)
	f.Add(wire.CodeThrottled, []byte(nil), true)
	f.Add(int32(0), []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0}, true)
	f.Fuzz(func(t *testing.T, code int32, body []byte, lists bool) {
		p := newPipeline()
		var members []*pipeline.Request
		for i := range 3 {
			r := contend(fmt.Sprint("/", i))
			if lists {
				r = list(fmt.Sprint("/", i))
				r.Share()
			}
			members = append(members, r)
		}
		add(p, members...)
		all := written(t, p)
		require.Len(t, all, 1)
		size := wire.ReplyHeaderLen + len(body)
		shared, err := p.Take(all[0].xid, size, now)
		require.NoError(t, err)
		parts, err := pipeline.Split(shared, pipeline.Reply{Header: wire.ReplyHeader{Code: code}, Body: body, Size: size})
		if err != nil {
			require.ErrorIs(t, err, failure.ErrGarbled)
			require.Empty(t, parts)
			return
		}
		require.Len(t, parts, len(members))
		p.Learn(shared, parts)
		for i, part := range parts {
			require.Same(t, members[i], part.Request)
			part.Deliver()
		}
		requireEnded(t, members)
	})
}
