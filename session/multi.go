package session

import (
	"context"
	"errors"
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
	if len(ops) == 0 {
		return Transaction{}, nil
	}
	c, paths, err := s.newMulti(ops)
	if err != nil {
		return Transaction{}, err
	}
	if err := s.run(ctx, c); err != nil && !c.replied() {
		return Transaction{}, err
	}
	return s.transacted(c, paths)
}

// TransactAndList is Transact with a list of each of dirs right behind it, all in one round trip. When the transaction
// was carried out, its Zxid is set, also when a list fails. An error that matches ErrUnknownOutcome speaks of the
// transaction.
func (s *Session) TransactAndList(ctx context.Context, ops []any, dirs []string) (Transaction, [][]string, error) {
	if len(ops) == 0 {
		lists, err := s.ListAll(ctx, dirs)
		return Transaction{}, lists, err
	}
	c, paths, err := s.newMulti(ops)
	if err != nil {
		return Transaction{}, nil, err
	}
	calls := []*call{c}
	for _, dir := range dirs {
		calls = append(calls, s.newList(dir))
	}
	runErr := s.run(ctx, calls...)
	if runErr != nil && !c.replied() {
		return Transaction{}, nil, runErr
	}
	tx, err := s.transacted(c, paths)
	if err != nil || runErr != nil {
		return tx, nil, errors.Join(err, runErr)
	}
	lists := make([][]string, len(dirs))
	for i := range dirs {
		if lists[i], _, err = s.listed(calls[i+1]); err != nil {
			return tx, nil, err
		}
	}
	return tx, lists, nil
}

// ListAll lists several znodes in one round trip. One that does not exist has no children.
func (s *Session) ListAll(ctx context.Context, paths []string) ([][]string, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	calls := make([]*call, len(paths))
	for i, p := range paths {
		if err := CheckPath(p); err != nil {
			return nil, err
		}
		calls[i] = s.newList(p)
	}
	if err := s.run(ctx, calls...); err != nil {
		return nil, err
	}
	lists := make([][]string, len(paths))
	for i, c := range calls {
		var err error
		if lists[i], _, err = s.listed(c); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
	}
	return lists, nil
}

// newMulti encodes a multi, and returns its operations' paths as the caller named them.
func (s *Session) newMulti(ops []any) (*call, []string, error) {
	var body []byte
	var changes []change
	paths := make([]string, len(ops))
	for i, op := range ops {
		var err error
		if body, paths[i], err = s.appendOp(body, op); err != nil {
			return nil, nil, fmt.Errorf("session: multi: %w", err)
		}
		switch op := op.(type) {
		case *zk.CreateRequest:
			changes = append(changes, changeOf(op.Path, Mode(op.Flags), i)...)
		case *zk.DeleteRequest:
			changes = append(changes, change{deletes, op.Path, i})
		}
	}
	body = appendMultiHeader(body, -1, true)
	c := newCall(opMulti, "multi", paths[0], func(b []byte) []byte { return append(b, body...) })
	c.changes = changes
	return c, paths, nil
}

// transacted decodes the reply to a multi.
func (s *Session) transacted(c *call, paths []string) (Transaction, error) {
	tx, err := s.decodeTransaction(c, paths)
	s.ephemerals.settle(c, err, func(ch change) string { return tx.Responses[ch.op].String })
	return tx, err
}

func (s *Session) decodeTransaction(c *call, paths []string) (Transaction, error) {
	d := &decoder{b: c.reply}
	resps, codes := s.decodeMulti(d, len(paths))
	failed := -1
	for i, code := range codes {
		// Beside the operation that failed, those before it are answered with "rolled back" (0 on the wire) and those
		// behind it with "runtime inconsistency".
		if code != codeOK && (failed < 0 || codes[failed] == codeInconsistent) {
			failed = i
		}
	}
	switch {
	case d.err != nil && c.head.code != codeOK: // refused as a whole, without a word on the operations
		_, err := c.result()
		return Transaction{}, err
	case d.err != nil || len(resps) != len(paths):
		return Transaction{}, s.garbled(c, errShort)
	case failed < 0 && c.head.code != codeOK:
		return Transaction{}, s.garbled(c, fmt.Errorf("refused (%w), and every operation done", errOf(c.head.code)))
	case failed >= 0:
		if codes[failed] == codeNoNode && !slices.Contains(paths[:failed], paths[failed]) { // else it may be their doing
			s.ephemerals.gone(paths[failed], c.head.zxid, true)
		}
		return Transaction{Responses: resps}, &OpError{Op: "multi", Path: paths[failed], Err: errOf(codes[failed])}
	}
	for i, r := range resps {
		if r.String != "" && !mayHaveMade(paths[i], r.String) { // only a create answers with a path
			return Transaction{}, s.garbled(c, errOtherPath)
		}
	}
	return Transaction{resps, c.head.zxid}, nil
}

const codeInconsistent int32 = -2

// appendOp encodes one operation, and returns its path as the caller named it.
func (s *Session) appendOp(b []byte, op any) ([]byte, string, error) {
	switch op := op.(type) {
	case *zk.CreateRequest:
		if op == nil {
			break
		}
		code, mode := opCreate, Mode(op.Flags)
		if mode == Container {
			code = opCreateContainer
		}
		b = appendString(appendMultiHeader(b, code, false), s.join(op.Path))
		return appendInt(appendACL(appendBytes(b, op.Data), op.Acl), op.Flags), op.Path, checkCreate(op.Path, mode)
	case *zk.DeleteRequest:
		if op == nil {
			break
		}
		b = appendString(appendMultiHeader(b, opDelete, false), s.join(op.Path))
		return appendInt(b, op.Version), op.Path, CheckPath(op.Path)
	case *zk.SetDataRequest:
		if op == nil {
			break
		}
		b = appendString(appendMultiHeader(b, opSetData, false), s.join(op.Path))
		return appendInt(appendBytes(b, op.Data), op.Version), op.Path, CheckPath(op.Path)
	case *zk.CheckVersionRequest:
		if op == nil {
			break
		}
		b = appendString(appendMultiHeader(b, opCheck, false), s.join(op.Path))
		return appendInt(b, op.Version), op.Path, CheckPath(op.Path)
	}
	return nil, "", fmt.Errorf("%T is not a (non-nil) *zk.CreateRequest, *zk.DeleteRequest, *zk.SetDataRequest or *zk.CheckVersionRequest", op)
}

func appendMultiHeader(b []byte, op int32, done bool) []byte {
	return appendInt(appendBool(appendInt(b, op), done), -1)
}

// decodeMulti reads the responses up to the closing header, with the code of each; more than n are garbage.
func (s *Session) decodeMulti(d *decoder, n int) (resps []zk.MultiResponse, codes []int32) {
	for d.err == nil {
		op, done, code := d.int(), d.bool(), d.int()
		if done || d.err != nil {
			break
		}
		if len(resps) == n {
			d.err = errShort
			break
		}
		var r zk.MultiResponse
		switch op {
		case opCreate:
			r.String = s.strip(d.string())
		case opCreate2: // what the server makes of a container's create: it comes with a Stat
			r.String = s.strip(d.string())
			stat := d.stat()
			r.Stat = &stat
		case opSetData:
			stat := d.stat()
			r.Stat = &stat
		case opDelete, opCheck:
		case opError:
			if code = d.int(); code != codeOK {
				r.Error = errOf(code)
			}
		default:
			d.err = errShort
		}
		resps, codes = append(resps, r), append(codes, code)
	}
	return resps, codes
}
