package session

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
)

// DigestMD5 is the SASL mechanism DIGEST-MD5, with a user of the server's JAAS configuration (DigestLoginModule,
// user_NAME="password"). The password does not cross the wire, and the server proves that it knows it too; what follows
// is neither encrypted nor signed, so use TLS where others can reach the network. Access lists name the user as
// {"sasl", user}. Source: RFC 2831, with the service and host that ZooKeeper's clients use, zookeeper/zk-sasl-md5.
func DigestMD5(user, password string) SASL { return &digestMD5{user, password} }

type digestMD5 struct{ user, password string }

func (m *digestMD5) Name() string             { return "DIGEST-MD5" }
func (m *digestMD5) Begin(string) Negotiation { return &digestRun{digestMD5: m} }

// digestRun is one negotiation: nothing, the answer to the server's challenge, and the check of the server's own proof.
type digestRun struct {
	*digestMD5
	begun bool
	proof string // that the server has to show
}

const digestURI = "zookeeper/zk-sasl-md5"

func (r *digestRun) Step(_ context.Context, challenge []byte) (token []byte, done bool, err error) {
	switch {
	case !r.begun:
		r.begun = true
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

// answer answers the server's challenge, in which realm and nonce are what matters.
func (r *digestRun) answer(challenge []byte) ([]byte, error) {
	said, err := directives(challenge)
	switch {
	case err != nil:
		return nil, err
	case said["nonce"] == "":
		return nil, errors.New("the server's challenge has no nonce")
	case said["algorithm"] != "md5-sess":
		return nil, errors.New("the server's challenge is not of the algorithm md5-sess")
	case said["qop"] != "" && !strings.Contains(","+strings.ReplaceAll(said["qop"], " ", "")+",", ",auth,"):
		return nil, fmt.Errorf("the server wants protection %q: only auth is spoken here", said["qop"])
	}
	realm, nonce, cnonce := said["realm"], said["nonce"], rand.Text()
	utf8 := said["charset"] == "utf-8"
	secret := md5.Sum([]byte(latin(r.user, utf8) + ":" + latin(realm, utf8) + ":" + latin(r.password, utf8)))
	session := hexSum(string(secret[:]) + ":" + nonce + ":" + cnonce)
	proof := func(a2 string) string {
		return hexSum(session + ":" + nonce + ":00000001:" + cnonce + ":auth:" + hexSum(a2))
	}
	r.proof = proof(":" + digestURI)
	var b strings.Builder
	if utf8 {
		b.WriteString("charset=utf-8,")
	}
	fmt.Fprintf(&b, `username=%s,realm=%s,nonce=%s,nc=00000001,cnonce="%s",digest-uri="%s",maxbuf=65536,response=%s,qop=auth`,
		quoted(r.user), quoted(realm), quoted(nonce), cnonce, digestURI, proof("AUTHENTICATE:"+digestURI))
	return []byte(b.String()), nil
}

func hexSum(s string) string { return fmt.Sprintf("%x", md5.Sum([]byte(s))) }

// latin is how a name or a password is hashed: in ISO 8859-1 if all its characters are of that, else as UTF-8, if the
// server takes that.
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

var errDirectives = errors.New("the server's challenge can't be read")

// directives reads name=value or name="value", separated by commas. Of a name that comes more than once the first counts.
func directives(b []byte) (map[string]string, error) {
	found := map[string]string{}
	for rest := strings.Trim(string(b), ", \t"); rest != ""; rest = strings.TrimLeft(rest, ", \t") {
		name, after, ok := strings.Cut(rest, "=")
		if !ok {
			return nil, errDirectives
		}
		value, left, err := directive(after)
		if err != nil {
			return nil, err
		}
		if name = strings.ToLower(strings.TrimSpace(name)); found[name] == "" {
			found[name] = value
		}
		rest = left
	}
	return found, nil
}

// directive reads one value and returns what follows it.
func directive(s string) (value, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexByte(s+",", ',')
		return strings.TrimSpace(s[:end]), s[end:], nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], nil
		case '\\':
			if i++; i == len(s) {
				return "", "", errDirectives
			}
			fallthrough
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", errDirectives
}
