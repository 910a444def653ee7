package wire

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"
)

// The wire format is jute, as in ZooKeeper's zookeeper.jute: big-endian integers, strings and byte
// strings behind a 32-bit length (−1: null), vectors behind a 32-bit count.

// The types of requests.
const (
	OpCreate          int32 = 1
	OpDelete          int32 = 2
	OpExists          int32 = 3
	OpGetData         int32 = 4
	OpSetData         int32 = 5
	OpGetACL          int32 = 6
	OpSetACL          int32 = 7
	OpGetChildren     int32 = 8
	OpSync            int32 = 9
	OpPing            int32 = 11
	OpGetChildren2    int32 = 12
	OpCheck           int32 = 13
	OpMulti           int32 = 14
	OpCreate2         int32 = 15
	OpRemoveWatches   int32 = 18
	OpCreateContainer int32 = 19
	OpMultiRead       int32 = 22
	OpAuth            int32 = 100
	OpSetWatches      int32 = 101
	OpSASL            int32 = 102
	OpClose           int32 = -11
	OpError           int32 = -1
)

// The numbers in the headers of frames that answer no request of ours.
const (
	XidNotification int32 = -1
	XidPing         int32 = -2 // of the reply to any ping
)

// The codes with which servers answer, as in ZooKeeper's KeeperException.
const (
	CodeUnreadable     int32 = -1 << 30 // sent by no server: the reply to a multi can't be read
	CodeOK             int32 = 0
	CodeInconsistent   int32 = -2
	CodeConnectionLoss int32 = -4
	CodeUnimplemented  int32 = -6
	CodeServerTimeout  int32 = -7
	CodeBadArguments   int32 = -8
	CodeAPIError       int32 = -100 // all lower ones are API errors too
	CodeNoNode         int32 = -101
	CodeNoAuth         int32 = -102
	CodeSessionExpired int32 = -112
	CodeAuthFailed     int32 = -115
	CodeSessionMoved   int32 = -118
	CodeRequestTimeout int32 = -122
	CodeAuthRequired   int32 = -124
	CodeThrottled      int32 = -127
)

// Definite reports whether code tells what became of the request. After other codes, from a server
// in trouble, it may have been carried out.
func Definite(code int32) bool {
	switch code {
	case CodeOK, CodeUnimplemented, CodeBadArguments:
		return true
	}
	return code <= CodeAPIError && code != CodeRequestTimeout
}

// TryAgain reports whether code comes from a server that stays connected and could not see to the
// request now.
func TryAgain(code int32) bool {
	switch code {
	case CodeConnectionLoss, CodeServerTimeout, CodeRequestTimeout, CodeThrottled:
		return true
	}
	return false
}

// What else is known of a type of request. To add one, decide for each of these functions,
// and for Verdict.

// ThroughLeader reports whether a follower needs the leader to answer op. Of these, all but a sync
// are writes: one whose reply was lost is not sent again.
func ThroughLeader(op int32) bool {
	switch op {
	case OpCreate, OpDelete, OpSetData, OpSetACL, OpSync, OpMulti, OpCreateContainer:
		return true
	}
	return false
}

// LongReply reports whether other clients determine how long the reply to op is. Such requests are
// not sent so many at a time that a heartbeat's reply would come late.
func LongReply(op int32) bool { return op == OpGetChildren2 || op == OpGetData }

// SetsUp reports whether op, if the session itself sends it and no call waits for the reply, has to
// succeed: otherwise a watch would never fire, or a read be older than an event. If the server
// can't see to it now, the connection is given up, and the next one repeats it.
func SetsUp(op int32) bool { return op == OpExists || op == OpSetWatches || op == OpSync }

// AppendInt appends an integer of 32 bits.
func AppendInt(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }

// AppendLong appends an integer of 64 bits.
func AppendLong(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

// AppendString appends a string behind its length.
func AppendString(b []byte, s string) []byte { return append(AppendInt(b, int32(len(s))), s...) }

// AppendBytes appends a byte string behind its length, or null if p is nil.
func AppendBytes(b, p []byte) []byte {
	if p == nil {
		return AppendInt(b, -1)
	}
	return append(AppendInt(b, int32(len(p))), p...)
}

// AppendBool appends a truth value.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendStrings appends a vector of strings.
func AppendStrings(b []byte, ss []string) []byte {
	b = AppendInt(b, int32(len(ss)))
	for _, s := range ss {
		b = AppendString(b, s)
	}
	return b
}

// AppendACL appends an access control list.
func AppendACL(b []byte, acl []zk.ACL) []byte {
	b = AppendInt(b, int32(len(acl)))
	for _, a := range acl {
		b = AppendString(AppendString(AppendInt(b, a.Perms), a.Scheme), a.ID)
	}
	return b
}

// AppendHeader begins a frame: room for the length and the transaction id, which are filled in
// later, and the opcode.
func AppendHeader(b []byte, op int32) []byte { return AppendInt(AppendInt(AppendInt(b, 0), 0), op) }

// SetLength fills in the length of a frame, in front of it.
func SetLength(frame []byte) { binary.BigEndian.PutUint32(frame, uint32(len(frame)-4)) }

// ErrShort says that a frame ends inside a field, or has an impossible length.
var ErrShort = errors.New("frame too short")

// Decoder reads a frame. After the first failure every read returns zero and err stays set, so
// callers check once. A length from the wire is not trusted before the bytes behind it have been
// seen.
type Decoder struct {
	B   string // what is left of the frame
	Err error
}

func (d *Decoder) take(n int) string {
	if d.Err != nil || n < 0 || n > len(d.B) {
		d.Err = ErrShort
		return ""
	}
	p := d.B[:n]
	d.B = d.B[n:]
	return p
}

// bigEndian reads an integer of up to 64 bits; "" is zero.
func bigEndian(p string) (v uint64) {
	for _, b := range []byte(p) {
		v = v<<8 | uint64(b)
	}
	return v
}

// Int reads an integer of 32 bits.
func (d *Decoder) Int() int32 { return int32(bigEndian(d.take(4))) }

func (d *Decoder) long() int64 { return int64(bigEndian(d.take(8))) }

func (d *Decoder) bool() bool { return bigEndian(d.take(1)) != 0 }

// Text reads a copy of a string; a null one is "".
func (d *Decoder) Text() string {
	return strings.Clone(d.SharedText())
}

// SharedText is Text without a copy: the string shares the memory of the frame.
func (d *Decoder) SharedText() string {
	text, _ := d.takeString()
	return text
}

// Bytes reads a copy of a byte string, or nil if it is null.
func (d *Decoder) Bytes() []byte {
	text, isNull := d.takeString()
	if isNull || d.Err != nil {
		return nil
	}
	return []byte(text)
}

// takeString reads a string, which may be null. It shares the memory of the frame.
func (d *Decoder) takeString() (text string, isNull bool) {
	n := d.Int()
	if n == -1 {
		return "", true
	}
	return d.take(int(n)), false
}

// Names reads the names of a znode's children; no server has an empty one. They share the memory of
// the frame: a caller that keeps one of many has to clone it.
func (d *Decoder) Names() []string {
	n := d.Int()
	if n == -1 || n == 0 || d.Err != nil {
		return nil
	}
	if n < 0 || int(n) > len(d.B)/5 { // 4 bytes for the length, and at least one for the name
		d.Err = ErrShort
		return nil
	}
	names := make([]string, n)
	for i := range names {
		names[i] = d.SharedText()
		if names[i] == "" {
			d.Err = ErrShort
			return nil
		}
	}
	return names
}

func (d *Decoder) skipNames() {
	for n := d.Int(); n > 0 && d.Err == nil; n-- {
		d.takeString()
	}
}

// StatLen is the length of an encoded Stat, in bytes.
const StatLen = 68

// Stat reads the Stat of a znode.
func (d *Decoder) Stat() (s zk.Stat) {
	s.Czxid, s.Mzxid, s.Ctime, s.Mtime = d.long(), d.long(), d.long(), d.long()
	s.Version, s.Cversion, s.Aversion = d.Int(), d.Int(), d.Int()
	s.EphemeralOwner, s.DataLength, s.NumChildren, s.Pzxid = d.long(), d.Int(), d.Int(), d.long()
	return s
}

// ACL reads an access control list; a null one is nil.
func (d *Decoder) ACL() []zk.ACL {
	n := d.Int()
	if d.Err != nil || n < 0 || int(n) > len(d.B)/12 {
		if n != -1 {
			d.Err = ErrShort
		}
		return nil
	}
	acl := make([]zk.ACL, n)
	for i := range acl {
		acl[i] = zk.ACL{Perms: d.Int(), Scheme: d.Text(), ID: d.Text()}
	}
	return acl
}

// ReplyHeader is what each reply begins with. A notification has the xid XidNotification.
type ReplyHeader struct {
	Xid  int32
	Zxid int64
	Code int32
}

// ReplyHeaderLen is the length of an encoded ReplyHeader, in bytes.
const ReplyHeaderLen = 16

// MaxFrame bounds a reply that is kept; a longer one, such as a long list, is skipped.
const MaxFrame = 32 << 20

// Header reads the header of a reply.
func (d *Decoder) Header() ReplyHeader { return ReplyHeader{d.Int(), d.long(), d.Int()} }

// PasswordLen is the length of a session's password.
const PasswordLen = 16

// AppendConnectRequest appends the client's half of the handshake, with room for the frame's length
// in front. It asks for the session with id and password, or for a new one if id is 0, and for a
// timeout in milliseconds. It says that no zxid has been seen yet.
func AppendConnectRequest(b []byte, timeoutMs int32, id int64, password [PasswordLen]byte) []byte {
	b = AppendInt(b, 0)  // the frame's length
	b = AppendInt(b, 0)  // the protocol's version
	b = AppendLong(b, 0) // the last zxid
	b = AppendInt(b, timeoutMs)
	b = AppendLong(b, id)
	b = AppendBytes(b, password[:])
	return AppendBool(b, false) // a server that can only read will not do
}

// ConnectResponse is the server's half of the handshake; id 0: the session has expired.
type ConnectResponse struct {
	TimeoutMs int32
	ID        int64
	Password  [PasswordLen]byte // with which the session can be asked for again
}

// ParseConnectResponse decodes the server's half of the handshake. It returns an error if b is
// nothing that a ZooKeeper server sends.
func ParseConnectResponse(b []byte) (ConnectResponse, error) {
	d := Decoder{B: string(b)}
	if d.Int() != 0 { // protocol version
		return ConnectResponse{}, errors.New("unknown protocol version")
	}
	r := ConnectResponse{TimeoutMs: d.Int(), ID: d.long()}
	passwd := d.Bytes() // a read-only flag may follow
	switch {
	case d.Err != nil:
		return r, d.Err
	case len(d.B) > 1:
		return r, errors.New("trailing bytes")
	case r.ID != 0 && r.TimeoutMs <= 0:
		return r, errors.New("session timeout not positive")
	case r.ID != 0 && len(passwd) != PasswordLen:
		return r, errors.New("password not 16 bytes")
	}
	copy(r.Password[:], passwd)
	return r, nil
}
