package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// stage is the environment of both runs: an ensemble with a path that is ours alone, and a database.
type stage struct {
	id       string // random, so that several users can share one ensemble and one database
	connect  string
	root     string
	database string
	client   *zklock.Client // the stage's own

	server *zktest.Server // nil on an external ensemble
	dir    string         // of the SQLite database; "" with PostgreSQL
}

// openStage connects to the servers that the command line names and creates the rest.
func openStage(ctx context.Context, c config) (s *stage, err error) {
	s = &stage{id: strings.ToLower(rand.Text()[:8]), connect: c.connect, database: c.database}
	s.root = "/zklock-approvals-" + s.id
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx))
		}
	}()
	if s.connect == "" {
		if s.server, err = zktest.Start(zktest.WithTick(tick)); err != nil {
			return s, err
		}
		s.connect = s.server.Addr()
	}
	if s.database == "" {
		if s.dir, err = os.MkdirTemp("", "approvals-"); err != nil {
			return s, err
		}
		s.database = filepath.Join(s.dir, "approvals.db")
	}
	// Five times the instances' timeout: the stage must outlast the faults.
	if s.client, err = dial(orders{Connect: s.connect, Timeout: 5 * sessionTimeout}); err != nil {
		return s, err
	}
	return s, s.insist(ctx, func(ctx context.Context, ses *session.Session) error {
		err := ses.CreateAll(ctx, s.root, nil, session.Persistent, session.WorldACL())
		if errors.Is(err, zk.ErrNodeExists) { // created by an attempt whose answer was lost
			return nil
		}
		return err
	})
}

// insist runs an idempotent function on znodes, again after a lost connection or session.
func (s *stage) insist(ctx context.Context, do func(context.Context, *session.Session) error) error {
	for {
		ses, err := s.client.Session(ctx)
		if err == nil {
			err = do(ctx, ses)
		}
		lost := errors.Is(err, session.ErrUnknownOutcome) || errors.Is(err, session.ErrLost)
		if !lost || pause(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

// close removes all that openStage and the runs have created. ctx may be over.
func (s *stage) close(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if s.client != nil {
		e := s.insist(ctx, func(ctx context.Context, ses *session.Session) error { return remove(ctx, ses, s.root) })
		if e != nil {
			e = fmt.Errorf("could not tidy up below %s: %w", s.root, e)
		}
		err = errors.Join(err, e, s.client.Close())
	}
	if s.server != nil {
		err = errors.Join(err, s.server.Close())
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// remove deletes a znode and all below it. A znode that is gone meanwhile, as contenders of a dead session are, is no
// error.
func remove(ctx context.Context, s *session.Session, path string) error {
	names, _, err := s.List(ctx, path)
	for _, name := range names {
		err = errors.Join(err, remove(ctx, s, path+"/"+name))
	}
	if err == nil {
		err = s.Delete(ctx, path, -1)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
