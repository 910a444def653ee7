package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/wire"
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
	r := newRequest(wire.OpMulti, "multi", "")
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
	r.frame = wire.AppendMultiHeader(r.frame, -1, true)
	return &Result[Transaction]{r: r, decode: func() (Transaction, error) {
		tx, err := s.decodeTransaction(r)
		s.ephemerals.answered(r, err, func(i int) string { return tx.Responses[i].String })
		return tx, err
	}}
}

func (s *Session) decodeTransaction(r *request) (Transaction, error) {
	d := &wire.Decoder{B: r.reply}
	resps, codes := s.decodeMulti(d, len(r.touches))
	failed := -1
	for i, code := range codes {
		// Operations before the failed one are "rolled back" (0 on the wire), those behind it have "runtime inconsistency".
		if code != wire.CodeOK && (failed < 0 || codes[failed] == wire.CodeInconsistent) {
			failed = i
		}
	}
	switch {
	case d.Err != nil && r.header.Code != wire.CodeOK: // refused as a whole, with no results of the operations
		return Transaction{}, r.result(d)
	case d.Err != nil || len(resps) != len(r.touches):
		return Transaction{}, r.garbled(wire.ErrShort)
	case failed < 0 && r.header.Code != wire.CodeOK:
		return Transaction{}, r.garbled(fmt.Errorf("refused (%w), and every operation done", failure.Of(r.header.Code)))
	case failed >= 0:
		code, path := codes[failed], r.touches[failed].path
		// If an earlier operation is about path, it may have deleted the znode.
		if code == wire.CodeNoNode && !slices.ContainsFunc(r.touches[:failed], func(t touch) bool { return t.path == path }) {
			s.ephemerals.gone(path, r.header.Zxid, true)
		}
		return Transaction{Responses: resps}, r.refused(path, code)
	}
	for i, resp := range resps {
		if resp.String != "" && !mayHaveMade(r.touches[i].path, resp.String) { // only creates answer with a path
			return Transaction{}, r.garbled(errOtherPath)
		}
	}
	return Transaction{resps, r.header.Zxid}, nil
}

// appendOp encodes an operation of a multi.
func (s *Session) appendOp(r *request, op Op) error {
	switch o := op.(type) {
	case OpCreate:
		r.frame = wire.AppendMultiHeader(r.frame, opOf(o.Mode), false)
		r.appendCreate(s.join(o.Path), o.Path, o.Data, o.Mode, o.ACL)
		return checkCreate(o.Path, o.Mode)
	case OpSet:
		r.frame = wire.AppendInt(wire.AppendBytes(s.beginOp(r, wire.OpSetData, o.Path, noEffect), o.Data), o.Version)
		return CheckPath(o.Path)
	case OpDelete:
		does := deletes
		if made := slices.Index(r.touches, touch{o.Path, makes}); made >= 0 { // it does not outlast the transaction
			r.touches[made].effect, does = makesForNow, noEffect
		}
		r.frame = wire.AppendInt(s.beginOp(r, wire.OpDelete, o.Path, does), o.Version)
		return CheckPath(o.Path)
	case OpCheck:
		r.frame = wire.AppendInt(s.beginOp(r, wire.OpCheck, o.Path, noEffect), o.Version)
		return CheckPath(o.Path)
	}
	return errors.New("an operation is nil")
}

func (s *Session) beginOp(r *request, code int32, path string, e effect) []byte {
	r.touches = append(r.touches, touch{path, e})
	return wire.AppendString(wire.AppendMultiHeader(r.frame, code, false), s.join(path))
}

// decodeMulti reads the responses, and the code of each; more than n are an error.
func (s *Session) decodeMulti(d *wire.Decoder, n int) (resps []zk.MultiResponse, codes []int32) {
	for r := range d.Results(wire.OpMulti) {
		if len(resps) == n {
			d.Err = wire.ErrShort
			break
		}
		var m zk.MultiResponse
		body := wire.Decoder{B: r.Raw[wire.MultiHeader:]}
		if r.Op == wire.OpCreate || r.Op == wire.OpCreate2 {
			m.String = s.strip(body.String())
		}
		if r.Op == wire.OpSetData || r.Op == wire.OpCreate2 {
			stat := body.Stat()
			m.Stat = &stat
		}
		if r.Op == wire.OpError && r.Code != wire.CodeOK {
			m.Error = failure.Of(r.Code)
		}
		resps, codes = append(resps, m), append(codes, r.Code)
	}
	return resps, codes
}
