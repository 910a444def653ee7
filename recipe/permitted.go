package recipe

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

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
