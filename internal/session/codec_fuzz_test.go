package session_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
)

// replyOps are all operations that decode a reply.
var replyOps = []struct {
	name  string
	write bool
	do    func(ctx context.Context, s *session.Session) (any, error)
}{
	{"create", true, func(ctx context.Context, s *session.Session) (any, error) {
		return s.Create(ctx, "/a", nil, session.Ephemeral, session.WorldACL())
	}},
	{"create and list", true, func(ctx context.Context, s *session.Session) (any, error) {
		made, names, err := createAndList(ctx, s, "/a", nil, session.Ephemeral, session.WorldACL())
		return []any{made, names}, err
	}},
	{"create all", true, func(ctx context.Context, s *session.Session) (any, error) {
		return nil, s.CreateAll(ctx, "/a", nil, session.Persistent, session.WorldACL())
	}},
	{"delete", true, func(ctx context.Context, s *session.Session) (any, error) {
		return nil, s.Delete(ctx, "/a", 0)
	}},
	{"get", false, func(ctx context.Context, s *session.Session) (any, error) {
		data, stat, err := s.Get(ctx, "/a")
		return []any{data, stat}, err
	}},
	{"set", true, func(ctx context.Context, s *session.Session) (any, error) {
		return s.Set(ctx, "/a", nil, 0)
	}},
	{"list", false, func(ctx context.Context, s *session.Session) (any, error) {
		names, stat, err := s.List(ctx, "/a")
		return []any{names, stat}, err
	}},
	{"exists", false, func(ctx context.Context, s *session.Session) (any, error) {
		return s.Exists(ctx, "/a")
	}},
	{"exists now", false, func(ctx context.Context, s *session.Session) (any, error) {
		return existsNow(ctx, s, "/a")
	}},
	{"acl", false, func(ctx context.Context, s *session.Session) (any, error) {
		acl, stat, err := s.ACL(ctx, "/a")
		return []any{acl, stat}, err
	}},
	{"set acl", true, func(ctx context.Context, s *session.Session) (any, error) {
		return s.SetACL(ctx, "/a", session.WorldACL(), 0)
	}},
	{"sync", false, func(ctx context.Context, s *session.Session) (any, error) {
		return nil, s.Sync(ctx, "/a")
	}},
	{"watch", false, func(ctx context.Context, s *session.Session) (any, error) {
		return s.Watch(ctx, "/a")
	}},
	{"multi", true, func(ctx context.Context, s *session.Session) (any, error) {
		return s.Multi(ctx, session.OpCreate{Path: "/a"}, session.OpSet{Path: "/b"},
			session.OpDelete{Path: "/c"})
	}},
}

// answer runs one operation and answers each of its requests with code and body.
func answer(t testing.TB, op int, code int32, body []byte) (any, error) {
	rig := session.NewRig()
	defer rig.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type result struct {
		v   any
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := replyOps[op].do(ctx, rig.Session)
		done <- result{v, err}
	}()
	for {
		select {
		case r := <-done:
			return r.v, r.err
		case <-rig.Written():
			if !rig.Failed() {
				require.NoError(t, rig.Answer(code, body))
			} else if replyOps[op].name == "create all" {
				// it would repeat its request on the next link
				cancel()
			}
		case <-time.After(soon):
			require.FailNow(t, "hangs", "%s, code %d, %x", replyOps[op].name, code, body)
		}
	}
}

var replySeeds = [][]byte{
	nil,
	{0, 0, 0, 0},
	{0xff, 0xff, 0xff, 0xff},
	{0x7f, 0xff, 0xff, 0xff},
	{0x80, 0, 0, 0},
	{0, 0, 0, 2, '/', 'a'},
	append([]byte{0, 0, 0, 6}, "/app/a"...),
	append([]byte{0, 0, 0, 1, 0, 0, 0, 1, 'x'}, make([]byte, 68)...),
	append([]byte{0, 0, 0, 1, 'd'}, make([]byte, 68)...),
	make([]byte, 68),
	make([]byte, 67),
	bytes.Repeat([]byte{0, 0, 0, 2, 0, 0, 0, 0, 0}, 3),
	{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, '/', 'a', 0, 0, 0, 2, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff,
		0xff, 1, 0xff, 0xff, 0xff, 0xff},
	{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff,
		0xff},
	append([]byte{0x01, 0x31, 0x2d, 0}, make([]byte, 100)...),
}

func FuzzReply(f *testing.F) {
	for op := range replyOps {
		for _, body := range replySeeds {
			f.Add(uint8(op), int32(0), body)
		}
		f.Add(uint8(op), int32(-101), []byte(nil))
		f.Add(uint8(op), int32(-5), []byte("rest"))
	}
	f.Fuzz(func(t *testing.T, op uint8, code int32, body []byte) {
		switch code {
		// of an expired or moved session, and after which requests are sent again, without a
		// look at the body
		case -112, -118, -124, -4, -7, -122, -127:
			code = 0
		}
		n := int(op) % len(replyOps)
		var v any
		var err error
		bound := uint64(128<<10 + 48*len(body))
		spent := allocates(bound, func() { v, err = answer(t, n, code, body) })
		require.Less(t, spent, bound, "%s: %d bytes cost %d", replyOps[n].name, len(body), spent)
		if err == nil {
			name := replyOps[n].name
			// A watch may be set on a znode that does not exist; CreateAll accepts one that exists.
			if fine := name == "watch" && code == -101 || name == "create all" &&
				code == -110; code != 0 && !fine {
				require.FailNow(t, "a refusal was taken for a yes", "%s, code %d: %v", name, code,
					v)
			}
			return
		}
		if replyOps[n].name == "create all" && errors.Is(err, session.ErrConfig) {
			return // the chroot does not exist
		}
		var opErr *session.OpError
		require.ErrorAs(t, err, &opErr)
		if errors.Is(err, session.ErrUnknownOutcome) {
			require.True(t, replyOps[n].write, "reads have no outcome: %v", err)
		}
	})
}

// frameOf puts a length before a body.
func frameOf(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// allocates returns how many bytes the process allocates while fn runs: the least of several
// trials, since other goroutines may allocate at the same time (the fuzzing engine does). It stops
// at the first trial below bound.
func allocates(bound uint64, fn func()) uint64 {
	least := uint64(math.MaxUint64)
	for trial := 0; trial < 5 && least >= bound; trial++ {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fn()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// FuzzStream feeds arbitrary bytes to a link.
func FuzzStream(f *testing.F) {
	note := append(binary.BigEndian.AppendUint32(nil, 0xffffffff), make([]byte, 12)...)
	note = append(note, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 2, '/', 'a')
	f.Add(frameOf(note))
	f.Add(append(frameOf(note), frameOf(note)...))
	f.Add(frameOf(note[:20]))
	f.Add(frameOf(nil))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 1, 2, 3})
	f.Add([]byte{0x02, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, stream []byte) {
		bound := uint64(256<<10 + 8*len(stream))
		require.Less(t, allocates(bound, func() {
			forwarded, err := session.ReadAll(bytes.NewReader(stream))
			require.Error(t, err)
			require.Zero(t, forwarded, "the driver asked for nothing and gets nothing")
		}), bound)
	})
}

func TestAMultiReplyWithMoreAnswersThanQuestionsCostsNoMoreThanItself(t *testing.T) {
	multi := len(replyOps) - 1
	body := bytes.Repeat([]byte{0, 0, 0, 2, 0, 0, 0, 0, 0}, 1<<20)
	bound := uint64(4 * len(body))
	spent := allocates(bound, func() {
		_, err := answer(t, multi, 0, body)
		require.ErrorIs(t, err, session.ErrGarbled)
	})
	require.Less(t, spent, bound, "a reply of %d bytes made us allocate %d", len(body), spent)
}
