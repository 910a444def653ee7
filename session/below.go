package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
)

// Reads of many children of one znode, whose number, names and data others have chosen. Two things follow. The names
// come from the ensemble and are not held to CheckPath: a contender with a name of 10,000 bytes can be looked at. And
// the reads must not delay a heartbeat, which shares the connection with them and whose reply comes behind theirs: so
// they go out in batches, one batch of one caller at a time, and what a batch brings back is bounded. A session's holds
// are safe however many look, at however much.

const (
	// batchBytes bounds the bytes of a batch: requests and expected replies. A line of 600 KB/s carries it in less than
	// two seconds.
	batchBytes = 1 << 20
	// batchCalls bounds the requests of a batch.
	batchRequests = 128
	// statBytes is about what the reply to exists takes, and what a reply to get takes beside the data.
	statBytes = 100
)

// Node is a child as StatsBelow or ReadBelow found it.
type Node struct {
	Data []byte // nil also when they were not asked for
	Stat zk.Stat
	Err  error // why there is nothing else: zk.ErrNoNode, zk.ErrNoAuth
}

// StatsBelow returns the Stats of dir's children names, in their order. If the server refuses one of them, its Err says
// why. The names may be any that a list of dir has returned. It blocks for a round trip per batch of 128 (less when the
// names are long), and waits for other calls of it and of ReadBelow in this session between two batches.
func (s *Session) StatsBelow(ctx context.Context, dir string, names []string) ([]Node, error) {
	if err := checkNamed(dir); err != nil {
		return nil, err
	}
	return s.stats(ctx, batch{s: s, dir: dir}, names)
}

// StatsOf is StatsBelow for znodes of any directories, by their paths. It is for the packages of this module.
func (s *Session) StatsOf(ctx context.Context, _ trusted.Caller, paths []string) ([]Node, error) {
	return s.stats(ctx, batch{s: s}, paths)
}

func (s *Session) stats(ctx context.Context, b batch, names []string) ([]Node, error) {
	nodes := make([]Node, len(names))
	b.op, b.opName = opExists, "exists"
	err := b.run(ctx, names, nil, func(i int, d *decoder, err error) bool {
		if nodes[i].Err = err; err == nil {
			nodes[i].Stat = d.stat()
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return nodes, nil
}

// ReadBelow reads dir's children names: of each its Stat, which is known before any data are asked for, and its data
// when want says so. want is called once for each child that there is, in order. Data that have grown since, beyond
// what want has seen, are left out as well. Otherwise it is like StatsBelow, with two round trips instead of one.
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
	b := batch{s: s, dir: dir, op: opGetData, opName: "get"}
	err = b.run(ctx, wanted, sizes, func(k int, d *decoder, err error) bool {
		n := &nodes[at[k]]
		if n.Err = err; err != nil {
			return true
		}
		data, stat := d.bytes(), d.stat()
		n.Stat = stat
		if len(data) > sizes[k] && !want(stat) {
			return false
		}
		n.Data = data
		return true
	})
	if err != nil {
		return nil, err
	}
	return nodes, nil
}

// batch is a series of reads of one kind.
type batch struct {
	s      *Session
	dir    string // whose children they are; "": they are named by their paths
	op     int32
	opName string
}

// run makes the reads of names and hands each reply to take, or the server's refusal. sizes are the expected lengths of
// the data; nil: there are none. take returns false when the reply was far longer than that: what follows is then read
// one at a time.
func (b batch) run(ctx context.Context, names []string, sizes []int, take func(i int, d *decoder, err error) bool) error {
	most := batchRequests
	for from := 0; from < len(names); {
		var requests []*request
		var index []int
		for bytes := 0; from < len(names) && len(requests) < most; from++ {
			path, err := b.path(names[from])
			if err != nil {
				take(from, nil, err)
				continue
			}
			n := 2*(len(b.s.cfg.chroot)+len(path)) + statBytes
			if sizes != nil {
				n += sizes[from]
			}
			if bytes += n; bytes > batchBytes && len(requests) > 0 {
				break
			}
			requests = append(requests, newRequest(b.op, b.opName, path, func(buf []byte) []byte {
				return appendBool(appendString(buf, b.s.join(path)), false)
			}))
			index = append(index, from)
		}
		if len(requests) == 0 {
			continue
		}
		if err := b.oneAtATime(ctx, requests); err != nil {
			return err
		}
		for k, r := range requests {
			d, err := r.result()
			if !take(index[k], d, err) {
				most = 1
			}
			if err == nil && d.err != nil {
				return b.s.garbled(r, d.err)
			}
		}
	}
	return nil
}

// oneAtATime sends one batch when no other is on its way.
func (b batch) oneAtATime(ctx context.Context, requests []*request) error {
	select {
	case b.s.looking <- struct{}{}:
	case <-ctx.Done():
		return requests[0].opError(waited(ctx, errors.New("waiting for other reads of many znodes")), false)
	case <-b.s.ctx.Done():
		return requests[0].opError(b.s.Err(), false)
	}
	defer func() { <-b.s.looking }()
	return b.s.run(ctx, requests...)
}

// path returns the path of the znode that is named name.
func (b batch) path(name string) (string, error) {
	if b.dir == "" {
		return name, checkNamed(name)
	}
	return strings.TrimSuffix(b.dir, "/") + "/" + name, checkName(name)
}

// checkName refuses a child's name that would lead to another znode. No server has one.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return fmt.Errorf("%w: the server has listed a child %q", ErrPath, name)
	}
	return nil
}
