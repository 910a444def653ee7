package zktest

import (
	"errors"

	"github.com/zklock/locker/zktest/fault"
)

// Decoding is separate from execution, and strict about the form only: a request with an impossible
// path or mode is decoded all the same, because the order of the server's checks decides which
// error it gets. Empty and null are distinguished.

// request is any request, decoded. One flat struct serves all of them: the operations share most
// fields, and faults are selected by the path of each.
type request struct {
	*operation // with an unknown type if it is not in the table
	xid        int32
	op         fault.Op
	err        error // why the body did not decode; serve answers for that

	path string
	data []byte
	acl  []ACL
	// an entry of the ACL has a null id, which ends the real handler rather than being invalid
	nullACL bool
	noPath  bool  // the path is null
	flags   int32 // a createMode, addWatchMode or watcherType
	ttl     int64 // milliseconds, or noTTL
	version int32
	watch   bool

	since int64                // setWatches: the last zxid that the client has seen
	lists [watchLists][]string // setWatches: the paths of each list
	parts []request            // multi, multiRead

	scheme string // auth
	auth   []byte
	prefix *string // getEphemerals; may be null
}

// The lists of setWatches, in their order on the wire. A request of the type setWatches has the
// first three, one of the type setWatches2 has all.
const (
	listData       = iota // one-shot watches on nodes that exist
	listExist             // one-shot watches on nodes that do not
	listChild             // one-shot watches on lists of children
	listPersistent        // persistent watches
	listRecursive         // recursive ones
	watchLists            // how many lists there are
)

// noTTL is the TTL of a create that has none on the wire.
const noTTL = -1

var errMixed = errors.New("zktest: reads and writes in one multi")

// unknownOperation is the operation of a request of an unknown type.
var unknownOperation = &operation{}

// operationOf returns the operation of a type of request. It is never nil.
func operationOf(op fault.Op) *operation {
	if o := operations[op]; o != nil {
		return o
	}
	return unknownOperation
}

// decodeHeader splits a frame into header and body. It fails only if the frame is too short for a
// header.
func decodeHeader(b []byte) (xid int32, op fault.Op, body []byte, err error) {
	d := decoder{b: b}
	xid = d.int32()
	op = fault.Op(d.int32())
	return xid, op, d.b, d.err
}

// decodeRequest decodes a request of any type, known or not. It never fails. The error of a
// malformed body is in the request, because the real server answers such a request, and may take a
// zxid for it.
func decodeRequest(xid int32, op fault.Op, body []byte) *request {
	r := &request{xid: xid, op: op, operation: operationOf(op)}
	if r.decode != nil {
		d := &decoder{b: body}
		r.decode(r, d)
		r.err = d.err
	}
	return r
}

// decodePath reads a path. Null is no error here: operations answer it differently.
func decodePath(r *request, d *decoder) {
	p := d.optional()
	switch {
	case d.err != nil:
	case p == nil:
		r.noPath = true
	default:
		r.path = *p
	}
}

// decodePrefix reads the path of getEphemerals, which may be null.
func decodePrefix(r *request, d *decoder) {
	r.prefix = d.optional()
	if r.prefix != nil {
		r.path = *r.prefix // faults are selected by it
	}
}

// decodeVersioned reads delete and check.
func decodeVersioned(r *request, d *decoder) {
	decodePath(r, d)
	r.version = d.int32()
}

// decodeWatched reads a request that may set a watch.
func decodeWatched(r *request, d *decoder) {
	decodePath(r, d)
	r.watch = d.bool()
}

// decodeFlagged reads addWatch, checkWatches and removeWatches.
func decodeFlagged(r *request, d *decoder) {
	decodePath(r, d)
	r.flags = d.int32()
}

// decodeCreate reads any of the four creates.
func decodeCreate(r *request, d *decoder) {
	decodePath(r, d)
	r.data = d.buffer()
	r.decodeACL(d)
	r.flags = d.int32()
	r.ttl = noTTL
	if r.op == fault.OpCreateTTL {
		r.ttl = d.int64()
	}
}

// decodeSetData reads setData.
func decodeSetData(r *request, d *decoder) {
	decodePath(r, d)
	r.data = d.buffer()
	r.version = d.int32()
}

// decodeSetACL reads setACL.
func decodeSetACL(r *request, d *decoder) {
	decodePath(r, d)
	r.decodeACL(d)
	r.version = d.int32()
}

// decodeReconfig reads joining, leaving and new members, and the configuration's version, and keeps
// nothing: a reconfig is refused, but only if it is well-formed.
func decodeReconfig(_ *request, d *decoder) {
	d.optional()
	d.optional()
	d.optional()
	d.int64()
}

// pingXid is the xid of the reply to every ping, whatever xid the client sent.
const pingXid = -2

// decodePing ignores the body.
func decodePing(r *request, _ *decoder) { r.xid = pingXid }

// decodeAuth reads a scheme and credentials.
func decodeAuth(r *request, d *decoder) {
	d.int32() // an unused type
	r.scheme = d.str()
	r.auth = d.buffer()
}

// decodeSASL reads a message of a negotiation, which must not be null.
func decodeSASL(r *request, d *decoder) {
	r.auth = d.buffer()
	if r.auth == nil {
		d.fail(errNull)
	}
}

// decodeWatchLists returns a function that reads the first n lists of setWatches.
func decodeWatchLists(n int) func(*request, *decoder) {
	return func(r *request, d *decoder) {
		r.since = d.int64()
		for i := range n {
			r.lists[i] = d.strs()
		}
	}
}

// decodeACL reads a list of ACLs. A null list is the same as an empty one: both are refused later.
func (r *request) decodeACL(d *decoder) {
	r.acl = []ACL{}
	d.vector(func() {
		perms := d.int32()
		scheme, id := d.optional(), d.optional()
		if d.err != nil {
			return
		}
		a := ACL{Perms: perms}
		if scheme != nil {
			a.Scheme = *scheme // a null scheme is as invalid as an empty one
		}
		if id != nil {
			a.ID = *id
		}
		if id == nil && needsID(a.Scheme) {
			r.nullACL = true
		}
		r.acl = append(r.acl, a)
	})
}

// needsID reports whether the real server reads the id of an entry of the scheme.
func needsID(scheme string) bool {
	return scheme == schemeWorld || scheme == schemeDigest || scheme == schemeIP
}

// decodeParts reads the parts of a multi or multiRead up to the closing header. Unlike other
// requests it refuses an unknown part at once, because it cannot find the start of the next one.
func decodeParts(r *request, d *decoder) {
	for d.err == nil {
		// Each part has a header of its own; the closing header has no part after it.
		op := fault.Op(d.int32())
		done := d.bool()
		d.int32() // an error code, which only replies have
		if done || d.err != nil {
			return
		}
		part := request{xid: r.xid, op: op, operation: operationOf(op)}
		if part.part == partOfNone {
			d.fail(errors.New("zktest: " + op.String() + " in a multi"))
			return
		}
		part.decode(&part, d)
		if len(r.parts) > 0 && part.part != r.parts[0].part {
			d.fail(errMixed)
			return
		}
		r.parts = append(r.parts, part)
	}
}

// allPaths returns every path that the request names. Faults are selected by them.
func (r *request) allPaths() []string {
	if r.paths != nil {
		return r.paths(r)
	}
	return []string{r.path}
}

// pathsOfParts returns the path of each part, so that a fault on the path of one part strikes the
// whole multi.
func pathsOfParts(r *request) []string {
	ps := make([]string, len(r.parts))
	for i := range r.parts {
		ps[i] = r.parts[i].path
	}
	return ps
}

// pathsOfLists returns the paths of all lists of a setWatches.
func pathsOfLists(r *request) []string {
	var ps []string
	for _, l := range r.lists {
		ps = append(ps, l...)
	}
	return ps
}
