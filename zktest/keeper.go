package zktest

import (
	"slices"
	"strings"
)

// What ClickHouse Keeper does with access lists and credentials, by its src/Coordination/KeeperStorage.cpp.

// fixKeeperACL is fixACL as Keeper does it: entries for the whole world are dropped, those of unknown schemes are
// skipped, and an empty list is the same as an open one.
func fixKeeperACL(acl []ACL, ids []identity) ([]ACL, Code) {
	var out []ACL
	valid := len(acl) == 0
	for _, a := range acl {
		switch {
		case a.Scheme == "world" && a.ID == "anyone":
			valid = true
		case a.Scheme == "auth":
			for _, who := range ids {
				valid = true
				out = append(out, ACL{Perms: a.Perms, Scheme: who.scheme, ID: who.id})
			}
		case a.Scheme == "digest":
			if strings.Count(a.ID, ":") != 1 {
				return nil, CodeInvalidACL
			}
			valid = true
			out = append(out, a)
		}
	}
	if !valid {
		return nil, CodeInvalidACL
	}
	return out, CodeOK
}

// authenticateAtKeeper adds an identity to the session. It is a transaction, and the connection survives a refusal.
func (c *conn) authenticateAtKeeper(r *request) answer {
	c.s.commitLocked(c.member, nil, 0)
	if r.scheme != "digest" || strings.Count(string(r.auth), ":") != 1 {
		return c.result(CodeAuthFailed, nil)
	}
	if id := (identity{"digest", digestID(string(r.auth))}); !slices.Contains(c.ids, id) {
		c.ids = append(c.ids, id)
	}
	return c.ok(nil)
}

// mayAllLocked asks for the permissions of all parts of a multi, against the state before it.
func (s *Server) mayAllLocked(c *conn, parts []request) bool {
	t := s.leader.tree
	for i := range parts {
		r := &parts[i]
		path := r.path
		if r.perm == PermCreate || r.perm == PermDelete {
			path, _ = parentOf(path)
		}
		if n := t.nodes[path]; n != nil && !allowed(n.acl, r.perm, c.ids) {
			return false
		}
	}
	return true
}
