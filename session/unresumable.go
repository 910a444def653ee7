package session

import (
	"encoding/binary"
	"fmt"
	"time"
)

// ClickHouse Keeper speaks ZooKeeper's protocol, but its sessions last as long as their connections: a handshake that
// names a session is answered with a new one, in silence. The old one, and its ephemeral znodes, stay until its timeout.
// Such a server shows with its first handshake: there is no password by which the session could be taken up again, all of
// it is zeros.
//
// So the session ends with its connection, and nothing is dialled in its name any more; and no connection is given up for
// another one: a server that is silent, or slow, has until the lease ends. Nor may it ask for what an older
// Keeper does not know, since that ends the connection without an answer:
//
//	setWatches     a znode that existed when last seen is watched by getData, others by exists
//	removeWatches  a watch that no call needs any more stays until it fires. That of getData needs a znode, and fires when
//	               it goes; so the watches that stay are no more than the znodes that exist, and the paths given to Watch
//	createContainer
//	               a persistent znode is made
//	multiRead      each list is a request of its own
//
// The lease needs no other rule. Heartbeats are multis of checks, which Keeper passes through Raft as all multis
// (ZooKeeperMultiRequest::isReadRequest in its src/Common/ZooKeeper/ZooKeeperCommon.cpp), and each request that went
// through Raft lets the session's timeout begin anew on every server that applies it (KeeperStorage::processRequest in
// src/Coordination/KeeperStorage.cpp).

// notResumed is the end of a session whose connection broke.
func notResumed(server string, why error) error {
	return fmt.Errorf("%w: the connection broke, and %s resumes no session, like every ClickHouse Keeper: %w",
		ErrLeaseOver, server, why)
}

// refuse closes the session that a server has opened in place of ours, and ends ours.
func (c *conn) refuse(r connectResponse, ours int64) error {
	why := fmt.Errorf("%w: %s has opened session %#x in place of %#x: it resumes none, like every ClickHouse Keeper",
		ErrLeaseOver, c.server, r.id, ours)
	closing := appendHeader(nil, opClose)
	binary.BigEndian.PutUint32(closing, uint32(len(closing)-4))
	err := c.net.SetDeadline(time.Now().Add(c.limit))
	if err == nil {
		_, err = c.net.Write(closing)
	}
	if err != nil {
		why = fmt.Errorf("%w (and closing that one failed: %w)", why, err)
	}
	c.s.end(why)
	return why
}

// container is a create of a container in a request's frame: where its type is, and where its mode.
type container struct{ op, mode int }

// leaveContainers has r make persistent znodes in the place of containers. It is called when the connection is there that
// r goes to, since nothing tells before what its server may not know.
func (r *request) leaveContainers() {
	for _, c := range r.containers {
		binary.BigEndian.PutUint32(r.frame[c.op:], uint32(opCreate))
		binary.BigEndian.PutUint32(r.frame[c.mode:], uint32(Persistent))
	}
	if r.op == opCreateContainer {
		r.op = opCreate
	}
	r.containers = nil
}
