package session

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"
)

// Multi carries out several writes in one transaction: all or none. The operations are the driver's: *zk.CreateRequest
// (any Mode as its Flags), *zk.DeleteRequest, *zk.SetDataRequest and *zk.CheckVersionRequest (version −1: the znode
// exists). It behaves as the other writes do. When it returns nil, everything has been done, and there is a response
// for each operation. When the server refused, the error is that of the operation that failed, the responses, one for
// each operation, say which, and nothing has been done.
func (s *Session) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	tx, err := s.Transact(ctx, ops...)
	return tx.Responses, err
}

// Transaction is what a Multi did.
type Transaction struct {
	Responses []zk.MultiResponse // one for each operation; also when one was refused, none of which then was done
	Zxid      int64              // the czxid of every znode that it made; 0 when nothing was done
}

// Transact is Multi that also returns the transaction's zxid.
func (s *Session) Transact(ctx context.Context, ops ...any) (Transaction, error) {
	a, _ := s.multi(ops)
	return one(ctx, s, a)
}

// multi encodes a multi. One without an operation is not sent: it would do nothing.
func (s *Session) multi(ops []any) (*Result[Transaction], []touch) {
	if len(ops) == 0 {
		return &Result[Transaction]{}, nil
	}
	var body []byte
	var changes []change
	var containers []container
	touches := make([]touch, len(ops))
	for i, op := range ops {
		var err error
		begin := len(body)
		if body, touches[i], err = s.appendOp(body, op); err != nil {
			return &Result[Transaction]{Err: fmt.Errorf("session: multi: %w", err)}, nil
		}
		switch op := op.(type) {
		case *zk.CreateRequest:
			if Mode(op.Flags) == Container {
				containers = append(containers, container{op: opFrame + begin, mode: opFrame + len(body) - 4})
			}
			changes = append(changes, changeOf(op.Path, Mode(op.Flags), i)...)
		case *zk.DeleteRequest:
			made := slices.IndexFunc(changes, func(ch change) bool { return ch.kind == makes && ch.path == op.Path })
			if made >= 0 { // it is gone when the transaction is over
				changes = slices.Delete(changes, made, made+1)
				break
			}
			changes = append(changes, change{deletes, op.Path, i})
		}
	}
	a := s.transaction("multi", body, touches)
	a.r.changes, a.r.containers = changes, containers
	return a, touches
}

// transaction is a multi with the operations of body, on the znodes that they touch.
func (s *Session) transaction(name string, body []byte, touches []touch) *Result[Transaction] {
	body = appendMultiHeader(body, -1, true)
	a := &Result[Transaction]{r: newRequest(opMulti, name, touches[0].path, func(b []byte) []byte { return append(b, body...) })}
	a.decode = func() (Transaction, error) {
		tx, err := s.decodeTransaction(a.r, touches)
		s.ephemerals.record(a.r, err, func(ch change) string { return tx.Responses[ch.op].String })
		return tx, err
	}
	return a
}

func (s *Session) decodeTransaction(r *request, touches []touch) (Transaction, error) {
	d := &decoder{b: r.reply}
	resps, codes := s.decodeMulti(d, len(touches))
	failed := -1
	for i, code := range codes {
		// Beside the operation that failed, those before it are answered with "rolled back" (0 on the wire) and those
		// behind it with "runtime inconsistency".
		if code != codeOK && (failed < 0 || codes[failed] == codeInconsistent) {
			failed = i
		}
	}
	switch {
	case d.err != nil && r.header.code != codeOK: // refused as a whole, without a word on the operations
		return Transaction{}, r.result(d)
	case d.err != nil || len(resps) != len(touches):
		return Transaction{}, s.garbled(r, errShort)
	case failed < 0 && r.header.code != codeOK:
		return Transaction{}, s.garbled(r, fmt.Errorf("refused (%w), and every operation done", errOf(r.header.code)))
	case failed >= 0:
		code, path := codes[failed], touches[failed].path
		if code == codeNoNode && !slices.ContainsFunc(touches[:failed], func(t touch) bool { return t.path == path }) { // else it may be their doing
			s.ephemerals.gone(path, r.header.zxid, true)
		}
		return Transaction{Responses: resps}, &OpError{Op: "multi", Path: path, Err: errOf(code), unknown: undecided(code)}
	}
	for i, resp := range resps {
		if resp.String != "" && !mayHaveMade(touches[i].path, resp.String) { // only a create answers with a path
			return Transaction{}, s.garbled(r, errOtherPath)
		}
	}
	return Transaction{resps, r.header.zxid}, nil
}

// appendOp encodes one operation, and returns what it touches, as the caller named it.
func (s *Session) appendOp(b []byte, op any) ([]byte, touch, error) {
	begin := func(code int32, path string) []byte {
		return appendString(appendMultiHeader(b, code, false), s.join(path))
	}
	switch op := op.(type) {
	case *zk.CreateRequest:
		if op != nil {
			mode := Mode(op.Flags)
			b = appendACL(appendBytes(begin(mode.op(), op.Path), op.Data), op.Acl)
			return appendInt(b, op.Flags), touch{op.Path, mode.ephemeral()}, checkCreate(op.Path, mode)
		}
	case *zk.DeleteRequest:
		if op != nil {
			return appendInt(begin(opDelete, op.Path), op.Version), touch{path: op.Path}, CheckPath(op.Path)
		}
	case *zk.SetDataRequest:
		if op != nil {
			return appendInt(appendBytes(begin(opSetData, op.Path), op.Data), op.Version), touch{path: op.Path}, CheckPath(op.Path)
		}
	case *zk.CheckVersionRequest:
		if op != nil {
			return appendInt(begin(opCheck, op.Path), op.Version), touch{path: op.Path}, CheckPath(op.Path)
		}
	}
	return nil, touch{}, fmt.Errorf("%T is not a (non-nil) *zk.CreateRequest, *zk.DeleteRequest, *zk.SetDataRequest or *zk.CheckVersionRequest", op)
}

func appendMultiHeader(b []byte, op int32, done bool) []byte {
	return appendInt(appendBool(appendInt(b, op), done), -1)
}

// decodeMulti reads the responses up to the closing header, with the code of each; more than n are garbage.
func (s *Session) decodeMulti(d *decoder, n int) (resps []zk.MultiResponse, codes []int32) {
	for {
		r, done := d.opResult(opMulti)
		if done || d.err != nil {
			return resps, codes
		}
		if len(resps) == n {
			d.err = errShort
			return resps, codes
		}
		var m zk.MultiResponse
		switch r.op {
		case opCreate:
			m.String = s.strip(string(r.path))
		case opCreate2:
			stat := r.stat // a copy of its own, so that the results of other operations cost no heap
			m.String, m.Stat = s.strip(string(r.path)), &stat
		case opSetData:
			stat := r.stat
			m.Stat = &stat
		case opError:
			if r.code != codeOK {
				m.Error = errOf(r.code)
			}
		}
		resps, codes = append(resps, m), append(codes, r.code)
	}
}

// opResult is what the reply to a multi, or a multiRead, says of one operation.
type opResult struct {
	op   int32 // opError: this one, or another, was refused
	code int32
	path []byte  // of what a create has made, as it stands in the reply
	stat zk.Stat // with opCreate2, in which a server answers the create of a container, and opSetData
}

// opResult reads the result of the next operation of a request of, opMulti or opMultiRead. done: instead there was the header
// behind the last.
func (d *decoder) opResult(of int32) (r opResult, done bool) {
	r.op, done, r.code = d.int(), d.bool(), d.int()
	if done || d.err != nil {
		return r, done
	}
	switch {
	case r.op == opError:
		r.code = d.int() // as in front of it
	case of == opMultiRead:
		if d.skipNames(); r.op != opGetChildren {
			d.err = errShort
		}
	case r.op == opCreate:
		r.path = d.stringBytes()
	case r.op == opCreate2:
		r.path, r.stat = d.stringBytes(), d.stat()
	case r.op == opSetData:
		r.stat = d.stat()
	case r.op != opDelete && r.op != opCheck:
		d.err = errShort
	}
	return r, false
}

// verdict is what a reply says of its request: the header's code. A multi's header says OK also when an operation was refused;
// then it is the first operation's code other than OK and RuntimeInconsistency. "Session expired" and "session moved" come
// before all others: for a multi servers say them nowhere else.
func verdict(op int32, header int32, body []byte) int32 {
	if op != opMulti || header != codeOK {
		return header
	}
	d := decoder{b: body}
	first := codeOK
	for {
		r, done := d.opResult(op)
		switch {
		case d.err != nil:
			return codeUnreadable // the call that waits for it finds that out
		case done:
			return first
		case r.code == codeSessionExpired, r.code == codeSessionMoved:
			return r.code
		case first == codeOK && r.code != codeInconsistent:
			first = r.code
		}
	}
}
