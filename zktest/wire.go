package zktest

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/zklock/locker/zktest/fault"
)

// The wire format is Hadoop's old "jute": big-endian integers, and strings, buffers and vectors
// after a 32-bit length, where -1 stands for null. This codec is written from that description
// alone and shares nothing with any client, so that client and server cannot agree on a mistake.

var (
	errShort  = errors.New("zktest: record ends early")
	errLength = errors.New("zktest: unreasonable length in record")
	errNull   = errors.New("zktest: null where a value is needed")
)

// decoder reads one record. The first error sticks and later reads return zero values, so that
// callers check once.
type decoder struct {
	b   []byte
	err error
}

// fail keeps the first error, and discards the rest of the record so that nothing is read from the
// middle of it.
func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

// take is the only place that accesses the record's bytes, so that one check guards all.
func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.fail(errShort)
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// int32, int64 and bool read fixed-size fields. Any byte but zero is true, as in Java.
func (d *decoder) int32() int32 {
	if v := d.take(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if v := d.take(8); v != nil {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

func (d *decoder) bool() bool {
	v := d.take(1)
	return v != nil && v[0] != 0
}

// buffer reads bytes after a length; null is nil, empty is not. The result is a copy: it outlives
// the frame.
func (d *decoder) buffer() []byte {
	n := d.int32()
	if d.err != nil || n == -1 {
		return nil
	}
	if n < 0 {
		d.fail(errLength)
		return nil
	}
	v := d.take(int(n))
	if d.err != nil {
		return nil
	}
	return append([]byte{}, v...)
}

// optional reads a string that may be null. Invalid UTF-8 becomes U+FFFD, as in Java.
func (d *decoder) optional() *string {
	b := d.buffer()
	if b == nil {
		return nil
	}
	s := strings.ToValidUTF8(string(b), "\uFFFD")
	return &s
}

// str reads a string where null is an error.
func (d *decoder) str() string {
	s := d.optional()
	if s == nil {
		d.fail(errNull)
		return ""
	}
	return *s
}

// vector calls each once per element. A negative length is an empty vector except for -1, which is
// null; the loop ends at the first error, so that a length of two billion costs nothing.
func (d *decoder) vector(each func()) (null bool) {
	// The length allocates nothing: the elements must be present first.
	n := d.int32()
	for i := int32(0); i < n && d.err == nil; i++ {
		each()
	}
	return n == -1
}

// strs reads a vector of strings. Null is an error here: every request that has one iterates over
// it.
func (d *decoder) strs() []string {
	var v []string
	if d.vector(func() { v = append(v, d.str()) }) {
		d.fail(errNull)
	}
	return v
}

// encoder appends one record. It cannot fail: all lengths fit, because everything once arrived in a
// frame.
type encoder struct{ b []byte }

// int32 and the methods below append one field each, in the order of the record.
func (e *encoder) int32(v int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) int64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }

func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

// buffer distinguishes null (nil) and empty: a node's data can be either, and clients see which.
func (e *encoder) buffer(v []byte) {
	if v == nil {
		e.int32(-1)
		return
	}
	e.int32(int32(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) str(v string) {
	e.int32(int32(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) strs(v []string) {
	e.int32(int32(len(v)))
	for _, s := range v {
		e.str(s)
	}
}

func (e *encoder) acls(v []ACL) {
	e.int32(int32(len(v)))
	for _, a := range v {
		e.int32(a.Perms)
		e.str(a.Scheme)
		e.str(a.ID)
	}
}

// stat appends the eleven fields, 68 bytes, in the historical order: pzxid was added last.
func (e *encoder) stat(s *Stat) {
	e.int64(s.Czxid)
	e.int64(s.Mzxid)
	e.int64(s.Ctime)
	e.int64(s.Mtime)
	e.int32(s.Version)
	e.int32(s.Cversion)
	e.int32(s.Aversion)
	e.int64(s.EphemeralOwner)
	e.int32(s.DataLength)
	e.int32(s.NumChildren)
	e.int64(s.Pzxid)
}

// header begins a reply or a notification.
func (e *encoder) header(xid int32, zxid int64, code fault.Code) {
	e.int32(xid)
	e.int64(zxid)
	e.int32(int32(code))
}

// lengthSize is the size of the length that precedes a frame.
const lengthSize = 4

// frame prefixes a payload with its length.
func frame(payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, lengthSize+len(payload)),
		uint32(len(payload))), payload...)
}
