package session

import (
	"crypto/sha1"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// Grants reports whether a znode that this session makes with acl certainly grants perm to this session: to everybody, to
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
			for _, auth := range s.cfg.auth {
				if auth.Scheme == "digest" && digestID(string(auth.Credential)) == a.ID {
					return true
				}
			}
		}
		return false
	})
}

// digestID is what the scheme "digest" makes of a credential, user:password.
func digestID(credential string) string {
	user, _, _ := strings.Cut(credential, ":")
	sum := sha1.Sum([]byte(credential))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}
