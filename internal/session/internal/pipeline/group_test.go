package pipeline_test

import (
	"bytes"
	"fmt"
	"strings"
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
	// The second one of a directory, and a write of the program, go alone.
	requireOps(t, all, wire.OpMulti, wire.OpCreate, wire.OpSetData)

	reply(t, p, all[0], wire.CodeOK, results(0, 0))
	requireEnded(t, []*pipeline.Request{a, b}, sameDir)
	made := string(wire.AppendString(nil, "/made"))
	require.Equal(t, made, a.Body, "as if it had been sent alone")
}

// A write that is in no group is overtaken by none that depends on it either.
func TestAGroupDoesNotOvertakeAProgramsOwnWriteInTheSameDirectory(t *testing.T) {
	p := newPipeline()
	own := pipeline.NewRequest(wire.OpCreate, "create", "/b/own")
	own.AddTouch(own.Path, pipeline.Makes)
	add(p, contend("/a"), own, contend("/b"), contend("/c"))
	all := written(t, p)
	requireOps(t, all, wire.OpMulti, wire.OpCreate, wire.OpCreate)
	require.NotContains(t, string(all[0].body), "/b/", "with /a and /c")
	require.Contains(t, string(all[2].body), "/b/n-")
}

func TestOneRefusalOfAGroupIsForOneCallAndTheOthersSendAgain(t *testing.T) {
	p := newPipeline()
	a, b, c := contend("/a"), contend("/b"), contend("/c")
	add(p, a, b, c)
	group := written(t, p)
	require.Len(t, group, 1)
	body := results(wire.CodeInconsistent, wire.CodeNoNode, wire.CodeInconsistent)
	reply(t, p, group[0], wire.CodeOK, body)

	require.NoError(t, b.Err())
	require.EqualValues(t, wire.CodeNoNode, b.Header.Code)
	resend, failed, _ := pipeline.SortOut([]*pipeline.Request{a, c})
	require.Equal(t, []*pipeline.Request{a, c}, resend)
	require.Nil(t, failed)
}

// A directory was missing. From now on creates that may meet the same are grouped only with each
// other, until sixteen groups have been carried out.
func TestAfterAMissingDirectoryUntriedCreatesKeepApart(t *testing.T) {
	p := newPipeline()
	tried := []*pipeline.Request{contend("/tried-1"), contend("/tried-2"), contend("/tried-3")}
	add(p, append(tried, contend("/missing"))...)
	const no, with = wire.CodeNoNode, wire.CodeInconsistent
	reply(t, p, written(t, p)[0], wire.CodeOK, results(with, with, with, no))
	tried, _, _ = pipeline.SortOut(tried)
	require.Len(t, tried, 3)
	carryOut := func(groups int) {
		for range groups {
			add(p, contend("/x"), contend("/y"))
			reply(t, p, written(t, p)[0], wire.CodeOK, results(0, 0))
		}
	}

	add(p, tried[0], contend("/new-1"), contend("/new-2"))
	all := written(t, p)
	requireOps(t, all, wire.OpCreate, wire.OpMulti)
	reply(t, p, all[0], wire.CodeOK, wire.AppendString(nil, "/made"))
	reply(t, p, all[1], wire.CodeOK, results(0, 0)) // the first group

	carryOut(14)
	add(p, tried[1], contend("/new"))
	all = written(t, p)
	requireOps(t, all, wire.OpCreate, wire.OpCreate) // fifteen groups have been carried out
	reply(t, p, all[0], wire.CodeOK, wire.AppendString(nil, "/made"))
	reply(t, p, all[1], wire.CodeOK, wire.AppendString(nil, "/made"))

	carryOut(1)
	add(p, tried[2], contend("/new"))
	requireOps(t, written(t, p), wire.OpMulti)
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

func TestAMemberThatWasWrittenWithItsGroupMayBeDoneWhenItsCallGivesUp(t *testing.T) {
	p := newPipeline()
	a, b := contend("/a"), contend("/b")
	add(p, a, b)
	requireOps(t, written(t, p), wire.OpMulti)
	p.Withdraw([]*pipeline.Request{a})
	require.True(t, a.MayBeDone())
	requireWaiting(t, p, 0, 1)
}

// A reply says that each operation of a group was undone because of another, and names none that
// was refused.
func TestAGroupThatWasUndoneForNoReasonIsNotBelieved(t *testing.T) {
	p := newPipeline()
	add(p, contend("/a"), contend("/b"), contend("/c"))
	const with = wire.CodeInconsistent
	body := results(with, with, with)
	group := take(t, p, written(t, p)[0], wire.ReplyHeaderLen+len(body))
	parts, err := pipeline.Split(group, pipeline.Reply{Body: string(body)})
	require.ErrorIs(t, err, failure.ErrGarbled)
	require.Empty(t, parts)
}

func TestAThrottledGroupIsSentAgainAfterAPause(t *testing.T) {
	for name, answer := range map[string]struct {
		code int32
		body []byte
	}{
		"as a whole":    {wire.CodeThrottled, nil},
		"one operation": {wire.CodeOK, results(wire.CodeThrottled, wire.CodeInconsistent)},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPipeline()
			members := []*pipeline.Request{contend("/a"), contend("/b")}
			add(p, members...)
			reply(t, p, written(t, p)[0], answer.code, answer.body)
			for _, r := range members {
				resend, failed, trouble := pipeline.SortOut([]*pipeline.Request{r})
				require.Equal(t, []*pipeline.Request{r}, resend)
				require.Nil(t, failed)
				require.Equal(t, failure.Of(wire.CodeThrottled), trouble, "its call pauses")
			}
		})
	}
}

func TestAProgramsOwnWriteIsInNoGroupAlsoWhenItIsSentAgain(t *testing.T) {
	p := newPipeline()
	own := write("/own", 10)
	p.Add(own)
	take(t, p, written(t, p)[0], wire.ReplyHeaderLen).FailForResend(failure.ErrNotSent)
	resend, _, _ := pipeline.SortOut([]*pipeline.Request{own})
	require.Equal(t, []*pipeline.Request{own}, resend)
	add(p, own, contend("/a"))
	requireOps(t, written(t, p), wire.OpSetData, wire.OpCreate)
}

func TestRequestsThatAreSentTogetherAreNoLongerThanTheServersAccept(t *testing.T) {
	const limit = 400
	for name, request := range map[string]func(dir string) *pipeline.Request{
		"creates": contend,
		"lists": func(dir string) *pipeline.Request {
			r := list(dir)
			r.Share()
			return r
		},
	} {
		for length := 1; length < limit-60; length++ { // one of them fits
			p := pipeline.New(new(pipeline.Numbers), limit)
			dir := strings.Repeat("x", length)
			add(p, request("/a"+dir), request("/b"+dir), request("/c"+dir))
			frames := written(t, p)
			for _, f := range frames {
				require.LessOrEqual(t, 8+len(f.body), limit,
					"%s of %d bytes: length field not counted", name, length)
			}
			if length < 50 {
				require.Len(t, frames, 1, "%s of %d bytes", name, length)
			}
		}
	}
}

func TestAGroupHasAtMost32KB(t *testing.T) {
	p := newPipeline()
	for i := range 20 {
		p.Add(contend(fmt.Sprintf("/%d-%s", i, strings.Repeat("x", 4<<10))))
	}
	all := written(t, p)
	requireOps(t, all, wire.OpMulti, wire.OpMulti, wire.OpMulti) // of seven, seven and six creates
	requireNoLonger(t, all, 32<<10)
}

func TestAGroupHasAtMostAHundredOperations(t *testing.T) {
	p := newPipeline()
	for i := range 40 {
		dir := fmt.Sprint("/x-", i)
		p.Add(transact(dir+"/a", dir+"/b", dir+"/c"))
	}
	all := written(t, p)
	requireOps(t, all, wire.OpMulti, wire.OpMulti)
	require.Equal(t, 3*33, bytes.Count(all[0].body, []byte("/x-")))
	require.Equal(t, 3*7, bytes.Count(all[1].body, []byte("/x-")))
}

// transact returns a transaction that deletes znodes, and may be a member of a group.
func transact(paths ...string) *pipeline.Request {
	r := pipeline.NewRequest(wire.OpMulti, "multi", paths[0])
	for _, path := range paths {
		r.Frame = wire.AppendString(wire.AppendMultiHeader(r.Frame, wire.OpDelete, false), path)
		r.Frame = wire.AppendInt(r.Frame, -1)
		r.Touches = append(r.Touches, pipeline.Touch{Path: path, Effect: pipeline.Deletes})
	}
	r.Frame = wire.AppendMultiHeader(r.Frame, -1, true)
	r.Share()
	return r
}

// requireNoLonger requires that no frame has more bytes than limit, its length not counted.
func requireNoLonger(t *testing.T, all []frame, limit int) {
	t.Helper()
	for i, f := range all {
		require.LessOrEqual(t, 4+4+len(f.body), limit, "frame %d", i)
	}
}

// Whatever a server answers to a transaction of several calls: each call is completed once, or none
// is and the connection is given up.
func FuzzSplit(f *testing.F) {
	f.Add(int32(0), results(0, 0, 0), false)
	f.Add(int32(0), results(wire.CodeInconsistent, wire.CodeNoNode, wire.CodeInconsistent), false)
	const with = wire.CodeInconsistent
	f.Add(int32(0), results(with, with, with), false)
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
				r = shared(fmt.Sprint("/", i))
			}
			members = append(members, r)
		}
		add(p, members...)
		all := written(t, p)
		require.Len(t, all, 1)
		size := wire.ReplyHeaderLen + len(body)
		several, err := p.Take(all[0].xid, size, now)
		require.NoError(t, err)
		header := wire.ReplyHeader{Code: code}
		answer := pipeline.Reply{Header: header, Body: string(body), Size: size}
		parts, err := pipeline.Split(several, answer)
		if err != nil {
			require.ErrorIs(t, err, failure.ErrGarbled)
			require.Empty(t, parts)
			return
		}
		require.Len(t, parts, len(members))
		p.Learn(several, parts)
		for i, part := range parts {
			require.Same(t, members[i], part.Request)
			part.Deliver()
		}
		requireEnded(t, members)
	})
}
