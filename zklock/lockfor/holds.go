package lockfor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/zklock/locker/zklock"
)

// ErrNotLocked says that Unlock was called for what is not locked.
var ErrNotLocked = errors.New("lockfor: is not locked")

// holds are the holds of an adapter whose interface unlocks by a name. If a hold was lost, another
// call of this process may have the same name's lock before the first one unlocks it. So each name
// has a list, the oldest hold first: an Unlock never releases the hold of a later Lock. That needs
// one Unlock for each Lock.
type holds struct {
	mu     sync.Mutex // guards byName
	byName map[string][]*zklock.Hold
}

func (h *holds) add(name string, hold *zklock.Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byName == nil {
		h.byName = map[string][]*zklock.Hold{}
	}
	h.byName[name] = append(h.byName[name], hold)
}

// take removes the oldest hold of the name, and returns nil if there is none.
func (h *holds) take(name string) *zklock.Hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.byName[name]
	if len(all) == 0 {
		return nil
	}
	if len(all) == 1 {
		delete(h.byName, name)
	} else {
		h.byName[name] = all[1:]
	}
	return all[0]
}

// err returns why the name is not locked any more, or nil if it is. The interface does not say
// which of several holds is meant, so it returns the error of one that was lost, if there is one:
// to give up work that could have gone on is harmless, and the opposite is not.
func (h *holds) err(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.byName[name]
	if len(all) == 0 {
		return fmt.Errorf("%w: %s", ErrNotLocked, name)
	}
	for _, hold := range all {
		if err := hold.Err(); err != nil {
			return err
		}
	}
	return nil
}

// lock locks m for the name.
func (h *holds) lock(ctx context.Context, name string, m *zklock.Mutex) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	h.add(name, hold)
	return nil
}

// unlock releases the oldest hold of the name. No context bounds it: see zklock.Hold.Unlock.
func (h *holds) unlock(name string) error {
	hold := h.take(name)
	if hold == nil {
		return fmt.Errorf("%w: %s", ErrNotLocked, name)
	}
	return hold.Unlock()
}
