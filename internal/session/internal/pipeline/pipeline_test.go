package pipeline_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// now is the time at which everything happens, unless a test says otherwise.
var now = time.Unix(1000, 0)

const juteMaxBuffer = 1 << 20

func newPipeline() *pipeline.Pipeline {
	return pipeline.New(new(pipeline.Numbers), juteMaxBuffer)
}

// read returns a read of path whose reply is short.
func read(path string) *pipeline.Request {
	r := pipeline.NewRequest(wire.OpExists, "exists", path)
	r.Frame = wire.AppendBool(wire.AppendString(r.Frame, path), false)
	return r
}

// write returns a write of path with so many bytes.
func write(path string, bytes int) *pipeline.Request {
	r := pipeline.NewRequest(wire.OpSetData, "set", path)
	r.Frame = wire.AppendInt(wire.AppendBytes(wire.AppendString(r.Frame, path), make([]byte, bytes)), -1)
	return r
}

// list returns a list of path.
func list(path string) *pipeline.Request {
	r := pipeline.NewRequest(wire.OpGetChildren2, "list", path)
	r.Frame = wire.AppendBool(wire.AppendString(r.Frame, path), false)
	return r
}

// contend returns the create of a contender in dir, which may be a member of a group.
func contend(dir string) *pipeline.Request {
	r := pipeline.NewRequest(wire.OpCreate, "create", dir+"/n-")
	r.Frame = wire.AppendInt(wire.AppendACL(wire.AppendBytes(wire.AppendString(r.Frame, r.Path), nil), nil), 3)
	r.Touches = []pipeline.Touch{{Path: r.Path, Effect: pipeline.MakesNumbered}}
	r.Share()
	return r
}

// add adds requests.
func add(p *pipeline.Pipeline, requests ...*pipeline.Request) {
	for _, r := range requests {
		p.Add(r)
	}
}

// frame is what was written of one request.
type frame struct {
	xid, op int32
	body    []byte
}

// written returns all that may be written now, as frames.
func written(t *testing.T, p *pipeline.Pipeline) []frame {
	t.Helper()
	var all []frame
	for more := true; more; {
		var piece []byte
		piece, more = p.Next(now, nil)
		all = append(all, frames(t, piece)...)
	}
	return all
}

func frames(t *testing.T, piece []byte) (all []frame) {
	t.Helper()
	d := wire.Decoder{B: piece}
	for len(d.B) > 0 {
		f := wire.Decoder{B: d.Bytes()}
		all = append(all, frame{f.Int(), f.Int(), f.B})
		require.NoError(t, d.Err, "a piece consists of whole frames")
		require.NoError(t, f.Err)
	}
	return all
}

// reply takes the request that f's reply answers, and completes the calls that wait for it.
func reply(t *testing.T, p *pipeline.Pipeline, f frame, code int32, body []byte) {
	t.Helper()
	size := wire.ReplyHeaderLen + len(body)
	r, err := p.Take(f.xid, size, now)
	require.NoError(t, err)
	answer := pipeline.Reply{Header: wire.ReplyHeader{Xid: f.xid, Zxid: 1, Code: code}, Body: body, Size: size}
	if !r.StandsForSeveral() {
		r.Complete(answer)
		return
	}
	parts, err := pipeline.Split(r, answer)
	require.NoError(t, err)
	p.Learn(r, parts)
	for _, part := range parts {
		part.Deliver()
	}
}

// requireEnded requires that the requests have been completed, and the others not.
func requireEnded(t *testing.T, ended []*pipeline.Request, others ...*pipeline.Request) {
	t.Helper()
	for _, r := range ended {
		require.True(t, r.Ended(), "%s %s has ended", r.Name(), r.Path)
	}
	for _, r := range others {
		require.False(t, r.Ended(), "%s %s goes on", r.Name(), r.Path)
	}
}

func TestRequestsAreWrittenAndAnsweredInTheOrderInWhichTheyWereAdded(t *testing.T) {
	p := newPipeline()
	a, b, c := read("/a"), write("/b", 10), read("/c")
	add(p, a, b, c)
	all := written(t, p)
	require.Len(t, all, 3)
	require.Equal(t, []int32{wire.OpExists, wire.OpSetData, wire.OpExists}, []int32{all[0].op, all[1].op, all[2].op})
	require.NotEqual(t, all[0].xid, all[1].xid)

	reply(t, p, all[0], wire.CodeNoNode, nil)
	requireEnded(t, []*pipeline.Request{a}, b, c)
	require.NoError(t, a.Err(), "a refusal is a reply")
	require.EqualValues(t, wire.CodeNoNode, a.Header.Code)

	_, err := p.Take(all[2].xid, wire.ReplyHeaderLen, now)
	require.ErrorIs(t, err, failure.ErrGarbled, "the reply to b is due")
}

func TestRequestsOfAllConnectionsOfASessionHaveDifferentNumbers(t *testing.T) {
	var numbers pipeline.Numbers
	seen := map[int32]bool{}
	for range 3 {
		p := pipeline.New(&numbers, juteMaxBuffer)
		add(p, read("/a"), read("/b"))
		for _, f := range written(t, p) {
			require.False(t, seen[f.xid])
			seen[f.xid] = true
		}
	}
}

// A heartbeat comes between the pieces of a burst: what is on the line before it is bounded, in
// requests and in bytes.
func TestAHeartbeatOvertakesABurstOfLongRequests(t *testing.T) {
	p := newPipeline()
	for range 64 {
		p.Add(write("/x", 512<<10))
	}
	require.Len(t, written(t, p), 2, "1 MB is on its way")
	queued, pending := p.Waiting()
	require.Equal(t, []int{62, 2}, []int{queued, pending})

	p.Add(pipeline.Ping())
	all := written(t, p)
	require.Len(t, all, 1)
	require.Equal(t, wire.OpPing, all[0].op, "it does not wait for the window")
}

func TestTheWindowOpensWhenHalfOfTheRepliesHaveCome(t *testing.T) {
	p := newPipeline()
	for range 1000 {
		p.Add(read("/x"))
	}
	all := written(t, p)
	require.Len(t, all, 2*pipeline.Burst)
	for i, f := range all[:pipeline.Burst] {
		require.False(t, p.CanRefill(), "%d replies", i)
		reply(t, p, f, wire.CodeNoNode, nil)
	}
	require.True(t, p.CanRefill())
	require.Len(t, written(t, p), pipeline.Burst)
}

func TestAPieceIsNoLongerThanAFrameOr64KB(t *testing.T) {
	p := newPipeline()
	add(p, write("/x", 60<<10), write("/x", 60<<10), read("/x"))
	first, more := p.Next(now, nil)
	require.Len(t, frames(t, first), 1)
	require.True(t, more)
	second, more := p.Next(now, first)
	require.Len(t, frames(t, second), 2)
	require.False(t, more)
}

// The credentials go to the server before all that is queued.
func TestARequestThatIsWrittenAloneLeavesTheOthersWhereTheyAre(t *testing.T) {
	p := newPipeline()
	waits := read("/x")
	p.Add(waits)
	alone := frames(t, p.NextAlone(read("/auth"), now))
	require.Len(t, alone, 1)
	require.True(t, waits.Sent.IsZero())
	reply(t, p, alone[0], wire.CodeOK, nil)
	require.Len(t, written(t, p), 1)
}

func TestARequestThatIsWithdrawnIsNotWritten(t *testing.T) {
	p := newPipeline()
	sent := read("/sent")
	p.Add(sent)
	require.Len(t, written(t, p), 1)
	given, stays := write("/given-up", 1), read("/stays")
	add(p, given, stays)
	p.Withdraw([]*pipeline.Request{sent, given})
	all := written(t, p)
	require.Len(t, all, 1)
	require.Equal(t, wire.OpExists, all[0].op)
	require.True(t, sent.MayBeDone())
	require.False(t, given.MayBeDone(), "it was never written")
}

// A request is sent at the instant that Next is told, and silence is measured from then on, or from
// the latest bytes.
func TestSilenceIsMeasuredWhileAReplyIsDue(t *testing.T) {
	p := newPipeline()
	after := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	p.Add(read("/x"))
	written(t, p)
	unsent, unheard := p.Quiet(after(3))
	require.Equal(t, []time.Duration{3 * time.Second, 3 * time.Second}, []time.Duration{unsent, unheard})
	p.Progress(after(2))
	_, unheard = p.Quiet(after(3))
	require.Equal(t, time.Second, unheard, "a part of a long reply came")

	p = newPipeline()
	unsent, unheard = p.Quiet(now)
	require.Zero(t, unheard, "no reply is due")
	require.Positive(t, unsent)
}

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

func TestWhenAConnectionFailsWhatWasSentIsToldFromWhatWasNot(t *testing.T) {
	p := newPipeline()
	sent, read := write("/sent", 10), read("/sent")
	add(p, sent, read)
	written(t, p)
	unsent := write("/unsent", 10)
	p.Add(unsent)
	p.Abort().Complete("a:1", errors.New("broke"))

	require.ErrorIs(t, sent.Err(), failure.ErrConnection)
	require.ErrorContains(t, sent.Err(), "a:1: broke")
	require.True(t, sent.MayBeDone())
	require.ErrorIs(t, unsent.Err(), failure.ErrNotSent)
	require.False(t, unsent.MayBeDone())

	resend, failed, trouble := pipeline.SortOut([]*pipeline.Request{read, unsent})
	require.Equal(t, []*pipeline.Request{read, unsent}, resend)
	require.Nil(t, failed)
	require.NoError(t, trouble)
	_, failed, _ = pipeline.SortOut([]*pipeline.Request{sent})
	require.Equal(t, sent, failed, "only its caller can know whether to repeat a write")
}

// The heartbeat may give up the connection for its own reason when the reader has seen a frame that
// can't be read, and not yet said so.
func TestARequestWhoseReplyCanNotBeReadFailsWithThatWhateverGivesUpTheConnection(t *testing.T) {
	p := newPipeline()
	asked, behind := read("/asked"), read("/behind")
	add(p, asked, behind)
	written(t, p)
	_, err := p.Take(0, wire.ReplyHeaderLen, now)
	require.ErrorIs(t, err, failure.ErrGarbled)
	p.Abort().Complete("a:1", errors.New("silent"))

	require.ErrorIs(t, asked.Err(), failure.ErrGarbled)
	require.ErrorContains(t, asked.Err(), "a:1")
	_, failed, _ := pipeline.SortOut([]*pipeline.Request{asked})
	require.Equal(t, asked, failed, "on the next connection its reply would be unreadable too")
	resend, _, _ := pipeline.SortOut([]*pipeline.Request{behind})
	require.Equal(t, []*pipeline.Request{behind}, resend)
}

func TestOnlyASessionsOwnRequestsAreReliedOn(t *testing.T) {
	for op, want := range map[int32]bool{
		wire.OpExists: true, wire.OpSetWatches: true, wire.OpSync: true,
		wire.OpPing: false, wire.OpRemoveWatches: false, wire.OpMulti: false,
	} {
		require.Equal(t, want, pipeline.Unawaited(op, "", "", nil).ReliedOn(), "%d", op)
		require.False(t, pipeline.NewRequest(op, "", "").ReliedOn(), "%d: its call sends it again", op)
	}
}

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

// The length of a frame does not count itself.
func TestTheLengthAndTheNumberOfAFrameAreFilledIn(t *testing.T) {
	p := newPipeline()
	r := read("/x")
	p.Add(r)
	require.EqualValues(t, len(r.Frame)-4, binary.BigEndian.Uint32(r.Frame))
	require.NotZero(t, binary.BigEndian.Uint32(r.Frame[4:]))
}
