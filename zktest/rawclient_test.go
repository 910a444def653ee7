package zktest_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"time"
)

const answerTimeout = 10 * time.Second

// out builds a request.
type out struct{ b []byte }

func (o *out) i32(v int32) *out { o.b = binary.BigEndian.AppendUint32(o.b, uint32(v)); return o }

func (o *out) i64(v int64) *out { o.b = binary.BigEndian.AppendUint64(o.b, uint64(v)); return o }

func (o *out) flag(v bool) *out {
	if v {
		o.b = append(o.b, 1)
	} else {
		o.b = append(o.b, 0)
	}
	return o
}

func (o *out) str(s string) *out { o.i32(int32(len(s))); o.b = append(o.b, s...); return o }

func (o *out) strs(s []string) *out {
	o.i32(int32(len(s)))
	for _, v := range s {
		o.str(v)
	}
	return o
}

// data writes a buffer; "null" is the null buffer.
func (o *out) data(s string) *out {
	if s == "null" {
		return o.i32(-1)
	}
	return o.str(s)
}

// hex appends what the first word, if there is one, says in hex.
func (o *out) hex(words []string) error {
	if len(words) == 0 {
		return nil
	}
	b, err := hex.DecodeString(words[0])
	o.b = append(o.b, b...)
	return err
}

// in parses an answer. It panics with errTorn where the answer ends early; script.step recovers.
type in struct{ b []byte }

var errTorn = errors.New("answer ends early")

func (i *in) take(n int) []byte {
	if n < 0 || n > len(i.b) {
		panic(errTorn)
	}
	v := i.b[:n]
	i.b = i.b[n:]
	return v
}

func (i *in) i32() int32 { return int32(binary.BigEndian.Uint32(i.take(4))) }

func (i *in) i64() int64 { return int64(binary.BigEndian.Uint64(i.take(8))) }

func (i *in) str() string {
	n := i.i32()
	if n == -1 {
		return "<null>"
	}
	return string(i.take(int(n)))
}

func (i *in) strs() []string {
	var v []string
	for n := i.i32(); n > 0; n-- {
		v = append(v, i.str())
	}
	return v
}

// raw is one session's connection.
type raw struct {
	name     string
	nc       net.Conn
	id       int64
	password []byte
	xid      int32 // of the latest request
	seen     int64 // the largest zxid of an answer or event
	dead     bool  // the connection is over
}

// send sends a frame.
func (r *raw) send(b []byte) error {
	if err := r.nc.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	_, err := r.nc.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// recv returns the next frame, an answer or an event.
func (r *raw) recv() ([]byte, error) {
	if err := r.nc.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(r.nc, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(r.nc, b)
	return b, err
}

// shake does the handshake: it resumes the session of r's id and password, or begins one if they
// are zero. It returns the timeout that the server grants, zero if there is no session, and what
// stands behind the known fields of its answer.
func (r *raw) shake(timeout int32, seen int64) (granted int32, tail []byte, err error) {
	o := (&out{}).i32(0).i64(seen).i32(timeout).i64(r.id)
	if r.password == nil {
		o.i32(16)
		o.b = append(o.b, make([]byte, 16)...)
	} else {
		o.i32(int32(len(r.password)))
		o.b = append(o.b, r.password...)
	}
	if err := r.send(o.flag(false).b); err != nil {
		return 0, nil, err
	}
	b, err := r.recv()
	if err != nil {
		return 0, nil, err
	}
	i := in{b}
	i.i32()
	granted = i.i32()
	id := i.i64()
	password := i.take(int(i.i32()))
	if id == 0 {
		return 0, i.b, nil
	}
	r.id, r.password = id, password
	return granted, i.b, nil
}
