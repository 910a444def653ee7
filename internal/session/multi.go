package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Multi carries out several writes in one transaction: all or none. Otherwise it is like the other
// writes. It returns nil if everything was done. If the server refused, nothing was done, and the
// error is that of the operation that failed. In both cases each operation has a response, which
// says whether it failed.
func (s *Session) Multi(ctx context.Context, ops ...Op) ([]zk.MultiResponse, error) {
	tx, err := one(ctx, s, s.multi(ops))
	return tx.Responses, err
}

// Transaction is the outcome of a Multi.
type Transaction struct {
	// one for each operation, also if one was refused and none was done
	Responses []zk.MultiResponse
	Zxid      int64 // the czxid of every znode that was made; 0 if nothing was done
}

// multi encodes a multi. One without operations does nothing, and is not sent.
func (s *Session) multi(ops []Op) *Result[Transaction] {
	if len(ops) == 0 {
		return &Result[Transaction]{}
	}
	a := newResult[Transaction](wire.OpMulti, "multi", "")
	a.r.Touches = make([]pipeline.Touch, 0, len(ops))
	for _, op := range ops {
		if err := s.appendOp(a.r, op); err != nil {
			return &Result[Transaction]{Err: fmt.Errorf("session: multi: %w", err)}
		}
	}
	a.r.Path = a.r.Touches[0].Path
	finishMulti(a)
	return a
}

// finishMulti ends the frame of a multi that has all its operations, and sets how its reply is
// decoded.
func finishMulti(a *Result[Transaction]) {
	a.r.Frame = wire.AppendMultiHeader(a.r.Frame, -1, true)
	a.decode = (*Session).resolveTransaction
}

// resolveTransaction decodes the reply to a multi, and keeps the count of ephemeral znodes up to
// date.
func (s *Session) resolveTransaction(r *pipeline.Request) (Transaction, error) {
	tx, err := s.decodeTransaction(r)
	s.ephemerals.Answered(r, err, func(i int) string { return tx.Responses[i].String })
	return tx, err
}

// decodeTransaction reads the reply to a multi. A refusal is the error of the operation that has
// failed. A reply that is none to this multi matches failure.ErrGarbled.
func (s *Session) decodeTransaction(r *pipeline.Request) (Transaction, error) {
	d := &wire.Decoder{B: r.Body}
	resps, codes := s.decodeMulti(d, len(r.Touches))
	isRefused := r.Header.Code != wire.CodeOK
	if r.IsUnreadable() {
		return Transaction{}, r.Result(d)
	}
	if d.Err != nil && isRefused {
		return Transaction{}, r.Result(d) // as a whole, with no results of the operations
	}
	if d.Err != nil || len(resps) != len(r.Touches) {
		return Transaction{}, r.Garbled(wire.ErrShort)
	}
	failed, hasFailed := failedOperation(codes)
	if hasFailed {
		path, code := r.Touches[failed].Path, codes[failed]
		if code == wire.CodeNoNode {
			s.noteGone(r, failed)
		}
		return Transaction{Responses: resps}, r.Refused(path, code)
	}
	if isRefused {
		return Transaction{}, r.Garbled(
			fmt.Errorf("refused (%w), and every operation done", failure.Of(r.Header.Code)))
	}
	for i, resp := range resps {
		isCreate := resp.String != "" // only creates answer with a path
		if isCreate && !mayHaveMade(r.Touches[i].Path, resp.String) {
			return Transaction{}, r.Garbled(errOtherPath)
		}
	}
	return Transaction{resps, r.Header.Zxid}, nil
}

// failedOperation returns which operation has failed, by the codes of all. The operations before it
// are "rolled back", which is 0 on the wire, and those behind it have "runtime inconsistency". If
// no other code is among them, the last one with "runtime inconsistency" counts.
func failedOperation(codes []int32) (failed int, hasFailed bool) {
	for i, code := range codes {
		if code == wire.CodeOK {
			continue
		}
		failed, hasFailed = i, true
		if code != wire.CodeInconsistent {
			break
		}
	}
	return failed, hasFailed
}

// noteGone notes that the znode of an operation does not exist, unless an earlier operation of the
// same multi is about it too: that one may have deleted it, and was rolled back.
func (s *Session) noteGone(r *pipeline.Request, failed int) {
	path := r.Touches[failed].Path
	isPath := func(t pipeline.Touch) bool { return t.Path == path }
	if !slices.ContainsFunc(r.Touches[:failed], isPath) {
		const written = true // the leader says so in answer to a write
		s.ephemerals.Gone(path, r.Header.Zxid, written)
	}
}

// appendOp encodes an operation of a multi.
func (s *Session) appendOp(r *pipeline.Request, op Op) error {
	switch o := op.(type) {
	case OpCreate:
		r.Frame = wire.AppendMultiHeader(r.Frame, opOf(o.Mode), false)
		appendCreate(r, s.cfg.join(o.Path), o.Path, o.Data, o.Mode, o.ACL)
		return checkCreate(o.Path, o.Mode)
	case OpSet:
		b := s.beginOp(r, wire.OpSetData, o.Path, pipeline.NoEffect)
		r.Frame = wire.AppendInt(wire.AppendBytes(b, o.Data), o.Version)
		return CheckPath(o.Path)
	case OpDelete:
		effect := pipeline.Deletes
		made := slices.Index(r.Touches, pipeline.Touch{Path: o.Path, Effect: pipeline.Makes})
		if made >= 0 { // the znode does not outlast the transaction
			r.Touches[made].Effect = pipeline.MakesForNow
			effect = pipeline.NoEffect
		}
		r.Frame = wire.AppendInt(s.beginOp(r, wire.OpDelete, o.Path, effect), o.Version)
		return CheckPath(o.Path)
	case OpCheck:
		r.Frame = wire.AppendInt(s.beginOp(r, wire.OpCheck, o.Path, pipeline.NoEffect), o.Version)
		return CheckPath(o.Path)
	}
	return errors.New("an operation is nil")
}

// beginOp begins an operation of a multi: its header and its path.
func (s *Session) beginOp(r *pipeline.Request, code int32, path string, e pipeline.Effect) []byte {
	r.AddTouch(path, e)
	return wire.AppendString(wire.AppendMultiHeader(r.Frame, code, false), s.cfg.join(path))
}

// decodeMulti reads the responses, and the code of each. If there are more than n, it sets d.Err.
func (s *Session) decodeMulti(d *wire.Decoder, n int) (resps []zk.MultiResponse, codes []int32) {
	resps, codes = make([]zk.MultiResponse, 0, n), make([]int32, 0, n)
	for r := range d.Results(wire.OpMulti) {
		if len(resps) == n {
			d.Err = wire.ErrShort
			break
		}
		var m zk.MultiResponse
		body := wire.Decoder{B: r.Raw[wire.MultiHeader:]}
		if r.Op == wire.OpCreate || r.Op == wire.OpCreate2 {
			m.String = s.cfg.strip(body.Text())
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

// check returns the write that confirms the lease: a multi that checks that node exists. It changes
// nothing, but a majority has to acknowledge it. A multi without an operation would not do: servers
// carry it out without a look at the session. A refusal, because the znode is gone or we may not
// read it, confirms too: the leader checks the session first.
func (s *Session) check(name, node string) *Result[Transaction] {
	a := newResult[Transaction](wire.OpMulti, name, node)
	// A path that CheckPath refuses is sent all the same: another client may have named the znode.
	_ = s.appendOp(a.r, OpCheck{Path: node, Version: -1})
	a.r.Repeatable = true // it changes nothing
	finishMulti(a)
	return a
}

// Settle is Sync by a write without an effect. A majority has to confirm a write, whereas a leader
// that was deposed and does not know it still answers a Sync. If the leader refuses the write, that
// was confirmed too, and Settle returns nil.
func (s *Session) Settle(ctx context.Context, path string) error {
	if err := checkNamed(path); err != nil {
		return err
	}
	_, err := one(ctx, s, s.check("settle", path))
	if failure.IsOne(err, zk.ErrNoNode, zk.ErrNoAuth) {
		return nil
	}
	return err
}
