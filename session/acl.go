package session

import (
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// Grants reports whether a znode that this session makes with acl certainly grants perm to this session: to all clients, to
// the creator (scheme "auth"), or to a user of its digest credentials. False: it may still do so, by another scheme; only
// the ensemble knows.
func (s *Session) Grants(acl []zk.ACL, perm int32) bool {
	return slices.ContainsFunc(acl, func(a zk.ACL) bool {
		if a.Perms&perm != perm {
			return false
		}
		switch a.Scheme {
		case "world":
			return a.ID == "anyone"
		case "auth":
			return true // or else the create is refused
		case "digest":
			for _, auth := range s.cfg.Auth {
				user, password, _ := strings.Cut(string(auth.Credential), ":")
				if auth.Scheme == "digest" && zk.DigestACL(0, user, password)[0].ID == a.ID {
					return true
				}
			}
		}
		return false
	})
}
