package recipe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/session"
)

// verify refuses a directory whose ACL is not the one that the queue's has, or would have if it were made: another client
// has made it, or has changed it. A client with DELETE on it may delete any contender, whatever the contender's own ACL.
// It is asked of the directory that our own znode is in, which can't be another one before the znode has gone, and
// compared with the ACL of our own znode: for both the server has put the identities in place of the scheme "auth".
func (e *entry) verify(ctx context.Context) error {
	if !e.q.VerifyACL {
		return nil
	}
	b := e.t.s.Batch()
	own, dir := b.ACL(e.node), b.ACL(e.q.Dir)
	err := b.Do(ctx)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return ErrGone
	case err != nil:
		return fmt.Errorf("verifying the ACL of %s: %w", e.q.Dir, err)
	}
	if diff := compareACL(own.Value.List, dir.Value.List); diff != "" {
		return fmt.Errorf("%w: the ACL of %s differs from the lock's: it %s", ErrConflict, e.q.Dir, diff)
	}
	return nil
}

// compareACL says in words what have grants beyond want, and does not grant of it; "" when they are the same.
func compareACL(want, have []zk.ACL) string {
	w, h := grants(want), grants(have)
	var diff []string
	for who, perms := range h {
		if more := perms &^ w[who]; more != 0 {
			diff = append(diff, "grants "+letters(more)+" to "+text.Foreign(who))
		}
	}
	for who, perms := range w {
		if less := perms &^ h[who]; less != 0 {
			diff = append(diff, "does not grant "+letters(less)+" to "+text.Foreign(who))
		}
	}
	slices.Sort(diff)
	return strings.Join(diff, ", ")
}

func grants(acl []zk.ACL) map[string]int32 {
	m := map[string]int32{}
	for _, a := range acl {
		m[a.Scheme+":"+a.ID] |= a.Perms & zk.PermAll
	}
	return m
}

// letters writes permissions as ZooKeeper's own tools do.
func letters(perms int32) string {
	var text []byte
	for i, perm := range []int32{zk.PermCreate, zk.PermDelete, zk.PermRead, zk.PermWrite, zk.PermAdmin} {
		if perms&perm != 0 {
			text = append(text, "cdrwa"[i])
		}
	}
	return string(text)
}

// permitted knows of which directories all who may create in them may delete as well. It may be used concurrently.
//
// A directory's access list is read once, and from then on its version, which comes with every list of the children,
// says whether it is still the same. A call relies on it only if the version was seen within permittedFresh: a list that is
// tightened counts from then on, at the latest, for all who wait.
type permitted struct {
	s     *session.Session
	mu    sync.Mutex // guards what follows
	known map[string]dirACL
}

// dirVersion is a directory with one access list.
type dirVersion struct {
	czxid    int64
	aversion int32
}

// dirACL is what is known of a directory.
type dirACL struct {
	dirVersion
	alike bool
	at    time.Time // of the last look at its version
}

const (
	permittedKept  = 256 // directories that are remembered
	permittedFresh = time.Second
)

// seen notes that the directory has been listed, and had that version.
func (p *permitted) seen(dir string, v dirVersion) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := p.known[dir]; ok && a.dirVersion == v {
		a.at = time.Now()
		p.known[dir] = a
	}
}

// alike reports whether all who may create in the directory may delete as well, and could not have done otherwise since it
// had the version v; the zero version is of a directory that nothing is known of. False also when that can't be known. An
// error says that ctx or the session has ended.
func (p *permitted) alike(ctx context.Context, dir string, v dirVersion) (bool, error) {
	if v == (dirVersion{}) {
		return false, nil
	}
	p.mu.Lock()
	a := p.known[dir]
	p.mu.Unlock()
	if a.dirVersion == v && time.Since(a.at) <= permittedFresh {
		return a.alike, nil
	}
	acl, stat, err := p.s.ACL(ctx, dir)
	if err != nil {
		if ctx.Err() != nil || p.s.Err() != nil {
			return false, err
		}
		return false, nil // it is gone, or may not be read
	}
	a = dirACL{dirVersion{stat.Czxid, stat.Aversion}, true, time.Now()}
	for _, entry := range acl {
		a.alike = a.alike && entry.Perms&(zk.PermCreate|zk.PermDelete) != zk.PermCreate
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= permittedKept {
		clear(p.known)
	}
	p.known[dir] = a
	return a.alike && a.dirVersion == v, nil
}
