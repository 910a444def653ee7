package zktest

import (
	"slices"

	"github.com/zklock/locker/zktest/fault"
)

// Every write gets a zxid, whether it succeeds or not, and its reply carries that zxid: clients
// take the zxid of a create as the czxid of their node. The few exceptions below are the real
// server's own.

// writeOne carries out a write that is no multi: prepare, commit, answer. A write that is refused
// commits an empty transaction.
func (c *conn) writeOne(r *request) answer {
	s := c.s
	if r.err != nil && !c.ignoresBody(r) {
		return c.refuseUnreadable(r)
	}
	mu, code := s.preparerLocked(c.session, c.ids).prepare(r)
	if code != fault.CodeOK {
		s.commitLocked(c.member, nil, 0)
		return c.result(code, nil)
	}
	stats := s.commitLocked(c.member, []mutation{mu}, 0)
	if r.op == fault.OpCheck {
		return answer{silent: true} // here the real server fails to build its reply, and sends none
	}
	return c.ok(func(e *encoder) {
		if r.encode != nil {
			r.encode(e, &mu, &stats[0])
		}
	})
}

// ignoresBody reports whether the server refuses a request whatever its body is.
func (c *conn) ignoresBody(r *request) bool {
	return r.op == fault.OpDeleteContainer && !c.s.opt.dialect.deletesContainers
}

// refuseUnreadable answers a write whose body did not decode. Only in 3.8 it takes a zxid, and even
// there a reconfig takes none.
func (c *conn) refuseUnreadable(r *request) answer {
	if c.s.opt.dialect.zxidBeforeBody && r.op != fault.OpReconfig {
		c.s.commitLocked(c.member, nil, 0)
	}
	return c.result(fault.CodeMarshallingError, nil)
}

// encodePath, encodePathAndStat and encodeStat are the bodies of writes' replies, and of their
// results in a multi's.
func encodePath(e *encoder, m *mutation, _ *Stat) { e.str(m.path) }

func encodePathAndStat(e *encoder, m *mutation, st *Stat) {
	e.str(m.path)
	e.stat(st)
}

func encodeStat(e *encoder, _ *mutation, st *Stat) { e.stat(st) }

// closeSession ends the client's own session, and then the connection.
func (c *conn) closeSession(*request) answer {
	// The end of a session finishes its connections. This one gets its reply first.
	c.phase = max(c.phase, closing)
	// The session's own watches fire for its own ephemerals: the client may still be reading.
	c.s.endSessionLocked(c.member, c.session)
	a := c.ok(nil)
	a.end = true
	return a
}

// multi prepares the parts one by one and commits all of them or none, in one transaction. The
// watches of all parts fire before the reply, part by part.
//
// If a part fails, the reply as a whole says ok all the same. In it the parts before the failed one
// get "ok", the failed one its own code, and those after it "runtime inconsistency".
func (c *conn) multi(r *request) answer {
	if r.err != nil || slices.ContainsFunc(r.parts, func(p request) bool { return p.noPath }) {
		return c.refuseUnreadableMulti(r)
	}
	muts, failed, why := c.preparePartsLocked(r.parts)
	stats := c.s.commitLocked(c.member, muts, 0)
	switch why {
	case fault.CodeOK:
		return c.ok(func(e *encoder) { encodeResults(e, muts, stats) })
	case fault.CodeMarshallingError: // no failure of the part: the handler aborts the whole multi
		return c.result(why, nil)
	}
	return c.ok(func(e *encoder) { encodeFailure(e, len(r.parts), failed, why) })
}

// refuseUnreadableMulti answers a multi whose body did not decode, or that has a part whose path is
// null. It takes a zxid.
func (c *conn) refuseUnreadableMulti(r *request) answer {
	if r.err == nil && c.s.opt.dialect.zxidBeforeBody {
		// The real server takes the zxid, and fails before it makes a transaction of it.
		c.s.zxid++
		return c.result(fault.CodeMarshallingError, func(e *encoder) { encodeResults(e, nil, nil) })
	}
	c.s.commitLocked(c.member, nil, 0)
	return c.result(fault.CodeMarshallingError, nil)
}

// preparePartsLocked prepares the parts of a multi. Each is checked against the state that the
// earlier parts would leave. If one fails, why says so, failed is its index, and there are no
// mutations: the earlier parts' changes exist only in the preparer, which goes.
func (c *conn) preparePartsLocked(parts []request) (muts []mutation, failed int, why fault.Code) {
	p := c.s.preparerLocked(c.session, c.ids)
	for i := range parts {
		part := parts[i] // a copy, since normalize changes it
		if !part.normalize(c.s.opt.dialect) {
			return nil, i, fault.CodeMarshallingError
		}
		mu, code := p.prepare(&part)
		if code != fault.CodeOK {
			return nil, i, code
		}
		muts = append(muts, mu)
	}
	return muts, -1, fault.CodeOK
}

// normalize gives a part of a multi the operation that the real server carries out in its place. It
// returns false if the server can't read the part.
func (r *request) normalize(d *dialect) bool {
	switch r.op {
	case fault.OpCreate, fault.OpCreate2, fault.OpCreateContainer:
		return r.normalizeCreate(d)
	case fault.OpCreateTTL:
		r.normalizeCreateTTL()
		return true
	}
	return r.part == partOfMulti
}

// normalizeCreate is normalize for a create without a TTL. The mode container makes any of them a
// createContainer. In 3.8 every other mode makes it a plain create, even if it was a
// createContainer.
//
// A mode with a TTL can't be read, since the body has none. A mode that does not exist can't be
// read in 3.9 only; in 3.8 create refuses it.
func (r *request) normalizeCreate(d *dialect) bool {
	mode := r.mode()
	switch {
	case mode.hasTTL():
		return false
	case !mode.exists() && !d.modeDecidesPart:
		return false
	case mode == modeContainer:
		r.become(fault.OpCreateContainer)
	case d.modeDecidesPart:
		r.become(fault.OpCreate)
	}
	return true
}

// normalizeCreateTTL is normalize for a create with a TTL. Unless its mode has a TTL too, the
// create loses the TTL.
func (r *request) normalizeCreateTTL() {
	mode := r.mode()
	if mode.hasTTL() {
		return
	}
	r.ttl = noTTL
	if mode == modeContainer {
		r.become(fault.OpCreateContainer)
	} else {
		r.become(fault.OpCreate)
	}
}

// become changes the type of a request that has been decoded.
func (r *request) become(op fault.Op) {
	r.op = op
	r.operation = operationOf(op)
}

// encodePartHeader writes what precedes the result of a part.
func encodePartHeader(e *encoder, op fault.Op, code fault.Code) {
	e.int32(int32(op))
	e.bool(false) // not the end of the list
	e.int32(int32(code))
}

// encodeFailedPart writes the result of a part that failed, or that was not carried out because
// another failed. It has the code twice, in its header and behind it.
func encodeFailedPart(e *encoder, code fault.Code) {
	encodePartHeader(e, opError, code)
	e.int32(int32(code))
}

// encodeEndOfParts writes what ends a list of results: a header without a result.
func encodeEndOfParts(e *encoder) {
	e.int32(int32(opError))
	e.bool(true)
	e.int32(-1)
}

// encodeResults writes the results of a multi that succeeded. The result of any create that has a
// stat says create2.
func encodeResults(e *encoder, muts []mutation, stats []Stat) {
	for i := range muts {
		op := muts[i].op
		if op == fault.OpCreateContainer || op == fault.OpCreateTTL {
			op = fault.OpCreate2
		}
		encodePartHeader(e, op, fault.CodeOK)
		if encode := operationOf(op).encode; encode != nil {
			encode(e, &muts[i], &stats[i])
		}
	}
	encodeEndOfParts(e)
}

// encodeFailure writes the results of a multi of which one part, the one with the index failed, has
// failed with the code why.
func encodeFailure(e *encoder, parts, failed int, why fault.Code) {
	for i := range parts {
		switch {
		case i < failed:
			encodeFailedPart(e, fault.CodeOK)
		case i == failed:
			encodeFailedPart(e, why)
		default:
			encodeFailedPart(e, fault.CodeRuntimeInconsistency)
		}
	}
	encodeEndOfParts(e)
}
