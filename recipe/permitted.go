package recipe

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// Permitted knows of which directories it is certain that all who may create in them may delete as well. A directory's
// list is read once, and again when it has been changed. It is shared by all calls of a client, and may be used
// concurrently; nil reads the list each time.
type Permitted struct {
	mu    sync.Mutex // guards what follows
	known map[dirVersion]bool
}

// dirVersion is a directory with one access list.
type dirVersion struct {
	dir      string
	czxid    int64
	aversion int32
}

// permittedKept is how many directories are remembered.
const permittedKept = 256

// NewPermitted returns a Permitted that knows nothing yet.
func NewPermitted() *Permitted { return &Permitted{known: map[dirVersion]bool{}} }

// alike reports whether all who may create in the directory, which was listed with stat, may delete as well. False also
// where its list may not be read. An error says that ctx or the session has ended.
func (p *Permitted) alike(ctx context.Context, s *session.Session, v dirVersion) (bool, error) {
	if alike, known := p.look(v); known {
		return alike, nil
	}
	acl, stat, err := s.ACL(ctx, v.dir)
	switch {
	case err == nil:
		v.czxid, v.aversion = stat.Czxid, stat.Aversion
	case !errors.Is(err, zk.ErrNoAuth):
		return false, err
	}
	alike := err == nil
	for _, a := range acl {
		alike = alike && a.Perms&(zk.PermCreate|zk.PermDelete) != zk.PermCreate
	}
	p.note(v, alike)
	return alike, nil
}

func (p *Permitted) look(v dirVersion) (alike, known bool) {
	if p == nil {
		return false, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	alike, known = p.known[v]
	return alike, known
}

func (p *Permitted) note(v dirVersion, alike bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= permittedKept {
		clear(p.known)
	}
	p.known[v] = alike
}
