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

// Access is decided per node and never inherited: each node has its own list, and a client may do
// what any entry grants to any of its identities. The schemes are those of a plain server: world
// (everybody), digest (a user, proved by a password), ip (an address or a network), sasl (a user by
// WithSASLUsers) and, in requests only, auth (the client's own identities).

// identity is one thing a connection has proved about itself. Every connection has its address as
// the first.
type identity struct{ scheme, id string }

// allowed says whether ids have any of the permissions in perm. An empty ACL lets everybody do
// everything.
func allowed(acl []ACL, perm int32, ids []identity) bool {
	if len(acl) == 0 {
		return true
	}
	for _, a := range acl {
		if a.Perms&perm == 0 {
			continue
		}
		if a.Scheme == "world" && a.ID == "anyone" {
			return true
		}
		// Entries of schemes unknown to this server match no client; they cannot be set either.
		for _, who := range ids {
			if who.scheme != a.Scheme {
				continue
			}
			switch who.scheme {
			case "digest", "sasl":
				if who.id == a.ID {
					return true
				}
			case "ip":
				if matchIP(who.id, a.ID) {
					return true
				}
			}
		}
	}
	return false
}

// fixACL validates a list that a client wants to set, removes duplicates, and replaces the scheme
// "auth" by the client's own identities. sasl says whether the server has that scheme.
func fixACL(acl []ACL, ids []identity, sasl bool) ([]ACL, fault.Code) {
	// The first bad entry decides. An entry that is merely pointless (no permission, an empty
	// network) is not an error.
	var out []ACL
	for i, a := range acl {
		if slices.Contains(acl[:i], a) {
			continue
		}
		switch { // "world" knows one id only; any other is as invalid as an unknown scheme
		case a.Scheme == "world" && a.ID == "anyone":
			out = append(out, a)
		case a.Scheme == "auth":
			n := len(out)
			for _, who := range ids {
				if who.scheme != "ip" { // an address is not a proof
					out = append(out, ACL{Perms: a.Perms, Scheme: who.scheme, ID: who.id})
				}
			}
			if len(out) == n {
				return nil, fault.CodeInvalidACL
			}
		case a.Scheme == "digest" && validDigest(a.ID), a.Scheme == "ip" && validIP(a.ID),
			a.Scheme == "sasl" && sasl && a.ID != "":
			out = append(out, a)
		default:
			return nil, fault.CodeInvalidACL
		}
	}
	if len(out) == 0 {
		return nil, fault.CodeInvalidACL
	}
	return out, fault.CodeOK
}

// digestID turns "user:password" into the identity that ACLs name: user, colon, base64 of SHA-1 of
// the whole. Where FIPS 140-only mode forbids SHA-1, it takes SHA-256, and faithful is false.
func digestID(cred string) (id string, faithful bool) {
	// Without a colon the whole is the user, and an empty credential is an identity, too. Nothing
	// is verified: a client is the user it claims to be, and owns the nodes that were created with
	// the same password.
	user, _, _ := strings.Cut(cred, ":")
	hash := sha1.New()
	if _, err := hash.Write([]byte(cred)); err != nil { // sha1.Sum would panic
		sum := sha256.Sum256([]byte(cred))
		return user + ":" + base64.StdEncoding.EncodeToString(sum[:]), false
	}
	return user + ":" + base64.StdEncoding.EncodeToString(hash.Sum(nil)), true
}

// validDigest accepts exactly two parts. Empty parts at the end do not count, because Java's split
// drops them.
func validDigest(id string) bool {
	return strings.Count(strings.TrimRight(id, ":"), ":") == 1
}

// parseIP reads "address" or "address/bits". ZooKeeper reads parts of an IPv4 address as plain
// decimal numbers: 010.0.0.1, which the standard parser refuses, is 10.0.0.1.
func parseIP(expr string) (addr netip.Addr, bits int, ok bool) {
	a, b, slash := strings.Cut(expr, "/")
	if strings.Contains(a, ":") {
		// IPv6 in the usual notation; a zone names an interface of one machine and means nothing to
		// another.
		v6, err := netip.ParseAddr(a)
		if err != nil || v6.Zone() != "" {
			return addr, 0, false
		}
		addr = v6
	} else {
		var raw [4]byte
		parts := strings.Split(a, ".")
		if len(parts) != 4 {
			return addr, 0, false
		}
		for i, p := range parts {
			v, err := strconv.Atoi(p)
			if err != nil || v < 0 || v > 255 {
				return addr, 0, false
			}
			raw[i] = byte(v)
		}
		addr = netip.AddrFrom4(raw)
	}
	bits = addr.BitLen() // without a slash the whole address has to match
	if slash {
		v, err := strconv.Atoi(b)
		if err != nil || v < 0 || v > bits {
			return addr, 0, false
		}
		bits = v
	}
	return addr, bits, true
}

// validIP says whether an expression is allowed in an ACL.
func validIP(expr string) bool {
	_, _, ok := parseIP(expr)
	return ok
}

// matchIP says whether an address is the one that an ACL names, or in its network.
func matchIP(id, expr string) bool {
	addr, bits, ok := parseIP(expr)
	if !ok {
		return false
	}
	me, err := netip.ParseAddr(id)
	return err == nil && me.BitLen() == addr.BitLen() && netip.PrefixFrom(addr, bits).Contains(me)
}

// masked hides the digests in an ACL from a client that may read the node but not administer it.
func masked(acl []ACL) []ACL {
	out := slices.Clone(acl)
	for i, a := range out {
		if a.Scheme == "digest" {
			if user, _, ok := strings.Cut(a.ID, ":"); ok {
				out[i].ID = user + ":x"
			}
		}
	}
	return out
}
