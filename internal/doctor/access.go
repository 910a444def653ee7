package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/recipe"
)

// Verdict says whether a permission is granted.
type Verdict string

// Verdicts.
const (
	Granted Verdict = "granted"
	Refused Verdict = "refused"
	Unknown Verdict = "unknown"
)

// Access is what the client may do at Path.
type Access struct {
	Path string `json:"path"`

	// At is the znode that was asked: Path, or the nearest above it that exists. It is "" if not
	// even the chroot exists.
	At string `json:"at"`

	// Every lock needs Read, Create and Delete. Semaphores and elections need Write too. No lock
	// needs Admin.
	Read   Verdict `json:"read"`
	Create Verdict `json:"create"`
	Delete Verdict `json:"delete"`
	Write  Verdict `json:"write"`
	Admin  Verdict `json:"admin"`
	Error  string  `json:"error,omitempty"` // why something is unknown

	// Persistent are children of Path that have a contender's name and no session, ten at most. A
	// lock waits for them until somebody deletes them.
	Persistent []string `json:"persistent_contenders,omitempty"`
}

// access asks the server v for the permissions at x.Path, and for the leader's clock, which dates
// znodes. To read that clock it makes a znode and deletes it. It returns a nil Offset if it may not
// do both. It also does so if the clock can't be read: then it notes why in v.Unknown.
func (x *examination) access(ctx context.Context, v *Server) (Access, *Offset) {
	ctx, cancel := context.WithTimeout(ctx, x.Patience)
	defer cancel()
	a := Access{
		Path:   x.Path,
		Read:   Unknown,
		Create: Unknown,
		Delete: Unknown,
		Write:  Unknown,
		Admin:  Unknown,
	}
	s, err := x.open(ctx, v.Addr)
	if err != nil {
		a.Error = said(err)
		return a, nil
	}
	defer s.Close()
	if err := a.ask(ctx, s); err != nil {
		a.Error = said(err)
		return a, nil
	}
	if a.At == "" || a.Create != Granted || a.Delete != Granted {
		return a, nil
	}
	clock, err := leaderClock(ctx, s, a.At)
	if err != nil {
		v.unknown("leader's clock", err)
	}
	return a, clock
}

// mostPersistent bounds the names of Access.Persistent.
const mostPersistent = 10

// findPersistent finds the znodes of Access.Persistent among names, the children of Path.
func (a *Access) findPersistent(ctx context.Context, s *session.Session, names []string) error {
	var contenders []string
	for _, name := range names {
		if _, isContender := recipe.Parse(name); isContender {
			contenders = append(contenders, name)
		}
	}
	nodes, err := s.StatsBelow(ctx, a.Path, contenders)
	if err != nil {
		return err
	}
	for i, n := range nodes {
		if n.Err == nil && n.Stat.EphemeralOwner == 0 && len(a.Persistent) < mostPersistent {
			a.Persistent = append(a.Persistent, contenders[i])
		}
	}
	return nil
}

// ask finds the nearest znode that exists, and asks for each permission there, by operations that
// have no effect. findNearest has asked for Read.
func (a *Access) ask(ctx context.Context, s *session.Session) error {
	err := a.findNearest(ctx, s)
	if err != nil || a.At == "" {
		return err
	}
	// A server checks the permission for a write first, and then the version. No znode has this
	// version, so neither write can succeed: no data are lost, and no access list is opened to the
	// world.
	const never = math.MinInt32
	_, err = s.Set(ctx, a.At, nil, never)
	a.Write = verdict(err, zk.ErrBadVersion)
	if a.Write == Unknown {
		return err
	}
	_, err = s.SetACL(ctx, a.At, session.WorldACL(), never)
	a.Admin = verdict(err, zk.ErrBadVersion)
	if a.Admin == Unknown {
		return err
	}
	return a.askChildren(ctx, s)
}

// findNearest sets At to the nearest znode that exists, or to "" if there is none, and asks for
// Read there. If that is Path itself, it also finds the persistent contenders.
func (a *Access) findNearest(ctx context.Context, s *session.Session) error {
	a.At = a.Path
	names, _, err := s.List(ctx, a.At)
	for errors.Is(err, zk.ErrNoNode) {
		if a.At == "/" { // not even the chroot exists
			a.At = ""
			return nil
		}
		a.At = parent(a.At)
		names, _, err = s.List(ctx, a.At)
	}
	if err != nil && !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	a.Read = verdict(err)
	if a.At == a.Path && a.Read == Granted {
		return a.findPersistent(ctx, s, names)
	}
	return nil
}

// askChildren asks whether a znode may be made and deleted below At. It does both in a transaction
// whose last operation is refused, so that none has an effect.
func (a *Access) askChildren(ctx context.Context, s *session.Session) error {
	child := strings.TrimSuffix(a.At, "/") + missing(time.Now())
	results, err := s.Multi(ctx,
		session.OpCreate{Path: child, ACL: session.WorldACL(), Mode: session.Ephemeral},
		session.OpDelete{Path: child, Version: -1},
		session.OpCheck{Path: child, Version: -1})
	if errors.Is(err, session.ErrExpired) {
		// Servers with local sessions give this answer to a transaction with an ephemeral znode.
		return fmt.Errorf("%w: with localSessionsEnabled, "+
			"localSessionsUpgradingEnabled has to be true", err)
	}
	if len(results) < 3 { // no reply came, or the transaction was refused as a whole
		return err
	}
	a.Create = verdict(results[0].Error)
	if a.Create != Granted {
		return unlessRefused(results[0].Error)
	}
	a.Delete = verdict(results[1].Error)
	return unlessRefused(results[1].Error)
}

// verdict returns what an operation's error says about the permission for it. The errors granted
// are those that a server returns only after it has checked the permission.
func verdict(err error, granted ...error) Verdict {
	switch {
	case err == nil, failure.IsOne(err, granted...):
		return Granted
	case errors.Is(err, zk.ErrNoAuth):
		return Refused
	}
	return Unknown
}

// unlessRefused returns nil if err is a refusal, which is a verdict, and err itself otherwise.
func unlessRefused(err error) error {
	if errors.Is(err, zk.ErrNoAuth) {
		return nil
	}
	return err
}

func parent(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 1)] }

// leaderClock reads the leader's clock. It makes a znode, which the leader dates, whichever server
// is asked, and deletes it.
func leaderClock(ctx context.Context, s *session.Session, at string) (*Offset, error) {
	path := strings.TrimSuffix(at, "/") + missing(time.Now())
	sent := time.Now()
	made, err := s.Create(ctx, path, nil, session.Ephemeral, session.WorldACL())
	answered := time.Now()
	if err != nil {
		return nil, err
	}
	stat, err := s.Exists(ctx, made.Path)
	if err := errors.Join(err, s.Delete(ctx, made.Path, -1)); err != nil {
		return nil, err
	}
	return offset(time.UnixMilli(stat.Ctime), sent, answered), nil
}
