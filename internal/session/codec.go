package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// The wire format is jute, as in ZooKeeper's zookeeper.jute: big-endian integers, strings and byte strings behind a
// 32-bit length (−1: null), vectors behind a 32-bit count.

const (
	opCreate          int32 = 1
	opDelete          int32 = 2
	opExists          int32 = 3
	opGetData         int32 = 4
	opSetData         int32 = 5
	opGetACL          int32 = 6
	opSetACL          int32 = 7
	opGetChildren     int32 = 8
	opSync            int32 = 9
	opPing            int32 = 11
	opGetChildren2    int32 = 12
	opCheck           int32 = 13
	opMulti           int32 = 14
	opCreate2         int32 = 15
	opRemoveWatches   int32 = 18
	opCreateContainer int32 = 19
	opMultiRead       int32 = 22
	opAuth            int32 = 100
	opSetWatches      int32 = 101
	opSASL            int32 = 102
	opClose           int32 = -11
	opError           int32 = -1
)

const (
	xidNotification int32 = -1
	xidPing         int32 = -2
)

const (
	codeUnreadable     int32 = -1 << 30 // sent by no server: the reply to a multi can't be read
	codeOK             int32 = 0
	codeInconsistent   int32 = -2
	codeConnectionLoss int32 = -4
	codeUnimplemented  int32 = -6
	codeServerTimeout  int32 = -7
	codeBadArguments   int32 = -8
	codeAPIError       int32 = -100 // all lower ones are API errors too
	codeNoNode         int32 = -101
	codeNoAuth         int32 = -102
	codeSessionExpired int32 = -112
	codeAuthFailed     int32 = -115
	codeSessionMoved   int32 = -118
	codeRequestTimeout int32 = -122
	codeAuthRequired   int32 = -124
	codeThrottled      int32 = -127
)

// definite reports whether code tells what became of the request. After other codes, from a server in trouble, it may have
// been carried out.
func definite(code int32) bool {
	switch code {
	case codeOK, codeUnimplemented, codeBadArguments:
		return true
	}
	return code <= codeAPIError && code != codeRequestTimeout
}

// tryAgain reports whether code comes from a server that stays connected and could not see to the request now.
func tryAgain(code int32) bool {
	switch code {
	case codeConnectionLoss, codeServerTimeout, codeRequestTimeout, codeThrottled:
		return true
	}
	return false
}

// throughLeader reports whether a follower needs the leader to answer op.
func throughLeader(op int32) bool {
	switch op {
	case opCreate, opDelete, opSetData, opSetACL, opSync, opMulti, opCreateContainer:
		return true
	}
	return false
}

func appendInt(b []byte, v int32) []byte     { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func appendLong(b []byte, v int64) []byte    { return binary.BigEndian.AppendUint64(b, uint64(v)) }
func appendString(b []byte, s string) []byte { return append(appendInt(b, int32(len(s))), s...) }

func appendBytes(b, p []byte) []byte {
	if p == nil {
		return appendInt(b, -1)
	}
	return append(appendInt(b, int32(len(p))), p...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendStrings(b []byte, ss []string) []byte {
	b = appendInt(b, int32(len(ss)))
	for _, s := range ss {
		b = appendString(b, s)
	}
	return b
}

func appendACL(b []byte, acl []zk.ACL) []byte {
	b = appendInt(b, int32(len(acl)))
	for _, a := range acl {
		b = appendString(appendString(appendInt(b, a.Perms), a.Scheme), a.ID)
	}
	return b
}

// appendHeader begins a frame: room for the length and the transaction id, which are filled in later, and the opcode.
func appendHeader(b []byte, op int32) []byte { return appendInt(appendInt(appendInt(b, 0), 0), op) }

var errShort = errors.New("frame too short") // it ends inside a field, or has an impossible length

// decoder reads a frame. After the first failure every read returns zero and err stays set, so callers check once. A
// length from the wire is not trusted before the bytes behind it have been seen.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.err = errShort
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) int() int32 {
	if p := d.take(4); p != nil {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

func (d *decoder) long() int64 {
	if p := d.take(8); p != nil {
		return int64(binary.BigEndian.Uint64(p))
	}
	return 0
}

func (d *decoder) bool() bool {
	p := d.take(1)
	return p != nil && p[0] != 0
}

func (d *decoder) string() string { return string(d.stringBytes()) }
func (d *decoder) bytes() []byte  { return bytes.Clone(d.stringBytes()) }

func (d *decoder) stringBytes() []byte {
	n := d.int()
	if n == -1 {
		return nil
	}
	return d.take(int(n))
}

// names reads the names of a znode's children; no server has an empty one.
func (d *decoder) names() []string {
	n := d.int()
	if n == -1 || n == 0 || d.err != nil {
		return nil
	}
	if n < 0 || int(n) > len(d.b)/5 { // 4 bytes for the length, and at least one for the name
		d.err = errShort
		return nil
	}
	names := make([]string, n)
	for i := range names {
		name := d.take(int(d.int()))
		if len(name) == 0 {
			d.err = errShort
			return nil
		}
		names[i] = string(name)
	}
	return names
}

func (d *decoder) skipNames() {
	for n := d.int(); n > 0 && d.err == nil; n-- {
		d.stringBytes()
	}
}

func (d *decoder) none() None { return None{} }

const statLen = 68

func (d *decoder) stat() (s zk.Stat) {
	s.Czxid, s.Mzxid, s.Ctime, s.Mtime = d.long(), d.long(), d.long(), d.long()
	s.Version, s.Cversion, s.Aversion = d.int(), d.int(), d.int()
	s.EphemeralOwner, s.DataLength, s.NumChildren, s.Pzxid = d.long(), d.int(), d.int(), d.long()
	return s
}

func (d *decoder) acl() []zk.ACL {
	n := d.int()
	if d.err != nil || n < 0 || int(n) > len(d.b)/12 {
		if n != -1 {
			d.err = errShort
		}
		return nil
	}
	acl := make([]zk.ACL, n)
	for i := range acl {
		acl[i] = zk.ACL{Perms: d.int(), Scheme: d.string(), ID: d.string()}
	}
	return acl
}

type replyHeader struct {
	xid  int32
	zxid int64
	code int32
}

const replyHeaderLen = 16

func (d *decoder) header() replyHeader { return replyHeader{d.int(), d.long(), d.int()} }

// connectResponse is the server's half of the handshake; id 0: the session has expired.
type connectResponse struct {
	timeoutMs int32
	id        int64
}

func parseConnectResponse(b []byte) (connectResponse, error) {
	d := decoder{b: b}
	if d.int() != 0 { // protocol version
		return connectResponse{}, errors.New("unknown protocol version")
	}
	r := connectResponse{timeoutMs: d.int(), id: d.long()}
	passwd := d.bytes() // a read-only flag may follow
	switch {
	case d.err != nil:
		return r, d.err
	case len(d.b) > 1:
		return r, errors.New("trailing bytes")
	case r.id != 0 && r.timeoutMs <= 0:
		return r, errors.New("session timeout not positive")
	case r.id != 0 && len(passwd) != 16:
		return r, errors.New("password not 16 bytes")
	}
	return r, nil
}

func errOf(code int32) error {
	if err, ok := codes[code]; ok {
		return err
	}
	return fmt.Errorf("server's error code %d", code)
}

// codes are those of ZooKeeper's KeeperException.
var codes = map[int32]error{
	-1:                 errors.New("the server reports a system error"),
	codeInconsistent:   errors.New("rolled back because of another operation of the transaction"),
	-3:                 errors.New("the server reports an inconsistency of its data"),
	codeConnectionLoss: errors.New("the server has lost its connection"),
	-5:                 errors.New("the server can't read the request"),
	codeUnimplemented:  errors.New("operation not implemented by this server"),
	codeServerTimeout:  errors.New("the server's time for the operation was over"),
	codeBadArguments:   zk.ErrBadArguments,
	-12:                errors.New("the server does not know the session"),
	codeAPIError:       zk.ErrAPIError,
	codeNoNode:         zk.ErrNoNode,
	codeNoAuth:         zk.ErrNoAuth,
	-103:               zk.ErrBadVersion,
	-108:               zk.ErrNoChildrenForEphemerals,
	-110:               zk.ErrNodeExists,
	-111:               zk.ErrNotEmpty,
	codeSessionExpired: ErrExpired,
	-114:               zk.ErrInvalidACL,
	codeAuthFailed:     ErrAuth,
	codeSessionMoved:   zk.ErrSessionMoved,
	-119:               errors.New("server is read-only"),
	-120:               errors.New("no ephemeral znode on a local session: the servers' localSessionsUpgradingEnabled has to be true"),
	codeRequestTimeout: errors.New("the request took too long"),
	codeAuthRequired:   ErrAuth,
	-125:               errors.New("quota exceeded"),
	codeThrottled:      errors.New("the server has too much to do and has dropped the request"),
}
