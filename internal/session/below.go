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

// Reads of many children of one znode. Other clients have chosen their number, names and data.
// Replies travel in order, so a heartbeat's reply comes behind those of the reads that were sent
// before it. So reads are sent in batches of bounded size, and one batch of the session at a time.
//
// The names come from the ensemble and are not held to CheckPath.

const (
	// batchBytes bounds a batch's requests and expected replies: 600 KB/s carry it in two seconds.
	batchBytes    = 1 << 20
	batchRequests = 128

	// statBytes is about the length of a reply to exists, and of a reply to get without the data.
	statBytes = 100
)

// Node is a child as StatsBelow or ReadBelow found it.
type Node struct {
	Data []byte  // nil also if they were not asked for
	Stat zk.Stat // as last read; zero if no read has returned it
	Err  error   // why the latest read was refused: zk.ErrNoNode, zk.ErrNoAuth
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
	reads := manyReads[zk.Stat]{
		s:     s,
		dir:   dir,
		names: names,
		sizes: make([]int, len(names)),
		ask:   s.exists,
		take: func(i int, stat zk.Stat, err error) bool {
			nodes[i].Stat, nodes[i].Err = stat, err
			return true
		},
	}
	if err := reads.run(ctx); err != nil {
		return nil, err
	}
	return nodes, nil
}

// ReadBelow reads the Stats of dir's children names, then the data of those for which want returns
// true. Otherwise it is like StatsBelow, with two round trips instead of one.
//
// want is called once for each child that exists, in order, and once more for a child whose data
// have grown since. If it then returns false, the data are left out.
func (s *Session) ReadBelow(
	ctx context.Context, dir string, names []string, want func(zk.Stat) bool,
) ([]Node, error) {
	nodes, err := s.StatsBelow(ctx, dir, names)
	if err != nil {
		return nil, err
	}
	var wanted []*Node
	reads := manyReads[Data]{s: s, dir: dir, ask: s.get}
	for i := range nodes {
		n := &nodes[i]
		if n.Err == nil && want(n.Stat) {
			wanted = append(wanted, n)
			reads.names = append(reads.names, names[i])
			reads.sizes = append(reads.sizes, int(n.Stat.DataLength))
		}
	}
	reads.take = func(i int, d Data, err error) bool {
		n := wanted[i]
		n.Err = err
		if err != nil {
			return true
		}
		hasGrown := len(d.Bytes) > int(n.Stat.DataLength)
		n.Stat = d.Stat
		if hasGrown && !want(d.Stat) {
			return false
		}
		n.Data = d.Bytes
		return true
	}
	if err := reads.run(ctx); err != nil {
		return nil, err
	}
	return nodes, nil
}

// manyReads reads the children names of dir, in batches.
type manyReads[T any] struct {
	s     *Session
	dir   string
	names []string
	sizes []int // the expected lengths of their data
	ask   func(path string) *Result[T]

	// take gets the server's answer for the child names[i]: its value, or why it was refused. It
	// returns false if the value is longer than it wants. From then on the expected sizes are not
	// trusted, and children are read one at a time.
	take func(i int, value T, err error) bool

	oneAtATime bool
}

func (m *manyReads[T]) run(ctx context.Context) error {
	for from := 0; from < len(m.names); {
		batch := m.nextBatch(from)
		if err := m.send(ctx, batch); err != nil {
			return err
		}
		for i, a := range batch {
			err := a.resolve(m.s, nil) // send has returned nil, so each request has a reply
			if errors.Is(err, failure.ErrGarbled) {
				return err
			}
			if !m.take(from+i, a.Value, a.Err) {
				m.oneAtATime = true
			}
		}
		from += len(batch)
	}
	return nil
}

// nextBatch returns the reads of one batch, from names[from] on: at least one, and as many as
// batchRequests and batchBytes allow. A name that is no name has a Result with an error, and no
// request.
func (m *manyReads[T]) nextBatch(from int) (batch []*Result[T]) {
	most := batchRequests
	if m.oneAtATime {
		most = 1
	}
	bytes := 0
	for i := from; i < len(m.names) && len(batch) < most; i++ {
		path, err := pathBelow(m.dir, m.names[i])
		bytes += m.readBytes(path, m.sizes[i])
		if bytes > batchBytes && len(batch) > 0 {
			break
		}
		if err != nil {
			batch = append(batch, &Result[T]{Err: err})
			continue
		}
		batch = append(batch, m.ask(path))
	}
	return batch
}

// readBytes estimates how long a request to read path and its reply are together, if the reply has
// so many bytes of data. Only the request has the path. It is counted twice, so that the estimate
// is too high rather than too low: the request's other fields are not counted.
func (m *manyReads[T]) readBytes(path string, data int) int {
	fullPath := len(m.s.cfg.chroot) + len(path)
	return 2*fullPath + statBytes + data
}

var errOthersRead = errors.New("waiting for other reads of many znodes")

// send sends the requests of a batch, and waits for the replies, while no other batch of the
// session is under way.
func (m *manyReads[T]) send(ctx context.Context, batch []*Result[T]) error {
	var requests []*pipeline.Request
	for _, a := range batch {
		if a.r != nil {
			requests = append(requests, a.r)
		}
	}
	select {
	case m.s.readingMany <- struct{}{}:
	case <-ctx.Done():
		return m.ended(ctx)
	case <-m.s.ctx.Done():
		return m.ended(ctx)
	}
	defer func() { <-m.s.readingMany }()
	return m.s.run(ctx, requests...)
}

func (m *manyReads[T]) ended(ctx context.Context) error {
	return &failure.OpError{Op: "read", Path: m.dir, Err: m.s.ended(ctx, errOthersRead)}
}

// pathBelow returns the path of dir's child name. It refuses a name that would lead to another
// znode; no correct server lists one.
func pathBelow(dir, name string) (string, error) {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return "", fmt.Errorf("%w: the server has listed a child %q", ErrPath, name)
	}
	return strings.TrimSuffix(dir, "/") + "/" + name, nil
}
