package locktest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/zklock/locker/zklock"
)

// Exclusion checks a critical section: no two live holds in it at once.
type Exclusion struct {
	mu      sync.Mutex // guards the fields below
	inside  *zklock.Hold
	broken  []error
	entries []entry
	count   int
}

// entry is one acquisition, in the order in which they happened.
type entry struct {
	Token zklock.Token
	Node  string
}

// Enter records a hold that has just begun. It must be the only live one.
func (x *Exclusion) Enter(h *zklock.Hold) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if other := x.inside; other != nil && other.Context().Err() == nil {
		x.broken = append(x.broken,
			fmt.Errorf("%s holds while %s (token %d) still does", h.Node(), other.Node(),
				other.Token()))
	}
	x.inside = h
	x.count++
	x.entries = append(x.entries, entry{h.Token(), h.Node()})
}

// Leave records that a holder is about to release.
func (x *Exclusion) Leave(h *zklock.Hold) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.inside == h {
		x.inside = nil
	} else if h.Context().Err() == nil {
		x.broken = append(x.broken,
			fmt.Errorf("another holder entered while %s (token %d) held", h.Node(), h.Token()))
	}
}

// Count returns the number of entries so far.
func (x *Exclusion) Count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.count
}

// Err returns the violations so far, and whether tokens and sequence numbers grew from holder to
// holder.
func (x *Exclusion) Err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	broken := slices.Clone(x.broken)
	for i := 1; i < len(x.entries); i++ {
		a, b := x.entries[i-1], x.entries[i]
		if a.Token >= b.Token {
			broken = append(broken,
				fmt.Errorf("token %d of %s was followed by token %d of %s", a.Token, a.Node,
					b.Token, b.Node))
		}
		if number(a.Node) >= number(b.Node) {
			broken = append(broken,
				fmt.Errorf("%s was followed by %s, which queued earlier", a.Node, b.Node))
		}
	}
	if len(broken) > 20 {
		broken = append(broken[:20], fmt.Errorf("and %d more", len(broken)-20))
	}
	return errors.Join(broken...)
}

// number is the sequence number at the end of a znode's name.
func number(node string) int {
	n, err := strconv.Atoi(node[max(0, len(node)-10):])
	if err != nil {
		return -1
	}
	return n
}
