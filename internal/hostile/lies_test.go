package hostile_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
)

// lie is one way to answer wrongly.
type lie struct {
	name string
	// say returns what the client gets instead of the frame; nil, false, false: the lie does not apply to the frame,
	// which passes unchanged.
	say func(f said) (b []byte, over, mute bool)
	// trust: the lie is well-formed and may be true, so a client has to trust it.
	trust bool
}

// bytesOf is a lie of bytes.
func bytesOf(f func(f said) []byte) func(said) ([]byte, bool, bool) {
	return func(s said) ([]byte, bool, bool) { return f(s), false, false }
}

func be32(v int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(int32(v))) }

func header(xid int32, zxid int64, code int32) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(xid))
	b = binary.BigEndian.AppendUint64(b, uint64(zxid))
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

func text(s string) []byte { return append(be32(len(s)), s...) }

func note(typ, state int, path string) []byte {
	return framed(slices.Concat(header(-1, -1, 0), be32(typ), be32(state), text(path)))
}

// with returns a copy of the frame in which b replaces what is at an offset.
func with(f said, at int, b []byte) []byte {
	c := bytes.Clone(f.body)
	if at+len(b) > len(c) {
		return nil
	}
	copy(c[at:], b)
	return framed(c)
}

func xidOf(f said) int32 { return int32(binary.BigEndian.Uint32(f.body)) }

// reply is a lie about the results of one operation.
func reply(op zktest.Op, rest func(f said) []byte) func(said) ([]byte, bool, bool) {
	return bytesOf(func(f said) []byte {
		if f.op != op || len(f.body) < 16 {
			return nil
		}
		return framed(append(bytes.Clone(f.body[:16]), rest(f)...))
	})
}

// listing is a lie about the names of a list. The Stat stays as it was.
func listing(names func(real []string) []string) func(said) ([]byte, bool, bool) {
	return bytesOf(func(f said) []byte {
		if f.op != zktest.OpGetChildren2 || len(f.body) < 20 {
			return nil
		}
		rest := f.body[20:]
		var real []string
		for range binary.BigEndian.Uint32(f.body[16:]) {
			n := binary.BigEndian.Uint32(rest)
			real, rest = append(real, string(rest[4:4+n])), rest[4+n:]
		}
		b := bytes.Clone(f.body[:16])
		all := names(real)
		b = append(b, be32(len(all))...)
		for _, name := range all {
			b = append(b, text(name)...)
		}
		return framed(append(b, rest...))
	})
}

func many(name string, n int) []string { return slices.Repeat([]string{name}, n) }

const foreign = "_c_11111111-2222-4333-8444-555555555555-lock-0000000000"

var lies = []lie{
	{name: "xid one higher", say: bytesOf(func(f said) []byte { return with(f, 0, be32(int(xidOf(f))+1)) })},
	{name: "xid one lower", say: bytesOf(func(f said) []byte {
		if xidOf(f) == 0 { // would be −1: a notification
			return nil
		}
		return with(f, 0, be32(int(xidOf(f))-1))
	})},
	{name: "zxid going back to 1", say: bytesOf(func(f said) []byte { return with(f, 4, binary.BigEndian.AppendUint64(nil, 1)) })},
	{name: "zxid negative", say: bytesOf(func(f said) []byte { return with(f, 4, bytes.Repeat([]byte{0xff}, 8)) })},
	{name: "zxid at its greatest", say: bytesOf(func(f said) []byte { return with(f, 4, binary.BigEndian.AppendUint64(nil, math.MaxInt64)) })},
	{name: "length −1", say: bytesOf(func(f said) []byte { return append(be32(-1), f.body...) })},
	{name: "length 0", say: bytesOf(func(f said) []byte { return append(be32(0), f.body...) })},
	{name: "length 15", say: bytesOf(func(f said) []byte { return append(be32(15), f.body...) })},
	{name: "length 2³¹−1", say: bytesOf(func(f said) []byte { return append(be32(math.MaxInt32), f.body...) })},
	{name: "length one less", say: bytesOf(func(f said) []byte { return append(be32(len(f.body)-1), f.body...) })},
	{name: "length one more", say: bytesOf(func(f said) []byte { return append(be32(len(f.body)+1), f.body...) })},
	{name: "cut, and the end", say: func(f said) ([]byte, bool, bool) { return framed(f.body)[:2+len(f.body)/2], true, false }},
	{name: "cut, and silence", say: func(f said) ([]byte, bool, bool) { return framed(f.body)[:2+len(f.body)/2], false, true }},
	{name: "a shorter frame", say: bytesOf(func(f said) []byte { return framed(f.body[:len(f.body)/2]) })},
	{name: "bytes behind the end", say: bytesOf(func(f said) []byte { return framed(append(bytes.Clone(f.body), 1, 2, 3, 4)) })},
	{name: "only zero bits", say: bytesOf(func(f said) []byte { return framed(make([]byte, len(f.body))) })},
	{name: "only one bits", say: bytesOf(func(f said) []byte { return framed(bytes.Repeat([]byte{0xff}, len(f.body))) })},
	{name: "nothing", say: func(said) ([]byte, bool, bool) { return nil, false, true }},
	{name: "the end", say: func(said) ([]byte, bool, bool) { return nil, true, false }},
	{name: "the frame is left out", say: bytesOf(func(said) []byte { return []byte{} })},
	{name: "the same frame twice", say: bytesOf(func(f said) []byte { return append(framed(f.body), framed(f.body)...) })},
	{name: "a reply to nothing first", say: bytesOf(func(f said) []byte { return append(framed(header(99, 5, 0)), framed(f.body)...) })},
	{name: "a ping's reply first", say: bytesOf(func(f said) []byte { return append(framed(header(-2, 5, 0)), framed(f.body)...) })},
	{name: "a notification of a path without a watch first", say: bytesOf(func(f said) []byte {
		return slices.Concat(note(2, 3, "/else"), note(4, 3, dir), note(2, 3, dir+"/"+foreign), framed(f.body))
	})},
	{name: "notifications of unknown kinds first", say: bytesOf(func(f said) []byte {
		return slices.Concat(note(77, 3, dir), note(-1, -112, ""), note(2, 3, "no path"), note(2, 3, "\x00"), framed(f.body))
	})},
	{name: "a notification with a cut path", say: bytesOf(func(f said) []byte {
		return append(framed(slices.Concat(header(-1, -1, 0), be32(2), be32(3), be32(1<<30))), framed(f.body)...)
	})},
	{name: "an unknown code", say: bytesOf(func(f said) []byte { return framed(header(xidOf(f), 7, -9999)) })},
	{name: "a positive code", say: bytesOf(func(f said) []byte { return framed(header(xidOf(f), 7, 5)) })},
	{name: "the code for a broken connection", say: bytesOf(func(f said) []byte { return framed(header(xidOf(f), 7, -4)) })},
	{name: "the code for a moved session", say: bytesOf(func(f said) []byte { return framed(header(xidOf(f), 7, -118)) })},
	{name: "success without a body", say: bytesOf(func(f said) []byte {
		if f.op == zktest.OpSync || f.op == zktest.OpPing || f.op == zktest.OpDelete {
			return nil // as it should be
		}
		return framed(header(xidOf(f), 7, 0))
	})},

	{name: "create: the path of another client's znode", say: reply(zktest.OpCreate, func(said) []byte { return text(dir + "/" + foreign) })},
	{name: "create: another directory", say: reply(zktest.OpCreate, func(f said) []byte { return text("/else/" + path.Base(f.path) + "0000000000") })},
	{name: "create: another directory, and our own name", say: bytesOf(func(f said) []byte {
		if f.op != zktest.OpCreate || len(f.body) < 30 {
			return nil
		}
		return with(f, 21, []byte("h"))
	})},
	{name: "create: the path without a number", say: reply(zktest.OpCreate, func(f said) []byte { return text(f.path) })},
	{name: "create: a number that is none", say: reply(zktest.OpCreate, func(f said) []byte { return text(f.path + "00000000x0") })},
	{name: "create: a number too long", say: reply(zktest.OpCreate, func(f said) []byte { return text(f.path + strings.Repeat("9", 30)) })},
	{name: "create: a slash behind the number", say: reply(zktest.OpCreate, func(f said) []byte { return text(f.path + "0000000000/x") })},
	{name: "create: a negative number", say: reply(zktest.OpCreate, func(f said) []byte { return text(f.path + "-000000001") })},
	{name: "create: a null path", say: reply(zktest.OpCreate, func(said) []byte { return be32(-1) })},
	{name: "create: a path of −2", say: reply(zktest.OpCreate, func(said) []byte { return be32(-2) })},
	{name: "create: 1 MB of path", say: reply(zktest.OpCreate, func(f said) []byte { return text(f.path + strings.Repeat("0", 1<<20)) })},

	{name: "list: names with slashes", say: listing(func(real []string) []string { return append(real, "a/b", "/", "..", ".") })},
	{name: "list: names with NUL, and empty ones", say: listing(func(real []string) []string { return append(real, "\x00", "", "x\x00-lock-0000000000") })},
	{name: "list: 200,000 names", say: listing(func(real []string) []string { return append(many("n", 200_000), real...) })},
	{name: "list: 200,000 of what might be contenders", say: listing(func(real []string) []string {
		return append(many("-lock-00000000000000000", 200_000), real...)
	})},
	{name: "list: every name twice", say: listing(func(real []string) []string { return append(slices.Clone(real), real...) })},
	{name: "list: a contender before us that does not exist", say: listing(func(real []string) []string {
		return append(real, "_c_11111111-2222-4333-8444-555555555555-lock-0000000000")
	})},
	{name: "list: one with a negative number", say: listing(func(real []string) []string {
		return append(real, "_c_11111111-2222-4333-8444-555555555555-lock--000000005")
	})},
	{name: "list: contenders of another kind", say: listing(func(real []string) []string { return append(real, "x-lease-3-0000000000") })},
	{name: "list: no contender", say: listing(func([]string) []string { return nil })},
	{name: "list: only our contender, under another name", say: listing(func(real []string) []string { return []string{foreign} })},
	{name: "list: a count of 2³¹−1", say: reply(zktest.OpGetChildren2, func(said) []byte { return be32(math.MaxInt32) })},
	{name: "list: a count of −5", say: reply(zktest.OpGetChildren2, func(said) []byte { return be32(-5) })},
	{name: "list: without the contenders before us", trust: true, say: listing(func(real []string) []string { return real[max(0, len(real)-1):] })},

	{name: "exists: another owner", trust: true, say: bytesOf(func(f said) []byte {
		if f.op != zktest.OpExists {
			return nil
		}
		return with(f, 16+44, bytes.Repeat([]byte{7}, 8))
	})},
	{name: "exists: it is not there", trust: true, say: bytesOf(func(f said) []byte {
		if f.op != zktest.OpExists {
			return nil
		}
		return framed(header(xidOf(f), 7, -101))
	})},
	{name: "the one before us was deleted", trust: true, say: bytesOf(func(f said) []byte {
		if f.op != zktest.OpGetData {
			return nil
		}
		return append(note(2, 3, f.path), framed(f.body)...)
	})},
	{name: "data: a length of 2³⁰", say: reply(zktest.OpGetData, func(said) []byte { return be32(1 << 30) })},
	{name: "data: what is no identity", say: reply(zktest.OpGetData, func(f said) []byte {
		return slices.Concat(text("{\"host\":[1,{}],\"pid\":\"\xff\""), make([]byte, 68))
	})},
	{name: "multi: more answers than questions", say: reply(zktest.OpMulti, func(said) []byte {
		return bytes.Repeat([]byte{0, 0, 0, 2, 0, 0, 0, 0, 0}, 1000)
	})},
	{name: "multi: none", say: reply(zktest.OpMulti, func(said) []byte { return []byte{0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff} })},
}

// at returns a liar that tells the lie once, in place of the nth frame.
func (l lie) at(n int) liar {
	return func(f said) ([]byte, bool, bool) {
		if f.n != n || !l.fits(f) {
			return honest(f)
		}
		return l.say(f)
	}
}

// fits reports whether the lie can be told instead of f.
func (l lie) fits(f said) bool {
	b, over, mute := l.say(f)
	return b != nil || over || mute
}

// moments is how many frames of one kind are replaced: heartbeats are all alike.
const moments = 3

func TestALieAtAnyMomentCostsAtMostAConnection(t *testing.T) {
	var frames []said
	seen := map[zktest.Op]int{}
	life(t, func(f said) ([]byte, bool, bool) {
		if seen[f.op]++; seen[f.op] <= moments {
			frames = append(frames, f)
		}
		return honest(f)
	}, new(atomic.Bool))
	for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2, zktest.OpExists, zktest.OpGetData, zktest.OpNotify,
		zktest.OpSync, zktest.OpPing, zktest.OpMulti, zktest.OpDelete} {
		require.Positive(t, seen[op], "%v belongs to the life of a lock", op)
	}
	for _, l := range lies {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			outcomes := map[string][]string{}
			for _, f := range frames {
				if l.fits(f) {
					var trust atomic.Bool
					trust.Store(l.trust)
					o := life(t, l.at(f.n), &trust).String()
					outcomes[o] = append(outcomes[o], fmt.Sprint(f.op))
				}
			}
			require.NotEmpty(t, outcomes, "the lie fits none of %d frames", len(frames))
			for o, ops := range outcomes {
				t.Logf("%s: instead of %s", o, strings.Join(ops, ", "))
			}
		})
	}
}

// String is the outcome in a line.
func (o outcome) String() string {
	say := func(err error) string {
		if err == nil {
			return "ok"
		}
		return sentinel(err)
	}
	if !o.held {
		return fmt.Sprintf("lock: %s; connections %d", say(o.lock), o.dials)
	}
	return fmt.Sprintf("lock: ok, check: %s, multi: %s, unlock: %s, again: %s; connections %d",
		say(o.check), say(o.multi), say(o.unlock), say(o.again), o.dials)
}
