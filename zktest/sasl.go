package zktest

import (
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	"github.com/zklock/locker/zktest/fault"
)

// SASL as a real server with DigestLoginModule speaks it: the mechanism DIGEST-MD5 of RFC 2831, of
// which three messages are checked. The client's first is empty; its second answers the challenge;
// the server's last proves that it knows the password too.

// WithSASLUsers makes the server know users by SASL (DIGEST-MD5), each with its password, and
// accept access lists of the scheme sasl. Default: no SASL; a client that begins it gets an empty
// answer, as from a server without JAAS. Start returns an error in FIPS 140-only mode
// (GODEBUG=fips140=only), which forbids MD5.
func WithSASLUsers(passwords map[string]string) Option {
	return func(o *options) { o.saslUsers = maps.Clone(passwords) }
}

// md5Forbidden reports whether FIPS 140-only mode is in force. md5.Sum panics then.
func md5Forbidden() bool {
	_, err := md5.New().Write(nil)
	return err != nil
}

// The realm and the service of every ZooKeeper server.
const (
	saslRealm = "zk-sasl-md5"
	saslURI   = "zookeeper/zk-sasl-md5"
)

// sasl answers one message of a negotiation. The first, whatever it says, gets a challenge, and the
// second must answer that.
func (c *conn) sasl(r *request) answer {
	switch {
	case r.err != nil:
		return answer{silent: true, end: true}
	case len(c.s.opt.saslUsers) == 0:
		return answer{body: func(e *encoder) { e.buffer(nil) }}
	case c.saslNonce == "":
		c.saslNonce = rand.Text()
		challenge := fmt.Sprintf(`realm="%s",nonce="%s",charset=utf-8,algorithm=md5-sess`,
			saslRealm, c.saslNonce)
		return answer{body: func(e *encoder) { e.buffer([]byte(challenge)) }}
	}
	return c.checkSASLResponse(saslFields(string(r.auth)))
}

// checkSASLResponse answers the client's response to the challenge. A response that proves that the
// client knows its user's password adds the user to the connection's identities; any other ends the
// connection.
func (c *conn) checkSASLResponse(said map[string]string) answer {
	user := said["username"]
	password, known := c.s.opt.saslUsers[user]
	if !known || md5Forbidden() || said["nonce"] != c.saslNonce || said["digest-uri"] != saslURI ||
		said["response"] != saslProof("AUTHENTICATE:", user, password, said) {
		return answer{
			code: fault.CodeAuthFailed,
			body: func(e *encoder) { e.buffer(nil) },
			end:  true,
		}
	}
	c.identify(identity{schemeSASL, user})
	c.saslNonce = "" // a new negotiation gets a new one
	proof := "rspauth=" + saslProof(":", user, password, said)
	return answer{body: func(e *encoder) { e.buffer([]byte(proof)) }}
}

// saslProof returns what either side computes from the password. who is the side: "AUTHENTICATE:"
// for the client, ":" for the server.
func saslProof(who, user, password string, said map[string]string) string {
	secret := md5.Sum([]byte(user + ":" + said["realm"] + ":" + password))
	session := saslHex(string(secret[:]) + ":" + said["nonce"] + ":" + said["cnonce"])
	return saslHex(strings.Join([]string{session, said["nonce"], said["nc"], said["cnonce"],
		said["qop"], saslHex(who + said["digest-uri"])}, ":"))
}

// saslHex returns the MD5 of s in hexadecimal digits.
func saslHex(s string) string {
	sum := md5.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

// saslFields reads name=value or name="value", separated by commas. It does not know values with
// escapes.
func saslFields(s string) map[string]string {
	fields := map[string]string{}
	for s != "" {
		name, rest, _ := strings.Cut(s, "=")
		var value string
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			value, rest, _ = strings.Cut(quoted, `"`)
			rest = strings.TrimPrefix(rest, ",")
		} else {
			value, rest, _ = strings.Cut(rest, ",")
		}
		fields[name], s = value, rest
	}
	return fields
}
