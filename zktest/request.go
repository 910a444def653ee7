package zktest

import "errors"

// Decoding is apart from carrying out, and strict about nothing but the form: a request with a path that no znode can
// have, or a mode that does not exist, is decoded all the same, because the order of the server's checks decides which
// error such a request earns. What is kept with care is the difference between empty and null.

// request is any request, decoded. One flat struct serves all of them: the operations share most fields, and the
// fault injector wants to look at the path of each without knowing which one it is.
type request struct {
	xid int32
	op  Op
	err error // the body did not decode; the operation answers "marshalling error"

	path    string
	data    []byte
	acl     []ACL
	nullACL bool  // an ACL entry whose id is null: more than the real handler can take, and so no invalid ACL
	noPath  bool  // the path is null: for most operations likewise
	flags   int32 // create: the mode. addWatch: the mode. removeWatches, checkWatches: the type
	ttl     int64
	version int32
	watch   bool

	since int64       // setWatches: the zxid up to which the client knows everything
	lists [5][]string // setWatches: data, exist, child, persistent, recursive
	parts []request   // multi, multiRead

	scheme string // auth
	auth   []byte
	prefix *string // getEphemerals; may be null
}

var errMixed = errors.New("zktest: reads and writes in one multi")

// decodeHeader splits a frame into header and body. It fails only for frames that hold no header at all.
func decodeHeader(b []byte) (xid int32, op Op, body []byte, err error) {
	d := decoder{b: b}
	xid = d.int32()
	op = Op(d.int32())
	return xid, op, d.b, d.err
}

// decodeRequest never fails: what is wrong with the body is kept in the request's err, because the real server
// answers such a request, and takes a zxid for it if it is a write.
func decodeRequest(xid int32, op Op, body []byte) *request {
	r := &request{xid: xid, op: op}
	d := &decoder{b: body}
	switch op {
	case OpMulti, OpMultiRead:
		r.decodeMulti(d)
	case OpAuth:
		d.int32() // a type that nobody uses
		r.scheme = d.str()
		r.auth = d.buffer()
	case OpSASL:
		if r.auth = d.buffer(); r.auth == nil {
			d.fail(errNull)
		}
	case OpSetWatches, OpSetWatches2:
		r.since = d.int64()
		n := 3
		if op == OpSetWatches2 {
			n = 5
		}
		for i := range n {
			r.lists[i] = d.strs()
		}
	case OpGetEphemerals: // the one request that may name no path
		r.prefix = d.optional()
		if r.prefix != nil {
			r.path = *r.prefix
		}
	case OpReconfig: // refused, but only if it could be read
		d.optional()
		d.optional()
		d.optional()
		d.int64()
	default:
		r.decodeSimple(d)
	}
	r.err = d.err
	return r
}

// namedPath reads the path; null passes for now, since some operations call it a bad argument.
func (r *request) namedPath(d *decoder) {
	p := d.optional()
	if p == nil {
		r.noPath = d.err == nil
		return
	}
	r.path = *p
}

// decodeSimple reads the operations that may also be part of a multi, and their like.
func (r *request) decodeSimple(d *decoder) {
	switch r.op {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
		r.namedPath(d)
		r.data = d.buffer()
		r.acls(d)
		r.flags = d.int32()
		r.ttl = -1 // none
		if r.op == OpCreateTTL {
			r.ttl = d.int64()
		}
	case OpDelete, OpCheck:
		r.namedPath(d)
		r.version = d.int32()
	case OpSetData:
		r.namedPath(d)
		r.data = d.buffer()
		r.version = d.int32()
	case OpSetACL:
		r.namedPath(d)
		r.acls(d)
		r.version = d.int32()
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2:
		r.namedPath(d)
		r.watch = d.bool()
	case OpGetACL, OpSync, OpGetAllChildrenNumber, OpDeleteContainer:
		r.namedPath(d)
	case OpAddWatch, OpRemoveWatches, OpCheckWatches:
		r.namedPath(d)
		r.flags = d.int32()
	}
}

// acls reads a list of ACLs. A null list is as good as an empty one: both are refused later.
func (r *request) acls(d *decoder) {
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
		} else if a.Scheme == "world" || a.Scheme == "digest" || a.Scheme == "ip" {
			r.nullACL = true
		}
		r.acl = append(r.acl, a)
	})
}

// decodeMulti reads the parts up to the closing header. Unlike the other requests it refuses a part it does not
// know at once, because it cannot tell where the next one begins.
func (r *request) decodeMulti(d *decoder) {
	for d.err == nil {
		// Each part has a header of its own, and the one that says done has no part behind it.
		op := Op(d.int32())
		done := d.bool()
		d.int32() // an error code, which only replies have
		if done || d.err != nil {
			return
		}
		read := false
		switch op {
		case OpGetChildren, OpGetData:
			read = true
		case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL, OpDelete, OpSetData, OpCheck:
		default:
			d.fail(errors.New("zktest: " + op.String() + " in a multi"))
			return
		}
		part := request{xid: r.xid, op: op}
		part.decodeSimple(d)
		// A multi is all writes or all reads; the first part decides.
		if len(r.parts) > 0 && read != (r.parts[0].op == OpGetChildren || r.parts[0].op == OpGetData) {
			d.fail(errMixed)
			return
		}
		r.parts = append(r.parts, part)
	}
}

// paths lists every path the request names, for the selection of faults.
func (r *request) paths() []string {
	switch r.op {
	case OpMulti, OpMultiRead: // a fault on the path of one part strikes the whole
		ps := make([]string, len(r.parts))
		for i := range r.parts {
			ps[i] = r.parts[i].path
		}
		return ps
	case OpSetWatches, OpSetWatches2:
		var ps []string
		for _, l := range r.lists {
			ps = append(ps, l...)
		}
		return ps
	}
	return []string{r.path}
}
