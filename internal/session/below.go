package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/pipeline"
)

// Reads of many children of one znode. Other clients have chosen their number, names and data; the
// names come from the ensemble and are not held to CheckPath. Replies travel in order, so these
// reads must not delay a heartbeat's reply: they are sent in batches, one batch of one caller at a
// time, and the bytes of a batch are bounded.

const (
	batchBytes    = 1 << 20 // of a batch's requests and expected replies: 600 KB/s carry it in two seconds
	batchRequests = 128
	statBytes     = 100 // about the length of a reply to exists, and of a reply to get without the data
)

// Node is a child as StatsBelow or ReadBelow found it.
type Node struct {
	Data []byte // nil also if they were not asked for
	Stat zk.Stat
	Err  error // why there is nothing else: zk.ErrNoNode, zk.ErrNoAuth
}

// StatsBelow returns the Stats of dir's children names, in the order of names. If the server
// refuses one, that Node's Err says why. The names may be any that a list of dir has returned. It
// blocks for a round trip per batch of 128 (fewer if the names are long); between batches it waits
// for other calls of StatsBelow and ReadBelow in this session.
func (s *Session) StatsBelow(ctx context.Context, dir string, names []string) ([]Node, error) {
	if err := checkNamed(dir); err != nil {
		return nil, err
	}
	nodes := make([]Node, len(names))
	err := readMany(ctx, s, dir, names, make([]int, len(names)), s.exists, func(i int, stat zk.Stat, err error) bool {
		nodes[i].Stat, nodes[i].Err = stat, err
		return true
	})
	if err != nil {
		return nil, err
	}
	return nodes, nil
}

// ReadBelow reads the Stats of dir's children names, then the data of those for which want returns
// true. want is called once for each child that exists, in order, and again for a child whose data
// have grown since: if it then returns false, the data are left out. Otherwise it is like
// StatsBelow, with two round trips instead of one.
func (s *Session) ReadBelow(ctx context.Context, dir string, names []string, want func(zk.Stat) bool) ([]Node, error) {
	nodes, err := s.StatsBelow(ctx, dir, names)
	if err != nil {
		return nil, err
	}
	var wanted []string
	var at, sizes []int
	for i, n := range nodes {
		if n.Err == nil && want(n.Stat) {
			wanted, at, sizes = append(wanted, names[i]), append(at, i), append(sizes, int(n.Stat.DataLength))
		}
	}
	err = readMany(ctx, s, dir, wanted, sizes, s.get, func(k int, d Data, err error) bool {
		n := &nodes[at[k]]
		if n.Err = err; err != nil {
			return true
		}
		n.Stat = d.Stat
		if len(d.Bytes) > sizes[k] && !want(d.Stat) {
			return false
		}
		n.Data = d.Bytes
		return true
	})
	if err != nil {
		return nil, err
	}
	return nodes, nil
}

var errOthersRead = errors.New("waiting for other reads of many znodes")

// readMany reads dir's children names, and passes each answer to take; err is the server's refusal.
// sizes are the expected lengths of the data. If take returns false, since a reply was longer than
// it wants, the rest is read one at a time.
func readMany[T any](ctx context.Context, s *Session, dir string, names []string, sizes []int,
	ask func(path string) *Result[T], take func(i int, value T, err error) bool,
) error {
	most := batchRequests
	for from := 0; from < len(names); {
		var batch []*Result[T]
		var requests []*pipeline.Request
		for bytes := 0; from+len(batch) < len(names) && len(batch) < most; {
			i := from + len(batch)
			a := &Result[T]{}
			path, err := pathBelow(dir, names[i])
			if a.Err = err; err == nil {
				a = ask(path)
			}
			bytes += 2*(len(s.cfg.chroot)+len(path)) + statBytes + sizes[i]
			if bytes > batchBytes && len(batch) > 0 {
				break
			}
			if batch = append(batch, a); a.r != nil {
				requests = append(requests, a.r)
			}
		}
		select { // one batch at a time
		case s.looking <- struct{}{}:
		case <-ctx.Done():
			return &failure.OpError{Op: "read", Path: dir, Err: s.ended(ctx, errOthersRead)}
		case <-s.ctx.Done():
			return &failure.OpError{Op: "read", Path: dir, Err: s.ended(ctx, errOthersRead)}
		}
		err := s.run(ctx, requests...)
		<-s.looking
		if err != nil {
			return err
		}
		for k, a := range batch {
			if err := a.resolve(s, nil); errors.Is(err, failure.ErrGarbled) {
				return err
			}
			if !take(from+k, a.Value, a.Err) {
				most = 1
			}
		}
		from += len(batch)
	}
	return nil
}

// pathBelow returns the path of dir's child name. It refuses a name that would lead to another
// znode; no correct server lists one.
func pathBelow(dir, name string) (string, error) {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return "", fmt.Errorf("%w: the server has listed a child %q", ErrPath, name)
	}
	return strings.TrimSuffix(dir, "/") + "/" + name, nil
}
