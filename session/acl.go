package session

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// ACLs returns the access lists of several znodes, in one round trip.
func (s *Session) ACLs(ctx context.Context, paths ...string) ([][]zk.ACL, error) {
	calls := make([]*call, len(paths))
	for i, p := range paths {
		if err := checkNamed(p); err != nil {
			return nil, err
		}
		calls[i] = newCall(opGetACL, "get ACL", p, func(b []byte) []byte { return appendString(b, s.join(p)) })
	}
	if err := s.run(ctx, calls...); err != nil {
		return nil, err
	}
	acls := make([][]zk.ACL, len(paths))
	for i, c := range calls {
		d, err := c.result()
		if err != nil {
			return nil, err
		}
		if acls[i] = d.acl(); d.err != nil {
			return nil, s.garbled(c, d.err)
		}
	}
	return acls, nil
}

// Grants reports whether a znode that this session makes with acl certainly grants perm to it: to everybody, to whoever
// made it (scheme "auth"), or to a user of its digest credentials. False: it may, by another scheme, but only the
// ensemble knows.
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
