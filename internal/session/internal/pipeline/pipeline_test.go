package pipeline_test

import (
	"encoding/binary"
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
	r.Frame = wire.AppendBytes(wire.AppendString(r.Frame, path), make([]byte, bytes))
	r.Frame = wire.AppendInt(r.Frame, -1)
	return r
}

// list returns a list of path.
func list(path string) *pipeline.Request {
	r := pipeline.NewRequest(wire.OpGetChildren2, "list", path)
	r.Frame = wire.AppendBool(wire.AppendString(r.Frame, path), false)
	return r
}

// ofDriver returns the driver's request to close the session, with number xid.
func ofDriver(xid int32) *pipeline.Request {
	frame := wire.AppendInt(nil, 4+4) // the length of the rest
	return pipeline.OfDriver(wire.AppendInt(wire.AppendInt(frame, xid), wire.OpClose))
}

// contend returns the create of a contender in dir, which may be a member of a group.
func contend(dir string) *pipeline.Request {
	r := pipeline.NewRequest(wire.OpCreate, "create", dir+"/n-")
	r.Frame = wire.AppendBytes(wire.AppendString(r.Frame, r.Path), nil)
	r.Frame = wire.AppendInt(wire.AppendACL(r.Frame, nil), 3)
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
	d := wire.Decoder{B: string(piece)}
	for len(d.B) > 0 {
		f := wire.Decoder{B: d.Text()}
		all = append(all, frame{f.Int(), f.Int(), []byte(f.B)})
		require.NoError(t, d.Err, "a piece consists of whole frames")
		require.NoError(t, f.Err)
	}
	return all
}

// take takes the request that f's reply, of size bytes, answers.
func take(t *testing.T, p *pipeline.Pipeline, f frame, size int) *pipeline.Request {
	t.Helper()
	r, err := p.Take(f.xid, size, now)
	require.NoError(t, err)
	return r
}

// reply takes the request that f's reply answers, and completes the calls that wait for it.
func reply(t *testing.T, p *pipeline.Pipeline, f frame, code int32, body []byte) {
	t.Helper()
	size := wire.ReplyHeaderLen + len(body)
	r := take(t, p, f, size)
	header := wire.ReplyHeader{Xid: f.xid, Zxid: 1, Code: code}
	answer := pipeline.Reply{Header: header, Body: string(body), Size: size}
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

// requireOps requires that the frames are of requests of these types.
func requireOps(t *testing.T, all []frame, want ...int32) {
	t.Helper()
	var got []int32
	for _, f := range all {
		got = append(got, f.op)
	}
	require.Equal(t, want, got)
}

// requireWaiting requires that so many requests wait to be written, and for their replies.
func requireWaiting(t *testing.T, p *pipeline.Pipeline, queued, pending int) {
	t.Helper()
	q, n := p.Waiting()
	require.Equal(t, []int{queued, pending}, []int{q, n})
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
	requireOps(t, all, wire.OpExists, wire.OpSetData, wire.OpExists)
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

// The driver counts its requests from one. What it sends keeps its number, and a server gives each
// reply to a ping the same.
func TestNumbersAreApartFromTheDriversAndPingsHaveTheirs(t *testing.T) {
	p := newPipeline()
	add(p, read("/x"), contend("/a"), contend("/b"), ofDriver(7), pipeline.Ping())
	all := written(t, p)
	requireOps(t, all, wire.OpPing, wire.OpClose, wire.OpExists, wire.OpMulti)
	require.Equal(t, wire.XidPing, all[0].xid)
	require.EqualValues(t, 7, all[1].xid)
	for _, f := range append(all[2:], frames(t, p.NextAlone(read("/alone"), now))...) {
		require.GreaterOrEqual(t, f.xid, int32(1<<30))
	}
}

func TestARequestOfTheDriversWaitsNeitherForTheWindowNorBehindOthers(t *testing.T) {
	p := newPipeline()
	for range 1000 {
		p.Add(read("/x"))
	}
	require.Len(t, written(t, p), 2*pipeline.Burst, "the window is full")
	p.Add(ofDriver(7))
	requireOps(t, written(t, p), wire.OpClose)
}

// A heartbeat comes between the pieces of a burst: what is on the line before it is bounded, in
// requests and in bytes.
func TestAHeartbeatOvertakesABurstOfLongRequests(t *testing.T) {
	p := newPipeline()
	for range 64 {
		p.Add(write("/x", 512<<10))
	}
	require.Len(t, written(t, p), 2, "1 MB is on its way")
	requireWaiting(t, p, 62, 2)

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

func TestTheWindowOpensWhenHalfOfTheBytesHaveBeenAnswered(t *testing.T) {
	p := newPipeline()
	add(p, write("/x", 512<<10), write("/x", 512<<10), read("/x"))
	all := written(t, p)
	require.Len(t, all, 2)
	reply(t, p, all[0], wire.CodeNoNode, nil)
	require.False(t, p.CanRefill(), "more than half a window of bytes is on its way")
	reply(t, p, all[1], wire.CodeNoNode, nil)
	require.True(t, p.CanRefill())
	require.Len(t, written(t, p), 1)
	require.False(t, p.CanRefill(), "nothing waits to be written")
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
	require.Equal(t, 3*time.Second, unsent)
	require.Equal(t, 3*time.Second, unheard)
	p.Progress(after(2))
	_, unheard = p.Quiet(after(3))
	require.Equal(t, time.Second, unheard, "a part of a long reply came")

	p = newPipeline()
	add(p, read("/x"), read("/y"))
	first := written(t, p)[0]
	_, err := p.Take(first.xid, wire.ReplyHeaderLen, after(5))
	require.NoError(t, err)
	_, unheard = p.Quiet(after(6))
	require.Equal(t, time.Second, unheard, "the reply to x came")

	p = newPipeline()
	unsent, unheard = p.Quiet(now)
	require.Zero(t, unheard, "no reply is due")
	require.Positive(t, unsent)
}

// The length of a frame does not count itself.
func TestTheLengthAndTheNumberOfAFrameAreFilledIn(t *testing.T) {
	p := newPipeline()
	r := read("/x")
	p.Add(r)
	require.EqualValues(t, len(r.Frame)-4, binary.BigEndian.Uint32(r.Frame))
	require.NotZero(t, binary.BigEndian.Uint32(r.Frame[4:]))
}
