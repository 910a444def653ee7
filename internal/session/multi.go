package session

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/go-zookeeper/zk"
)

// Multi carries out several writes in one transaction: all or none. Otherwise it is like the other writes. Nil: everything was
// done. If the server refused, nothing was done, and the error is that of the operation that failed. In both cases each
// operation has a response, which says whether it failed.
func (s *Session) Multi(ctx context.Context, ops ...Op) ([]zk.MultiResponse, error) {
	tx, err := one(ctx, s, s.multi(ops))
	return tx.Responses, err
}

// Transaction is the outcome of a Multi.
type Transaction struct {
	Responses []zk.MultiResponse // one for each operation, also if one was refused and none was done
	Zxid      int64              // the czxid of every znode that was made; 0 if nothing was done
}

// multi encodes a multi; one without operations does nothing, and is not sent.
func (s *Session) multi(ops []Op) *Result[Transaction] {
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

// transaction completes r, a multi with all its operations.
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
		// Operations before the failed one are "rolled back" (0 on the wire), those behind it have "runtime inconsistency".
		if code != codeOK && (failed < 0 || codes[failed] == codeInconsistent) {
			failed = i
		}
	}
	switch {
	case d.err != nil && r.header.code != codeOK: // refused as a whole, with no results of the operations
		return Transaction{}, r.result(d)
	case d.err != nil || len(resps) != len(r.touches):
		return Transaction{}, s.garbled(r, errShort)
	case failed < 0 && r.header.code != codeOK:
		return Transaction{}, s.garbled(r, fmt.Errorf("refused (%w), and every operation done", errOf(r.header.code)))
	case failed >= 0:
		code, path := codes[failed], r.touches[failed].path
		// If an earlier operation is about path, it may have deleted the znode.
		if code == codeNoNode && !slices.ContainsFunc(r.touches[:failed], func(t touch) bool { return t.path == path }) {
			s.ephemerals.gone(path, r.header.zxid, true)
		}
		return Transaction{Responses: resps}, r.refused(path, code)
	}
	for i, resp := range resps {
		if resp.String != "" && !mayHaveMade(r.touches[i].path, resp.String) { // only creates answer with a path
			return Transaction{}, s.garbled(r, errOtherPath)
		}
	}
	return Transaction{resps, r.header.zxid}, nil
}

// appendOp encodes an operation of a multi.
func (s *Session) appendOp(r *request, op Op) error {
	switch o := op.(type) {
	case OpCreate:
		r.frame = appendMultiHeader(r.frame, opOf(o.Mode), false)
		r.appendCreate(s.join(o.Path), o.Path, o.Data, o.Mode, o.ACL)
		return checkCreate(o.Path, o.Mode)
	case OpSet:
		r.frame = appendInt(appendBytes(s.beginOp(r, opSetData, o.Path, noEffect), o.Data), o.Version)
		return CheckPath(o.Path)
	case OpDelete:
		does := deletes
		if made := slices.Index(r.touches, touch{o.Path, makes}); made >= 0 { // it does not outlast the transaction
			r.touches[made].effect, does = makesForNow, noEffect
		}
		r.frame = appendInt(s.beginOp(r, opDelete, o.Path, does), o.Version)
		return CheckPath(o.Path)
	case OpCheck:
		r.frame = appendInt(s.beginOp(r, opCheck, o.Path, noEffect), o.Version)
		return CheckPath(o.Path)
	}
	return errors.New("an operation is nil")
}

func (s *Session) beginOp(r *request, code int32, path string, e effect) []byte {
	r.touches = append(r.touches, touch{path, e})
	return appendString(appendMultiHeader(r.frame, code, false), s.join(path))
}

const multiHeader = 9 // bytes of the header before each operation or result of a multi, and behind the last

func appendMultiHeader(b []byte, op int32, done bool) []byte {
	return appendInt(appendBool(appendInt(b, op), done), -1)
}

// decodeMulti reads the responses, and the code of each; more than n are an error.
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

// result is one operation's part of the reply to a multi or multiRead.
type result struct {
	op   int32 // opError: an operation was refused; opCreate2: a container's create, answered with a Stat
	code int32
	raw  []byte // with its header
}

// results yields the results in the reply to a request of, opMulti or opMultiRead. With d.err the reply is incomplete.
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
				code = d.int() // the same as in the header
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
