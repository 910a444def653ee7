package zktest

import "slices"

// Every write gets a zxid, whatever becomes of it, and its reply carries that zxid: clients take the zxid of a create
// for the czxid of their node without asking again. The few ways around that below are the real server's own.

// writeOp carries out a write: prepare, commit, reply. A write that fails takes a zxid as well. False ends the
// connection, after what is queued. The server's lock is held.
func (c *conn) writeOp(r *request, struck []*Injection) bool {
	s := c.s
	if r.op == OpCloseSession {
		c.closing = true // this connection still gets its reply; the others of the session are closed at once
		// Its own watches fire for its own ephemerals, before the reply: the client may still be listening.
		s.endSession(c.member, c.session)
		c.reply(r.xid, c.member.tree.zxid, CodeOK, nil, struck)
		return false
	}
	if r.err != nil && (r.op != OpDeleteContainer || s.opt.version != Version38) {
		// Only 3.8 gives most writes a zxid before it decodes them, and later ones a multi alone.
		if r.op == OpMulti || r.op != OpReconfig && s.opt.version == Version38 {
			s.commit(c.member, nil, 0)
		}
		c.reply(r.xid, c.member.tree.zxid, CodeMarshallingError, nil, struck)
		return true
	}
	if r.op == OpMulti {
		c.multi(r, struck)
		return true
	}
	mu, code := s.preparer(c.session, c.ids).prepare(r)
	// A refused write commits nothing, but it commits.
	var muts []mutation
	if code == CodeOK {
		muts = []mutation{mu}
	}
	stats := s.commit(c.member, muts, 0)
	if r.op == OpCheck && code == CodeOK {
		return true // the 3.8 server trips over its own reply here, and sends none
	}
	c.reply(r.xid, c.member.tree.zxid, code, func(e *encoder) {
		if code != CodeOK {
			return
		}
		switch r.op { // delete has nothing to say
		case OpCreate:
			e.str(mu.path)
		case OpCreate2, OpCreateContainer, OpCreateTTL:
			e.str(mu.path)
			e.stat(&stats[0])
		case OpSetData, OpSetACL:
			e.stat(&stats[0])
		}
	}, struck)
	return true
}

// multi prepares the parts one by one and commits all or none. When one fails, those before it are told "ok", it
// gets its own code, and those behind it "runtime inconsistency"; the reply as a whole says ok.
func (c *conn) multi(r *request, struck []*Injection) {
	s := c.s
	if slices.ContainsFunc(r.parts, func(p request) bool { return p.noPath }) {
		if s.opt.version != Version38 {
			s.commit(c.member, nil, 0)
			c.reply(r.xid, c.member.tree.zxid, CodeMarshallingError, nil, struck)
			return
		}
		// 3.8 trips after it took the zxid and before it made a transaction of it.
		s.zxid++
		c.reply(r.xid, c.member.tree.zxid, CodeMarshallingError, func(e *encoder) { encodeResults(e, nil, nil) }, struck)
		return
	}
	// One preparer for all: each part is checked against what the parts before it would leave.
	p := s.preparer(c.session, c.ids)
	var muts []mutation
	failed, why := -1, CodeOK
	for i := range r.parts {
		part := r.parts[i]
		if !normalize(&part, s.opt.version) {
			failed, why = -1, CodeMarshallingError
			break
		}
		mu, code := p.prepare(&part)
		if code == CodeMarshallingError { // not a failure of the part: the handler gives up on the whole
			failed, why = -1, code
			break
		}
		if code != CodeOK {
			failed, why = i, code
			break
		}
		muts = append(muts, mu)
	}
	// All or nothing: the preparer's records die with it, and so does what the earlier parts would have done.
	if why != CodeOK {
		muts = nil
	}
	// One transaction and one zxid for all parts; the watches of all of them fire before the reply, part by part.
	stats := s.commit(c.member, muts, 0)
	zxid := c.member.tree.zxid
	switch {
	case why == CodeMarshallingError:
		c.reply(r.xid, zxid, why, nil, struck)
	case why != CodeOK:
		c.reply(r.xid, zxid, CodeOK, func(e *encoder) { encodeFailure(e, len(r.parts), failed, why) }, struck)
	default:
		c.reply(r.xid, zxid, CodeOK, func(e *encoder) { encodeResults(e, muts, stats) }, struck)
	}
}

// normalize gives a part of a multi the type that the real server gives it: which create it is depends on its
// flags alone, to 3.8, while later ones let create2 be what it is. A TTL mode without a TTL is more than that server
// can take, and so is no mode at all to the later ones.
func normalize(part *request, v Version) bool {
	withTTL := part.flags == modeTTL || part.flags == modeTTLSequential
	switch part.op {
	case OpCreate, OpCreate2, OpCreateContainer:
		if withTTL || v != Version38 && (part.flags < modePersistent || part.flags > modeTTLSequential) {
			return false
		}
	case OpCreateTTL:
		if withTTL {
			return true
		}
		part.ttl = -1
	case OpGetChildren, OpGetData:
		return false // these belong into a multiRead
	default:
		return true
	}
	if v == Version38 || part.op == OpCreateTTL {
		part.op = OpCreate
	}
	if part.flags == modeContainer {
		part.op = OpCreateContainer
	}
	return true
}

// multiHeader precedes each result, and ends the list with type -1.
func multiHeader(e *encoder, op Op, done bool, code Code) {
	e.int32(int32(op))
	e.bool(done)
	e.int32(int32(code))
}

// encodeResults writes the parts' results. Those creates that answer with a stat all call themselves create2.
func encodeResults(e *encoder, muts []mutation, stats []Stat) {
	for i := range muts {
		switch op := muts[i].op; op {
		case OpCreate:
			multiHeader(e, op, false, CodeOK)
			e.str(muts[i].path)
		case OpCreate2, OpCreateContainer, OpCreateTTL:
			multiHeader(e, OpCreate2, false, CodeOK)
			e.str(muts[i].path)
			e.stat(&stats[i])
		case OpSetData:
			multiHeader(e, op, false, CodeOK)
			e.stat(&stats[i])
		default:
			multiHeader(e, op, false, CodeOK)
		}
	}
	multiHeader(e, opError, true, -1)
}

// encodeFailure writes one error per part. Each has its code twice, in its header and behind it.
func encodeFailure(e *encoder, parts, failed int, why Code) {
	for i := range parts {
		code := CodeOK
		switch {
		case i == failed:
			code = why
		case i > failed:
			code = CodeRuntimeInconsistency
		}
		multiHeader(e, opError, false, code)
		e.int32(int32(code))
	}
	multiHeader(e, opError, true, -1)
}
