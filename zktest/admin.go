package zktest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zklock/locker/zktest/fault"
)

// What the test does to the server directly goes through the same transactions as its clients'
// writes: it takes a zxid, fires watches and reaches the followers. No ACL applies to it, and it
// has no session.

// Create makes a persistent znode that everybody may use, as another client would. Errors wrap a
// fault.Code.
func (s *Server) Create(path string, data []byte) error {
	return s.admin(request{op: fault.OpCreate, path: path, data: data, acl: openACL, ttl: noTTL})
}

// SetData writes a znode whatever its version. Errors wrap a fault.Code.
func (s *Server) SetData(path string, data []byte) error {
	return s.admin(request{op: fault.OpSetData, path: path, data: data, version: anyVersion})
}

// Delete removes a znode whatever its version, including an ephemeral of a live session. Errors
// wrap a fault.Code.
func (s *Server) Delete(path string) error {
	return s.admin(request{op: fault.OpDelete, path: path, version: anyVersion})
}

// DeleteAll removes a znode and everything below it, leaves first, each in a transaction of its
// own; the root and /zookeeper stay. Errors wrap a fault.Code.
func (s *Server) DeleteAll(path string) error {
	all := s.deletable(path)
	if len(all) == 0 && path != "/" {
		return fmt.Errorf("zktest: delete %s: %w", path, fault.CodeNoNode)
	}
	// Not one multi: clients see a tree vanish leaf by leaf, as after an administrator's deleteall.
	for _, p := range all {
		if err := s.Delete(p); err != nil && !errors.Is(err, fault.CodeNoNode) {
			return err
		}
	}
	return nil
}

// deletable returns the paths of a znode and its descendants, but not those of the server's own
// znodes. Children stand before their parents.
func (s *Server) deletable(path string) []string {
	below := strings.TrimSuffix(path, "/") + "/"
	var all []string
	for p := range s.Nodes() {
		isOwn := special(p) || strings.HasPrefix(p, "/zookeeper/")
		if !isOwn && (p == path || strings.HasPrefix(p, below)) {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all
}

// admin prepares and commits one write of the test's own. As with a client's, a refused one takes a
// zxid.
func (s *Server) admin(r request) error {
	r.operation = operationOf(r.op)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	p := s.preparerLocked(0, nil)
	p.admin = true
	mu, code := p.prepare(&r)
	if code != fault.CodeOK {
		s.commitLocked(s.leader, nil, 0)
		return fmt.Errorf("zktest: %v %s: %w", r.op, r.path, code)
	}
	s.commitLocked(s.leader, []mutation{mu}, 0)
	return nil
}

// SetSequence makes n the number of the next sequential child of path, so that a test can begin
// just before the counter's end (2147483647). As on a real server, a counter at its end stays
// there, except for creates of one multi and for overlapping ones: see Overlap. The error wraps
// fault.CodeNoNode.
func (s *Server) SetSequence(path string, n int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader.tree.nodes[path] == nil {
		return fmt.Errorf("zktest: sequence of %s: %w", path, fault.CodeNoNode)
	}
	s.commitLocked(s.leader, []mutation{{kind: mutSequence, path: path, creates: n}}, 0)
	return nil
}

// Overlap makes the next n creates below path overlap in the server's pipeline, as on a loaded real
// server: each is numbered after the one before it although that one has not been applied yet. It
// makes a difference only at the counter's end: the numbers continue with the negative ones and
// return to 2147483647 when the pipeline is empty, after the n. Zero ends it at once. The error
// wraps fault.CodeNoNode.
func (s *Server) Overlap(path string, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader.tree.nodes[path] == nil {
		return fmt.Errorf("zktest: overlap below %s: %w", path, fault.CodeNoNode)
	}
	delete(s.overlaps, path)
	if n > 0 {
		s.overlaps[path] = &overlap{left: n}
	}
	return nil
}

// overlap is a series of overlapping creates below one znode. It ends with the last create, or with
// the znode.
type overlap struct {
	left    int   // how many creates are still to come
	going   bool  // the first of them has been prepared
	creates int32 // if going: the parent's counter after the latest
}

// overlappedLocked takes the mutations of a transaction into account: see Overlap.
func (s *Server) overlappedLocked(muts []mutation) {
	for _, m := range muts {
		switch m.kind {
		case mutCreate:
			parent, _ := split(m.path)
			s.overlapLocked(orRoot(parent), m.creates)
		case mutDelete:
			delete(s.overlaps, m.path)
		}
	}
}

// overlapLocked counts one create below a znode. creates is the znode's counter after it.
func (s *Server) overlapLocked(parent string, creates int32) {
	o := s.overlaps[parent]
	if o == nil {
		return
	}
	o.going, o.creates = true, creates
	o.left--
	if o.left == 0 {
		delete(s.overlaps, parent)
	}
}

// Expire ends a session now, as if its timeout had passed. The error wraps
// fault.CodeUnknownSession.
func (s *Server) Expire(session int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[session] == nil {
		return fmt.Errorf("zktest: expire 0x%x: %w", session, fault.CodeUnknownSession)
	}
	s.endSessionLocked(s.leader, session)
	return nil
}

// DropConnections drops the connections of all clients of all members without another byte.
// Sessions stay.
func (s *Server) DropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		m.killLocked()
	}
	s.changedLocked()
}

// SendFrame sends a payload of any kind to a session's client, with a length field in front, as if
// it were a reply or a notification. It does not wait for the client. The error wraps
// fault.CodeConnectionLoss if no client is connected.
func (s *Server) SendFrame(session int64, payload []byte) error {
	return s.send(session, frame(payload))
}

// SendRaw is SendFrame without the length field.
func (s *Server) SendRaw(session int64, b []byte) error { return s.send(session, slices.Clone(b)) }

// send queues bytes as they are. No fault applies to them, except that a freeze holds them back.
func (s *Server) send(session int64, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ss := s.sessions[session]
	if ss == nil || ss.conn == nil {
		return fmt.Errorf("zktest: send to 0x%x: %w", session, fault.CodeConnectionLoss)
	}
	ss.conn.out.put(newParcel(b))
	return nil
}
