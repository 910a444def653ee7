package session

import (
	"context"
	"fmt"
	"iter"
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
	return one(ctx, s, s.multi(ops))
}

// multi encodes a multi. One without an operation is not sent: it would do nothing.
func (s *Session) multi(ops []any) *Result[Transaction] {
	if len(ops) == 0 {
		return &Result[Transaction]{}
	}
	r := newRequest(opMulti, "multi", "")
	for _, op := range ops {
		if err := s.appendOp(r, op); err != nil {
			return &Result[Transaction]{Err: fmt.Errorf("session: multi: %w", err)}
		}
	}
	r.path = r.touches[0].path
	return s.transaction(r)
}

// transaction ends the frame of r, a multi with all its operations.
func (s *Session) transaction(r *request) *Result[Transaction] {
	r.frame = appendMultiHeader(r.frame, -1, true)
	return &Result[Transaction]{r: r, decode: func() (Transaction, error) {
		tx, err := s.decodeTransaction(r)
		s.ephemerals.answered(r, err, func(i int) string { return tx.Responses[i].String })
		return tx, err
	}}
}

func (s *Session) decodeTransaction(r *request) (Transaction, error) {
	d := &decoder{b: r.reply}
	resps, codes := s.decodeMulti(d, len(r.touches))
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
	case d.err != nil || len(resps) != len(r.touches):
		return Transaction{}, s.garbled(r, errShort)
	case failed < 0 && r.header.code != codeOK:
		return Transaction{}, s.garbled(r, fmt.Errorf("refused (%w), and every operation done", errOf(r.header.code)))
	case failed >= 0:
		code, path := codes[failed], r.touches[failed].path
		if code == codeNoNode && !slices.ContainsFunc(r.touches[:failed], func(t touch) bool { return t.path == path }) { // else it may be their doing
			s.ephemerals.gone(path, r.header.zxid, true)
		}
		return Transaction{Responses: resps}, &OpError{Op: "multi", Path: path, Err: errOf(code), unknown: undecided(code)}
	}
	for i, resp := range resps {
		if resp.String != "" && !mayHaveMade(r.touches[i].path, resp.String) { // only a create answers with a path
			return Transaction{}, s.garbled(r, errOtherPath)
		}
	}
	return Transaction{resps, r.header.zxid}, nil
}

// appendOp encodes one operation of r, a multi.
func (s *Session) appendOp(r *request, op any) error {
	at := len(r.frame)
	begin := func(code int32, path string, e effect) []byte {
		r.touches = append(r.touches, touch{path, e})
		return appendString(appendMultiHeader(r.frame, code, false), s.join(path))
	}
	switch op := op.(type) {
	case *zk.CreateRequest:
		if op != nil {
			mode := Mode(op.Flags)
			r.frame = appendMultiHeader(r.frame, mode.op(), false)
			r.appendCreate(at, s.join(op.Path), op.Path, op.Data, mode, op.Acl)
			return checkCreate(op.Path, mode)
		}
	case *zk.DeleteRequest:
		if op != nil {
			does := deletes
			if made := slices.Index(r.touches, touch{op.Path, makes}); made >= 0 { // it is gone when the transaction is over
				r.touches[made].effect, does = makesForNow, noEffect
			}
			r.frame = appendInt(begin(opDelete, op.Path, does), op.Version)
			return CheckPath(op.Path)
		}
	case *zk.SetDataRequest:
		if op != nil {
			r.frame = appendInt(appendBytes(begin(opSetData, op.Path, noEffect), op.Data), op.Version)
			return CheckPath(op.Path)
		}
	case *zk.CheckVersionRequest:
		if op != nil {
			r.frame = appendInt(begin(opCheck, op.Path, noEffect), op.Version)
			return CheckPath(op.Path)
		}
	}
	return fmt.Errorf("%T is not a (non-nil) *zk.CreateRequest, *zk.DeleteRequest, *zk.SetDataRequest or *zk.CheckVersionRequest", op)
}

func appendMultiHeader(b []byte, op int32, done bool) []byte {
	return appendInt(appendBool(appendInt(b, op), done), -1)
}

// decodeMulti reads the responses up to the closing header, with the code of each; more than n are garbage.
func (s *Session) decodeMulti(d *decoder, n int) (resps []zk.MultiResponse, codes []int32) {
	for r := range d.results(opMulti) {
		if len(resps) == n {
			d.err = errShort
			break
		}
		var m zk.MultiResponse
		body := decoder{b: r.raw[multiHeader:]}
		if r.op == opCreate || r.op == opCreate2 {
			m.String = s.strip(body.string())
		}
		if r.op == opSetData || r.op == opCreate2 {
			stat := body.stat()
			m.Stat = &stat
		}
		if r.op == opError && r.code != codeOK {
			m.Error = errOf(r.code)
		}
		resps, codes = append(resps, m), append(codes, r.code)
	}
	return resps, codes
}

// result is what the reply to a multi, or a multiRead, says of one operation.
type result struct {
	op   int32 // opError: this one, or another, was refused; opCreate2: the create of a container is answered with a Stat
	code int32
	raw  []byte // as it came, with its header
}

// results yields those of a request of, opMulti or opMultiRead, up to the header behind the last. With d.err the reply is
// not whole.
func (d *decoder) results(of int32) iter.Seq[result] {
	return func(yield func(result) bool) {
		for {
			from := d.b
			op, done, code := d.int(), d.bool(), d.int()
			if done || d.err != nil {
				return
			}
			switch {
			case op == opError:
				code = d.int() // as in front of it
			case of == opMultiRead:
				if d.skipNames(); op != opGetChildren {
					d.err = errShort
				}
			case op == opCreate:
				d.stringBytes()
			case op == opCreate2:
				d.stringBytes()
				d.take(statLen)
			case op == opSetData:
				d.take(statLen)
			case op != opDelete && op != opCheck:
				d.err = errShort
			}
			if d.err != nil || !yield(result{op, code, from[:len(from)-len(d.b)]}) {
				return
			}
		}
	}
}

// verdict is what a reply says of its request: the header's code. A multi's header says OK also when an operation was
// refused; then it is the first operation's code other than OK and RuntimeInconsistency. "Session expired" and "session
// moved" come before all others: for a multi servers say them nowhere else.
func verdict(op int32, header int32, body []byte) int32 {
	if op != opMulti || header != codeOK {
		return header
	}
	d, first := decoder{b: body}, codeOK
	for r := range d.results(op) {
		if r.code == codeSessionExpired || r.code == codeSessionMoved {
			return r.code
		}
		if first == codeOK && r.code != codeInconsistent {
			first = r.code
		}
	}
	if d.err != nil {
		return codeUnreadable // the call that waits for it finds that out
	}
	return first
}
