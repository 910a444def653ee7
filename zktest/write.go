package zktest

import (
	"slices"

	"github.com/zklock/locker/zktest/fault"
)

// Every write gets a zxid, whether it succeeds or not, and its reply carries that zxid: clients
// take the zxid of a create as the czxid of their node. The few exceptions below are the real
// server's own.

// writeOne carries out a write that is no multi: prepare, commit, answer. A write that fails also
// takes a zxid.
func (c *conn) writeOne(r *request) answer {
	s := c.s
	if r.err != nil && (r.op != fault.OpDeleteContainer || s.opt.dialect.deletesContainers) {
		if r.op != fault.OpReconfig && s.opt.dialect.zxidBeforeBody {
			s.commitLocked(c.member, nil, 0)
		}
		return c.result(fault.CodeMarshallingError, nil)
	}
	mu, code := s.preparerLocked(c.session, c.ids).prepare(r)
	if code != fault.CodeOK { // a refused write commits an empty transaction
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

// encodePath, encodePathAndStat and encodeStat are the bodies of writes' replies, and of their
// results in a multi's.
func encodePath(e *encoder, m *mutation, _ *Stat) { e.str(m.path) }

func encodePathAndStat(e *encoder, m *mutation, st *Stat) {
	e.str(m.path)
	e.stat(st)
}

func encodeStat(e *encoder, _ *mutation, st *Stat) { e.stat(st) }

// closeSession is the client's own end of its session.
func (c *conn) closeSession(*request) answer {
	// The end of the session closes its connections. This one gets its reply first.
	c.phase = max(c.phase, closing)
	// Its own watches fire for its own ephemerals, before the reply: the client may still be
	// reading.
	c.s.endSessionLocked(c.member, c.session)
	a := c.ok(nil)
	a.end = true
	return a
}

// multi prepares the parts one by one and commits all or none. When one fails, the parts before it
// get "ok", the failed one its own code, and those after it "runtime inconsistency"; the reply as a
// whole says ok.
func (c *conn) multi(r *request) answer {
	s := c.s
	noPath := slices.ContainsFunc(r.parts, func(p request) bool { return p.noPath })
	if r.err == nil && noPath && s.opt.dialect.zxidBeforeBody {
		// The real server fails after it took the zxid and before it makes a transaction of it.
		s.zxid++
		return c.result(fault.CodeMarshallingError, func(e *encoder) { encodeResults(e, nil, nil) })
	}
	if r.err != nil || noPath {
		s.commitLocked(c.member, nil, 0)
		return c.result(fault.CodeMarshallingError, nil)
	}
	muts, failed, why := s.preparePartsLocked(c, r.parts)
	// One transaction and one zxid for all parts; the watches of all of them fire before the reply,
	// part by part.
	stats := s.commitLocked(c.member, muts, 0)
	switch why {
	case fault.CodeOK:
		return c.ok(func(e *encoder) { encodeResults(e, muts, stats) })
	case fault.CodeMarshallingError:
		// not a failure of the part: the handler aborts the whole multi
		return c.result(why, nil)
	}
	return c.ok(func(e *encoder) { encodeFailure(e, len(r.parts), failed, why) })
}

// preparePartsLocked prepares the parts of a multi: each is checked against the state that the
// earlier parts would leave. If one fails there are no mutations: the preparer's records, and with
// them the earlier parts' changes, are discarded.
func (s *Server) preparePartsLocked(
	c *conn, parts []request,
) (muts []mutation, failed int, why fault.Code) {
	p := s.preparerLocked(c.session, c.ids)
	for i := range parts {
		part := parts[i]
		if !part.normalize(s.opt.dialect) {
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

// normalize gives a part of a multi the type that the real server gives it: the mode makes a create
// a container, and for some versions the mode alone decides. Those fail on a TTL mode without a
// TTL, the others on a missing mode.
func (r *request) normalize(d *dialect) bool {
	withTTL := r.flags == modeTTL || r.flags == modeTTLSequential
	switch r.op {
	case fault.OpCreate, fault.OpCreate2, fault.OpCreateContainer:
		if withTTL || !d.modeDecidesPart &&
			(r.flags < modePersistent || r.flags > modeTTLSequential) {
			return false
		}
	case fault.OpCreateTTL:
		if withTTL {
			return true
		}
		r.ttl = -1
	default:
		return r.part == partOfMulti
	}
	if d.modeDecidesPart || r.op == fault.OpCreateTTL {
		r.op = fault.OpCreate
	}
	if r.flags == modeContainer {
		r.op = fault.OpCreateContainer
	}
	r.operation = operationOf(r.op)
	return true
}

// encodePartHeader precedes each result, and ends the list with type -1.
func encodePartHeader(e *encoder, op fault.Op, done bool, code fault.Code) {
	e.int32(int32(op))
	e.bool(done)
	e.int32(int32(code))
}

// encodeResults writes the parts' results. ZooKeeper calls all creates that answer with a stat
// create2.
func encodeResults(e *encoder, muts []mutation, stats []Stat) {
	for i := range muts {
		op := muts[i].op
		if op == fault.OpCreateContainer || op == fault.OpCreateTTL {
			op = fault.OpCreate2
		}
		encodePartHeader(e, op, false, fault.CodeOK)
		if encode := operationOf(op).encode; encode != nil {
			encode(e, &muts[i], &stats[i])
		}
	}
	encodePartHeader(e, opError, true, -1)
}

// encodeFailure writes one error per part. Each has its code twice, in its header and behind it.
func encodeFailure(e *encoder, parts, failed int, why fault.Code) {
	for i := range parts {
		code := fault.CodeOK
		switch {
		case i == failed:
			code = why
		case i > failed:
			code = fault.CodeRuntimeInconsistency
		}
		encodePartHeader(e, opError, false, code)
		e.int32(int32(code))
	}
	encodePartHeader(e, opError, true, -1)
}
