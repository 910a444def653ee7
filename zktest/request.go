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
	err        error // the body did not decode; the operation answers "marshalling error"

	path string
	data []byte
	acl  []ACL
	// an ACL entry whose id is null, which ends the real handler rather than being an invalid ACL
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

// operationOf looks up a type of request.
func operationOf(op fault.Op) *operation {
	if o := operations[op]; o != nil {
		return o
	}
	return unknownOperation
}

// decodeHeader splits a frame into header and body. It fails only for frames that hold no header at
// all.
func decodeHeader(b []byte) (xid int32, op fault.Op, body []byte, err error) {
	d := decoder{b: b}
	xid = d.int32()
	op = fault.Op(d.int32())
	return xid, op, d.b, d.err
}

// decodeRequest never fails: the request's err has the error of a malformed body, because the real
// server answers such a request, and takes a zxid for it if it is a write.
func decodeRequest(xid int32, op fault.Op, body []byte) *request {
	r := &request{xid: xid, op: op, operation: operationOf(op)}
	if r.decode != nil {
		d := &decoder{b: body}
		r.decode(r, d)
		r.err = d.err
	}
	return r
}

// decodePath reads a path alone. Null passes: operations answer it differently.
func decodePath(r *request, d *decoder) {
	p := d.optional()
	if p == nil {
		r.noPath = d.err == nil
		return
	}
	r.path = *p
}

// decodePrefix reads the path of getEphemerals, which may be null.
func decodePrefix(r *request, d *decoder) {
	if r.prefix = d.optional(); r.prefix != nil {
		r.path = *r.prefix
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

func decodeSetData(r *request, d *decoder) {
	decodePath(r, d)
	r.data = d.buffer()
	r.version = d.int32()
}

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

// decodePing gives the request the xid of all pings' replies, whatever xid the client sent. The
// body is ignored.
func decodePing(r *request, _ *decoder) { r.xid = -2 }

func decodeAuth(r *request, d *decoder) {
	d.int32() // an unused type
	r.scheme = d.str()
	r.auth = d.buffer()
}

func decodeSASL(r *request, d *decoder) {
	if r.auth = d.buffer(); r.auth == nil {
		d.fail(errNull)
	}
}

// decodeWatchLists reads the first n of the five lists of watches.
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
		} else if a.Scheme == schemeWorld || a.Scheme == schemeDigest || a.Scheme == schemeIP {
			r.nullACL = true
		}
		r.acl = append(r.acl, a)
	})
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

// allPaths lists every path the request names; faults are selected by them.
func (r *request) allPaths() []string {
	if r.paths != nil {
		return r.paths(r)
	}
	return []string{r.path}
}

// pathsOfParts lets a fault on the path of one part strike the whole multi.
func pathsOfParts(r *request) []string {
	ps := make([]string, len(r.parts))
	for i := range r.parts {
		ps[i] = r.parts[i].path
	}
	return ps
}

func pathsOfLists(r *request) []string {
	var ps []string
	for _, l := range r.lists {
		ps = append(ps, l...)
	}
	return ps
}
