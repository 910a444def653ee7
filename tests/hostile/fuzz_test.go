package hostile_test

import (
	"bytes"
	"encoding/binary"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zktest/fault"
)

// scripted answers by a script. For each frame of the server's, a byte of the script selects what
// happens to it, and the bytes after that the replacement; when the script has ended, frames pass
// unchanged. granted is set when the client may take an answer for a grant: a list in which it is
// first, or the deletion of the contender before it.
func scripted(script []byte, granted *atomic.Bool) liar {
	take := func(n int) []byte {
		n = min(n, len(script))
		b := script[:n]
		script = script[n:]
		return b
	}
	return func(f said) (b []byte, over, mute bool) {
		if len(script) == 0 {
			return honest(f)
		}
		how := take(1)[0]
		size := 0
		if n := take(1); len(n) == 1 {
			size = int(n[0])
		}
		body := bytes.Clone(f.body)
		switch how % 12 {
		case 0, 1, 2: // unchanged
		case 3: // with a true header
			body = append(body[:min(16, len(body))], take(size)...)
		case 4: // some bytes are put over it
			copy(body[min(size, len(body)):], take(8))
		case 5: // a frame of any bytes
			body = take(size)
		case 6: // any bytes at all
			b := take(size)
			heed(b, f, granted)
			return append([]byte{}, b...), false, false
		case 7: // something else first
			first := take(size)
			heed(framed(first), f, granted)
			return append(framed(first), framed(body)...), false, false
		case 8:
			return append(framed(body), framed(body)...), false, false
		case 9:
			return framed(body)[:min(size, 4+len(body))], true, false
		case 10:
			return framed(body)[:min(size, 4+len(body))], false, true
		case 11: // one bit is flipped
			body[size*len(body)/256] ^= 1 << (how / 12 % 8)
		}
		heed(framed(body), f, granted)
		return framed(body), false, false
	}
}

// heed notes answers that a client must trust, since no server can prove more. Headers do not
// count: package session checks them.
func heed(stream []byte, f said, granted *atomic.Bool) {
	for len(stream) >= 20 {
		n := int(int32(binary.BigEndian.Uint32(stream)))
		if n < 16 || n > len(stream)-4 {
			return
		}
		body := stream[4 : 4+n]
		stream = stream[4+n:]
		if bytes.Equal(body, f.body) {
			continue
		}
		switch {
		case binary.BigEndian.Uint32(body) == 0xffffffff:
			// a notification, perhaps of the awaited deletion
			if bytes.Contains(body, []byte(dir)) {
				granted.Store(true)
			}
		case f.op == fault.OpGetChildren2, f.op == fault.OpExists, f.op == fault.OpSync,
			f.op == fault.OpMulti,
			f.op == fault.OpDelete:
			granted.Store(true)
		case f.op == fault.OpCreate && len(body) > 20:
			name := string(body[20:])
			_, contender := recipe.Parse(path.Base(name))
			if contender && strings.HasPrefix(name, f.path) {
				granted.Store(true)
			}
		}
	}
}

// FuzzLife runs a lock through its life while a script changes the server's frames. Whatever the
// script: no crash, no hang, no call beyond its deadline, nothing left behind, and a hold only
// where a server could have granted one.
func FuzzLife(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{3, 4, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 3, 4, 0x7f, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 7, 16, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0})
	f.Add([]byte{5, 0, 5, 0, 5, 0})
	f.Add([]byte{0, 0, 10, 9, 0, 0, 9, 3, 0, 0, 8, 0, 0, 0, 11, 3})
	f.Add([]byte{6, 4, 0xff, 0xff, 0xff, 0xff, 6, 4, 0x7f, 0xff, 0xff, 0xff})
	f.Add(bytes.Repeat([]byte{0, 0, 4, 4, 0, 0, 0, 0, 0, 0, 0, 99}, 4))
	f.Fuzz(func(t *testing.T, script []byte) {
		var granted atomic.Bool
		life(t, scripted(script[:min(len(script), 400)], &granted), &granted)
	})
}
