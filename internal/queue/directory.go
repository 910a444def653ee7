package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
)

// dirData is what a semaphore's directory has as its data, as JSON: its size. Any other data are not this library's, and are
// never overwritten: ErrConflict.
type dirData struct {
	Size int `json:"size,omitempty"`
	// Was is the largest size that the semaphore ever had, if larger than Size: see semaphore.go.
	Was int `json:"was,omitempty"`
}

// parseData reads a directory's data; false: they are not ours.
func parseData(data []byte) (dirData, bool) {
	var d dirData
	if len(data) == 0 {
		return d, true
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	object := bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) // Decode accepts null too
	if dec.Decode(&d) != nil || !object || dec.More() || !validSize(d.Size) || !validSize(d.Was) {
		return dirData{}, false
	}
	return d, true
}

func validSize(n int) bool { return n >= 0 && n <= recipe.MaxPermits }

func (d dirData) encode() []byte {
	if d.Size == 0 {
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

// writeAgain reports whether to read the directory's data again and repeat a write to them: another write came first, the
// directory is gone, or the outcome is unknown.
func writeAgain(ctx context.Context, s *session.Session, err error) bool {
	return isOne(err, zk.ErrBadVersion, zk.ErrNoNode) || transient(err) && !isEnd(ctx, s, err)
}

// A directory's counter ends after 2³¹ creates (see recipe/order.go), and starts again only with a new directory. So a directory
// is renewed (deleted and made again with the same data, ACL and mode, in one transaction) when a contender with a number past
// renewFrom, half of the counter's range, has left, and none is left in the directory. Where it is never empty, for a
// thousand million creates, or can't be renewed, contenders are ordered by czxid near the counter's end: see recipe/order.go.
//
// An ordinary directory costs no request: the number in our own name shows how far the counter is.
//
// Safety. The server deletes only a directory without children, so no contender in line is affected. A create comes either
// before, and keeps the directory from being deleted, or after, in the new directory. What the numbers promise holds within
// one life of the directory. The delete carries the version of the data that are written back, so a write in between is not
// lost. (A write of the ACL in between is lost, since no request can demand the ACL's version. And a client that read
// version v of the data before the renewal can't tell it from version v of the new directory.) Tokens are czxids, which
// grow all the same. A watch on the directory reports a deletion.

// renewFrom is half of the counter's range.
const renewFrom = 1 << 30

// renewed renews the directory in the background when a znode of ours has left it, if it is time to and no child is left. A
// failure needs no report: the next contender that leaves tries again.
func (e *entry) renewed() {
	if n, _ := recipe.Parse(e.name()); n.Number >= 0 && n.Number < renewFrom {
		return
	}
	s, q := e.t.s, e.q
	s.Go(func(ctx context.Context) {
		data, stat, err := s.Get(ctx, q.Dir)
		if err != nil || stat.NumChildren > 0 || recipe.NewListing(nil, stat).Counter < renewFrom {
			return
		}
		acl, _, err := s.ACL(ctx, q.Dir)
		hidden := func(a zk.ACL) bool { return a.Scheme == "digest" && strings.HasSuffix(a.ID, ":x") } // not shown to us
		if err != nil || slices.ContainsFunc(acl, hidden) {
			return
		}
		dir := session.OpCreate{Path: q.Dir, Data: data, ACL: acl, Mode: session.Persistent}
		ops := []session.Op{session.OpDelete{Path: q.Dir, Version: stat.Version}, dir}
		// No request tells whether a directory is a container. Where we would make one, we take it for one, unless another
		// program keeps data there, which must not be removed with it.
		if _, ours := parseData(data); q.Container && ours {
			// The ensemble never removes a container that has had no child, so this one gets one.
			dir.Mode = session.Container
			first := q.Dir + "/" + newID()
			ops = []session.Op{ops[0], dir, session.OpCreate{Path: first, ACL: q.ACL}, session.OpDelete{Path: first, Version: -1}}
		}
		_, _ = s.Multi(ctx, ops...)
	})
}
