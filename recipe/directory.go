package recipe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/session"
)

// dirData is what a directory's own data hold, as JSON: for a semaphore its size, and with lock delays who holds. A
// directory may have both. Any other data are not this library's, and are never overwritten: ErrConflict.
type dirData struct {
	Size int `json:"size,omitempty"`
	// Was is the largest size that the semaphore ever had, when that is more than Size: see semaphore.go.
	Was int `json:"was,omitempty"`
	// Delays are the notes of those that hold with a lock delay, in nanoseconds, by their znodes' names: see delay.go.
	Delays map[string]time.Duration `json:"claims_ns,omitempty"`
	// Owners are the ids of their sessions.
	Owners map[string]int64 `json:"owners,omitempty"`
	// Found is when those of them that were lost were first found to be, by the leader's clock, in milliseconds since 1970.
	Found map[string]int64 `json:"found_ms,omitempty"`
}

// note notes that the contender name of the session owner holds with a lock delay.
func (d *dirData) note(name string, delay time.Duration, owner int64) {
	d.Delays[name], d.Owners[name] = delay, owner
}

// forget removes the note of name.
func (d *dirData) forget(name string) {
	delete(d.Delays, name)
	delete(d.Owners, name)
	delete(d.Found, name)
}

// parseData reads a directory's data; false: they are not ours.
func parseData(data []byte) (d dirData, ok bool) {
	if len(data) > 0 {
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		object := bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) // null would do as well
		if dec.Decode(&d) != nil || !object || dec.More() || !validSize(d.Size) || !validSize(d.Was) {
			return dirData{}, false
		}
	}
	if d.Delays == nil {
		d.Delays = map[string]time.Duration{}
	}
	if d.Owners == nil {
		d.Owners = map[string]int64{}
	}
	if d.Found == nil {
		d.Found = map[string]int64{}
	}
	return d, true
}

func validSize(n int) bool { return n >= 0 && n <= MaxPermits }

func (d dirData) encode() []byte {
	if d.Size == 0 && len(d.Delays) == 0 {
		return nil
	}
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // integers and strings always marshal
	}
	return b
}

// readData reads the directory's data. ErrConflict: they are not this library's.
func (q *Queue) readData(ctx context.Context, s *session.Session) (dirData, zk.Stat, error) {
	raw, stat, err := s.Get(ctx, q.Dir)
	if err != nil {
		return dirData{}, stat, err
	}
	d, ok := parseData(raw)
	if !ok {
		return dirData{}, stat, fmt.Errorf("%w: %s has data that no lock has written, and that are not overwritten: \"%s\"",
			ErrConflict, q.Dir, text.Foreign(string(raw)))
	}
	return d, stat, nil
}

// writeAgain reports whether a write to the directory's data should be tried again, after another read: another write
// came first, the directory is gone, or the outcome is unknown.
func writeAgain(ctx context.Context, err error) bool {
	return errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) || transient(err) && ctx.Err() == nil
}

// Size is the size of a semaphore as one program knows it: what it expects until it has once found that at the ensemble,
// and what the ensemble has from then on. It is shared by all calls for that semaphore, and may be used concurrently.
type Size struct {
	want   int
	agreed atomic.Int64 // the ensemble's; 0 before it has once been the one that is wanted
}

// NewSize returns the size of a semaphore that is expected to have n permits.
func NewSize(n int) *Size { return &Size{want: n} }

// agree returns the semaphore's size as the ensemble has it, for a call that asks for q.Permits of them. The first
// contender writes the size that it expects.
//
// ErrConflict: the ensemble has another size than the expected one, or data that are not this library's. session.ErrConfig:
// the call asks for more permits than there are. ErrDeadlock: it asks for more than there are beside those that its
// caller has.
func (z *Size) agree(ctx context.Context, s *session.Session, q *Queue, try bool) (int, error) {
	if q.Permits < 1 {
		return 0, fmt.Errorf("%w: %d permits: less than one", session.ErrConfig, q.Permits)
	}
	if z.agreed.Load() == 0 && q.Permits > z.want {
		return 0, tooMany(q.Permits, z.want) // whatever the ensemble has: nothing need be made to know it
	}
	size, err := q.readSize(ctx, s, z.want)
	if err != nil {
		return 0, err
	}
	if z.refuse(q, try, size) != nil { // by what may be a server that lags behind: it asks its leader first
		if err := s.Sync(ctx, q.Dir); err != nil {
			return 0, err
		}
		if size, err = q.readSize(ctx, s, z.want); err != nil {
			return 0, err
		}
		if err := z.refuse(q, try, size); err != nil {
			return 0, err
		}
	}
	z.agreed.Store(int64(size))
	return size, nil
}

// refuse says why a call can't be served by a semaphore of that size.
func (z *Size) refuse(q *Queue, try bool, size int) error {
	switch {
	case z.agreed.Load() == 0 && size != z.want:
		return fmt.Errorf("%w: semaphore %s has %d permits at the ensemble, not %d: Resize changes it", ErrConflict, q.Dir, size, z.want)
	case q.Permits > size:
		return tooMany(q.Permits, size)
	case !try && q.Held+q.Permits > size:
		return fmt.Errorf("%w: %d of %d permits, and asks for %d more", ErrDeadlock, q.Held, size, q.Permits)
	}
	return nil
}

func tooMany(n, size int) error {
	return fmt.Errorf("%w: %d permits: more than the semaphore has, which is %d", session.ErrConfig, n, size)
}

// readSize returns the semaphore's size as its directory has it, and makes the directory, or writes size into one that
// has none. ErrConflict: the directory is that of a lock of another kind that is in use, which gets no size.
func (q *Queue) readSize(ctx context.Context, s *session.Session, size int) (int, error) {
	var before Doubt
	for {
		d, stat, err := q.readData(ctx, s)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			if err := q.makeDir(ctx, s, dirData{Size: size}.encode()); err != nil {
				return 0, before.Add(err)
			}
			continue
		case err != nil:
			return 0, before.Add(err)
		case d.Size > 0:
			return d.Size, nil
		}
		names, _, err := s.List(ctx, q.Dir)
		if err == nil {
			err = q.conflict(ctx, s, foresee(names, q.Kind, q.Permits, d.Size).OtherKinds, math.MaxInt64)
		}
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return 0, err
		}
		d.Size = size
		_, err = s.Set(ctx, q.Dir, d.encode(), stat.Version)
		if before.Note(err); err != nil && !writeAgain(ctx, err) {
			return 0, before.Add(err)
		}
	}
}

// resized is the name of a persistent znode that Resize makes in a container, so that this is not removed and remembers
// the size. It is no contender's.
const resized = "resized"

// Resize writes a new size of q's semaphore. After an error it may have been written. ErrConflict: the directory has data
// that are not this library's. With Container, the ensemble does not remove the directory any more.
func (z *Size) Resize(ctx context.Context, s *session.Session, q Queue, size int) error {
	pin := q.Container
	q.Container = false
	var before Doubt
	for {
		if _, err := q.readSize(ctx, s, size); err != nil {
			return before.Add(err)
		}
		d, stat, err := q.readData(ctx, s)
		if err == nil && d.Size == size && !pin {
			break
		}
		if err == nil {
			if d.Was = max(d.Was, d.Size); d.Was <= size {
				d.Was = 0
			}
			d.Size = size
			if pin {
				_, err = s.Multi(ctx, &zk.CreateRequest{Path: q.Dir + "/" + resized, Acl: q.ACL, Flags: int32(session.Persistent)},
					&zk.SetDataRequest{Path: q.Dir, Data: d.encode(), Version: stat.Version})
			} else {
				_, err = s.Set(ctx, q.Dir, d.encode(), stat.Version)
			}
		}
		if err == nil {
			break
		}
		if pin && errors.Is(err, zk.ErrNodeExists) {
			pin = false // it is there already
		} else if before.Note(err); !writeAgain(ctx, err) {
			return before.Add(err)
		}
	}
	z.agreed.Store(int64(size))
	return nil
}

// Free returns the size of q's semaphore at the ensemble, the expected one where it has none yet, and how many permits
// no contender has or waits for. It writes nothing. ErrConflict: the directory has data that are not this library's.
func (z *Size) Free(ctx context.Context, s *session.Session, q Queue) (size, free int, err error) {
	if err := s.Sync(ctx, q.Dir); err != nil {
		return 0, 0, err
	}
	d, _, err := q.readData(ctx, s)
	var names []string
	if err == nil {
		names, _, err = s.List(ctx, q.Dir)
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) { // which has no contenders, and the size that the first one brings
		return 0, 0, err
	}
	if size = d.Size; size == 0 {
		size = z.want
	}
	free = size
	for _, name := range names {
		if n, ok := Parse(name); ok && n.Kind == Permits {
			free -= min(n.Permits, free)
		}
	}
	return size, free, nil
}
