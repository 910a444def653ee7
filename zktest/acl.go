package zktest

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/zklock/locker/zktest/fault"
)

// The bits of ACL.Perms.
const (
	PermRead int32 = 1 << iota
	PermWrite
	PermCreate
	PermDelete
	PermAdmin
)

const permAll = PermRead | PermWrite | PermCreate | PermDelete | PermAdmin

// Access is decided per node and never inherited: each node has its own list, and a client may do
// what any entry of the list grants to any of its identities. An entry of a scheme that is not one
// of these matches no client, and no client can set it.
const (
	schemeWorld  = "world"  // everybody; its only id is worldID
	schemeDigest = "digest" // a user, proved by a password
	schemeIP     = "ip"     // an address or a network
	schemeSASL   = "sasl"   // a user of WithSASLUsers
	schemeAuth   = "auth"   // in requests only: the identities of the client that sends the request
)

const worldID = "anyone"

// identity is one thing that a connection has proved about itself. The first identity of every
// connection is its address.
type identity struct{ scheme, id string }

// allowed reports whether acl grants at least one of the permissions in perm to at least one of
// ids. An empty list lets everybody do everything.
func allowed(acl []ACL, perm int32, ids []identity) bool {
	if len(acl) == 0 {
		return true
	}
	for _, entry := range acl {
		if entry.Perms&perm != 0 && entry.isFor(ids) {
			return true
		}
	}
	return false
}

// isFor reports whether the entry grants its permissions to a client with these identities.
func (a ACL) isFor(ids []identity) bool {
	if a.isForEverybody() {
		return true
	}
	for _, who := range ids {
		if who.matches(a) {
			return true
		}
	}
	return false
}

func (a ACL) isForEverybody() bool { return a.Scheme == schemeWorld && a.ID == worldID }

// matches reports whether the entry names the identity, or a network that contains it.
func (who identity) matches(entry ACL) bool {
	if who.scheme != entry.Scheme {
		return false
	}
	switch who.scheme {
	case schemeDigest, schemeSASL:
		return who.id == entry.ID
	case schemeIP:
		return matchIP(who.id, entry.ID)
	}
	return false
}

// fixACL returns the list that a node gets if a client with these identities sets acl: without
// duplicates, and with the client's own identities in place of the scheme auth. hasSASL says
// whether the server has the scheme sasl.
//
// It fails with CodeInvalidACL if the list is empty or any entry is invalid. An entry that is
// merely pointless, because it grants no permission or names a network without addresses, is valid.
func fixACL(acl []ACL, ids []identity, hasSASL bool) ([]ACL, fault.Code) {
	var fixed []ACL
	for i, entry := range acl {
		if slices.Contains(acl[:i], entry) {
			continue
		}
		switch {
		case entry.Scheme == schemeAuth:
			own := grantToSelf(entry.Perms, ids)
			if len(own) == 0 {
				return nil, fault.CodeInvalidACL
			}
			fixed = append(fixed, own...)
		case entry.isValid(hasSASL):
			fixed = append(fixed, entry)
		default:
			return nil, fault.CodeInvalidACL
		}
	}
	if len(fixed) == 0 {
		return nil, fault.CodeInvalidACL
	}
	return fixed, fault.CodeOK
}

// grantToSelf returns the entries that an entry of the scheme auth stands for: one for each
// identity of the client except its address, which proves nothing.
func grantToSelf(perms int32, ids []identity) []ACL {
	var own []ACL
	for _, who := range ids {
		if who.scheme != schemeIP {
			own = append(own, ACL{Perms: perms, Scheme: who.scheme, ID: who.id})
		}
	}
	return own
}

// isValid reports whether a node's list may have the entry. The scheme auth is not valid: fixACL
// replaces it.
func (a ACL) isValid(hasSASL bool) bool {
	switch a.Scheme {
	case schemeWorld:
		return a.isForEverybody()
	case schemeDigest:
		return validDigest(a.ID)
	case schemeIP:
		_, ok := parseNetwork(a.ID)
		return ok
	case schemeSASL:
		return hasSASL && a.ID != ""
	}
	return false
}

// digestID returns the identity that an ACL names for the credentials "user:password": the user, a
// colon, and the SHA-1 of the whole in base64. Where FIPS 140-only mode forbids SHA-1, digestID
// uses SHA-256 instead, and faithful is false.
//
// Nothing is verified: a client is the user it claims to be, and has access to the nodes that were
// given to a user of the same name and password. Credentials without a colon, or empty ones, are an
// identity too.
func digestID(cred string) (id string, faithful bool) {
	user, _, _ := strings.Cut(cred, ":")
	hash := sha1.New()
	if _, err := hash.Write([]byte(cred)); err != nil { // sha1.Sum would panic
		sum := sha256.Sum256([]byte(cred))
		return user + ":" + base64.StdEncoding.EncodeToString(sum[:]), false
	}
	return user + ":" + base64.StdEncoding.EncodeToString(hash.Sum(nil)), true
}

// validDigest reports whether the id of a digest entry has exactly two parts. Empty parts at the
// end do not count, because Java's split drops them.
func validDigest(id string) bool {
	return strings.Count(strings.TrimRight(id, ":"), ":") == 1
}

// matchIP reports whether a client's address is in the network that an entry names.
func matchIP(address, expr string) bool {
	network, ok := parseNetwork(expr)
	if !ok {
		return false
	}
	client, err := netip.ParseAddr(address)
	return err == nil && network.Contains(client)
}

// parseNetwork reads the id of an entry of the scheme ip: "address", which is a network of one
// address, or "address/bits".
func parseNetwork(expr string) (network netip.Prefix, ok bool) {
	address, length, hasLength := strings.Cut(expr, "/")
	addr, ok := parseAddress(address)
	if !ok {
		return netip.Prefix{}, false
	}
	bits := addr.BitLen()
	if hasLength {
		if bits, ok = parseUpTo(length, bits); !ok {
			return netip.Prefix{}, false
		}
	}
	return netip.PrefixFrom(addr, bits), true
}

// parseAddress reads an IPv4 or IPv6 address. An IPv6 address must not have a zone, which names an
// interface of one machine and means nothing to another.
func parseAddress(s string) (addr netip.Addr, ok bool) {
	if !strings.Contains(s, ":") {
		return parseIPv4(s)
	}
	addr, err := netip.ParseAddr(s)
	return addr, err == nil && addr.Zone() == ""
}

// parseIPv4 reads an address as ZooKeeper does, whose parts are plain decimal numbers: 010.0.0.1,
// which netip.ParseAddr refuses, is 10.0.0.1.
func parseIPv4(s string) (addr netip.Addr, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 4 {
		return netip.Addr{}, false
	}
	var raw [4]byte
	for i, part := range parts {
		v, ok := parseUpTo(part, 255)
		if !ok {
			return netip.Addr{}, false
		}
		raw[i] = byte(v)
	}
	return netip.AddrFrom4(raw), true
}

// parseUpTo reads a decimal number between 0 and limit.
func parseUpTo(s string, limit int) (v int, ok bool) {
	v, err := strconv.Atoi(s)
	return v, err == nil && v >= 0 && v <= limit
}

// masked returns a copy of the list whose digests are hidden, for a client that may read the node
// but not administer it.
func masked(acl []ACL) []ACL {
	out := slices.Clone(acl)
	for i, entry := range out {
		if entry.Scheme != schemeDigest {
			continue
		}
		if user, _, ok := strings.Cut(entry.ID, ":"); ok {
			out[i].ID = user + ":x"
		}
	}
	return out
}
