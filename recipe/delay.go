package recipe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/session"
)

// dirState is what a directory's own data hold, as JSON: for a semaphore its size, and with a lock delay who holds.
// A directory may hold both. Data that are anything else are somebody else's, and are never overwritten: ErrConflict.
type dirState struct {
	Size int `json:"size,omitempty"`
	// Was is the largest size that the semaphore ever had, when that is more than Size: see semaphore.go.
	Was int `json:"was,omitempty"`
	// Claims are the delays, in nanoseconds, of those who hold with one, by their znodes' names. The znode of a holder
	// that was lost vanishes just like that of one that released; its claim, which only a release takes away, tells
	// them apart. A claim is written and taken away in a transaction with a check, or the deletion, of the holder's
	// znode: a holder that was stopped and goes on late can't touch it.
	//
	// Source: Consul's lock-delay.
	Claims map[string]time.Duration `json:"claims_ns,omitempty"`
}

// MaxDelay bounds a lock delay.
const MaxDelay = time.Hour

// parseState reads a directory's data; false: they are not ours.
func parseState(data []byte) (d dirState, ok bool) {
	if len(data) > 0 {
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		object := bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) // null would do as well
		if dec.Decode(&d) != nil || !object || dec.More() || !validSize(d.Size) || !validSize(d.Was) {
			return dirState{}, false
		}
	}
	if d.Claims == nil {
		d.Claims = map[string]time.Duration{}
	}
	return d, true
}

func validSize(n int) bool { return n >= 0 && n <= MaxPermits }

func (d dirState) encode() []byte {
	if d.Size == 0 && len(d.Claims) == 0 {
		return nil
	}
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // integers and strings always marshal
	}
	return b
}

// Claim makes one who could hold wait out the delays of holders that were lost, and then enters its own claim, with
// its own delay. It costs two reads and a write. All contenders of a directory have to use it, or none. A delay is
// counted from the moment at which the next in line finds the claim.
//
// Nil: the ticket may hold. Otherwise as for Wait; with try it does not wait out anything, and returns ErrBusy.
// ErrConflict: the directory has data that are somebody else's.
func (t *Ticket) Claim(ctx context.Context, delay time.Duration, try bool) error {
	own := path.Base(t.node)
	until := map[string]time.Time{} // when the delay of a lost holder is over
	for {
		state, stat, err := t.q.state(ctx, t.s)
		if errors.Is(err, zk.ErrNoNode) {
			return ErrGone
		}
		if err != nil {
			return err
		}
		if err := t.list(ctx); err != nil { // after the data: whoever made a claim meanwhile is in the list
			return err
		}
		stands := map[string]bool{}
		for _, name := range t.names {
			stands[name] = true
		}
		var longest time.Time
		var lost string
		for name, d := range state.Claims {
			if name == own || stands[name] && !t.alone(name) {
				continue
			}
			if _, known := until[name]; !known {
				until[name] = time.Now().Add(min(d, MaxDelay)) // the data may be anybody's
			}
			if until[name].After(longest) {
				longest, lost = until[name], name
			}
		}
		if time.Until(longest) > 0 {
			if try {
				return &busyError{lostHolder(lost)}
			}
			if err := t.sit(ctx, time.Until(longest), lost); err != nil {
				return err
			}
			continue
		}
		for name := range until {
			delete(state.Claims, name)
		}
		state.Claims[own] = delay
		t.delayed = true // from here on: a claim whose reply is lost has to be taken away as well
		_, err = t.s.Multi(ctx,
			&zk.CheckVersionRequest{Path: t.node, Version: -1},
			&zk.SetDataRequest{Path: t.q.Dir, Data: state.encode(), Version: stat.Version})
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zk.ErrNoNode):
			return ErrGone
		case errors.Is(err, zk.ErrBadVersion), transient(err) && ctx.Err() == nil:
			// Somebody else wrote, or our own write's reply was lost: read again.
		default:
			return err
		}
	}
}

// alone reports whether the one who made a claim can't hold beside the ticket, which is first in line: so it is lost, even
// if a znode of its name stands. A neighbour may have made that, as soon as the holder's had gone.
func (t *Ticket) alone(claimant string) bool {
	n, ok := Parse(claimant)
	k := t.q.Kind
	return ok && k != Permits && k.shares(n.Kind) && k.blocks(n.Kind)
}

// state reads the directory's data. ErrConflict: they are somebody else's.
func (q Queue) state(ctx context.Context, s *session.Session) (dirState, zk.Stat, error) {
	data, stat, err := s.Get(ctx, q.Dir)
	if err != nil {
		return dirState{}, stat, err
	}
	state, ok := parseState(data)
	if !ok {
		return dirState{}, stat, fmt.Errorf("%w: %s has data that no lock has written, and that are not overwritten: \"%s\"",
			ErrConflict, q.Dir, text.Foreign(string(data)))
	}
	return state, stat, nil
}

// sit waits out a delay at the head of the line.
func (t *Ticket) sit(ctx context.Context, d time.Duration, lost string) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-t.s.Done():
		return t.s.Err()
	case <-ctx.Done():
		return session.Waited(ctx, Waiting{lostHolder(lost)})
	}
}

// Forfeit makes the coming Leave count as a loss: the claim stays, and the next holder waits out the delay.
func (t *Ticket) Forfeit() { t.delayed = false }

// unclaim deletes the znode and takes away the claim, both or neither.
func (t *Ticket) unclaim(ctx context.Context) error {
	own := path.Base(t.node)
	for {
		state, stat, err := t.q.state(ctx, t.s)
		if errors.Is(err, ErrConflict) { // somebody has overwritten the claim
			return t.s.Delete(ctx, t.node, -1)
		}
		if err != nil {
			return err
		}
		delete(state.Claims, own)
		resps, err := t.s.Multi(ctx,
			&zk.DeleteRequest{Path: t.node, Version: -1},
			&zk.SetDataRequest{Path: t.q.Dir, Data: state.encode(), Version: stat.Version})
		switch {
		case err == nil, errors.Is(err, zk.ErrNoNode), len(resps) == 0:
			return err
		case !errors.Is(err, zk.ErrBadVersion):
			// The claim can't be written: access was taken from us. The place has to go all the same.
			return t.s.Delete(ctx, t.node, -1)
		}
	}
}
