package session

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// DigestMD5 is the SASL mechanism DIGEST-MD5, for a user of the server's JAAS configuration
// (DigestLoginModule, user_NAME="password"). The password does not cross the wire, and the server
// proves that it knows it too. Requests and replies are neither encrypted nor signed: use TLS where
// others can reach the network. Access lists name the user as {"sasl", user}. Source: RFC 2831,
// with the service and host that ZooKeeper's clients use, zookeeper/zk-sasl-md5.
//
// FIPS 140-only mode (GODEBUG=fips140=only) forbids MD5: Dial then returns an error that matches
// zklock.ErrInvalid.
func DigestMD5(user, password string) SASL { return &digestMD5{user, password} }

type digestMD5 struct{ user, password string }

func (m *digestMD5) Name() string             { return "DIGEST-MD5" }
func (m *digestMD5) Begin(string) Negotiation { return &digestRun{digestMD5: m} }

// errNoMD5 says why DIGEST-MD5 can't be used, and what can be done.
var errNoMD5 = errors.New("needs MD5, which FIPS 140-only mode (GODEBUG=fips140=only) forbids: " +
	"authenticate by Kerberos or a client certificate, or set GODEBUG=fips140=on")

// Usable returns an error if MD5 is forbidden. A session asks it before any I/O.
func (m *digestMD5) Usable() error {
	if _, err := md5.New().Write(nil); err != nil { // md5.Sum would panic
		return errNoMD5
	}
	return nil
}

type digestRun struct {
	*digestMD5
	proof string // expected of the server
}

const digestURI = "zookeeper/zk-sasl-md5"

func (r *digestRun) Step(_ context.Context, challenge []byte) (token []byte, done bool, err error) {
	if err := r.Usable(); err != nil { // nobody asked, if another mechanism wraps this one
		return nil, false, err
	}
	switch {
	case challenge == nil:
		return []byte{}, false, nil // the server speaks first
	case r.proof == "":
		token, err = r.answer(challenge)
		return token, false, err
	}
	said, err := directives(challenge)
	if err != nil {
		return nil, false, err
	}
	if said["rspauth"] != r.proof {
		return nil, false, errors.New("the server does not know the password")
	}
	return nil, true, nil
}

func (r *digestRun) answer(challenge []byte) ([]byte, error) {
	said, err := directives(challenge)
	switch {
	case err != nil:
		return nil, err
	case said["nonce"] == "":
		return nil, errors.New("the server's challenge has no nonce")
	case said["algorithm"] != "md5-sess":
		return nil, errors.New("the server's challenge is not of the algorithm md5-sess")
	case said["qop"] != "" &&
		!strings.Contains(","+strings.ReplaceAll(said["qop"], " ", "")+",", ",auth,"):
		return nil,
			fmt.Errorf("the server wants protection %q: only auth is spoken here", said["qop"])
	}
	realm, nonce, cnonce := said["realm"], said["nonce"], rand.Text()
	utf8 := said["charset"] == "utf-8"
	secret := md5.Sum([]byte(latin(r.user, utf8) + ":" + latin(realm, utf8) + ":" +
		latin(r.password, utf8)))
	session := hexSum(string(secret[:]) + ":" + nonce + ":" + cnonce)
	proof := func(a2 string) string {
		return hexSum(session + ":" + nonce + ":00000001:" + cnonce + ":auth:" + hexSum(a2))
	}
	r.proof = proof(":" + digestURI)
	var b strings.Builder
	if utf8 {
		b.WriteString("charset=utf-8,")
	}
	fmt.Fprintf(&b,
		`username=%s,realm=%s,nonce=%s,nc=00000001,cnonce="%s",digest-uri="%s",maxbuf=65536,response=%s,qop=auth`,
		quoted(r.user), quoted(realm), quoted(nonce), cnonce, digestURI, proof("AUTHENTICATE:"+
			digestURI))
	return []byte(b.String()), nil
}

func hexSum(s string) string { return fmt.Sprintf("%x", md5.Sum([]byte(s))) }

// latin encodes a name or password for hashing: in ISO 8859-1 if that has all its characters, else
// in UTF-8 if the server accepts that.
func latin(s string, utf8 bool) string {
	var b []byte
	for _, r := range s {
		if r > 0xff && utf8 {
			return s
		}
		b = append(b, byte(r))
	}
	return string(b)
}

func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// directive matches name=value or name="value"; in quotes, a backslash escapes the next character.
const directive = `^([^=]*)=(?:"((?s:[^"\\]|\\.)*)"|([^",][^,]*)?(?:,|$))`

// directives reads a challenge's directives, which commas separate. If a name occurs more than
// once, the first counts.
func directives(b []byte) (map[string]string, error) {
	pattern, found := regexp.MustCompile(directive), map[string]string{}
	for rest := strings.Trim(string(b), ", \t"); rest != ""; rest = strings.TrimLeft(rest, ", \t") {
		m := pattern.FindStringSubmatch(rest)
		if m == nil {
			return nil, errors.New("the server's challenge can't be read")
		}
		value := regexp.MustCompile(`(?s)\\(.)`).ReplaceAllString(m[2],
			"$1") + strings.TrimSpace(m[3])
		if name := strings.ToLower(strings.TrimSpace(m[1])); found[name] == "" {
			found[name] = value
		}
		rest = rest[len(m[0]):]
	}
	return found, nil
}
