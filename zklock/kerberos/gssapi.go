package kerberos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/zklock/locker/internal/session"
)

// Option changes how GSSAPI authenticates.
type Option func(*Mechanism)

// WithPrincipal sets which principal the server at an address, host:port as in the connect string,
// has. of may be called concurrently. Default: zookeeper/HOST, of the realm that the Kerberos
// configuration says HOST is of.
func WithPrincipal(of func(server string) string) Option {
	return func(m *Mechanism) { m.principal = of }
}

// Mechanism is the SASL mechanism GSSAPI of one user; see GSSAPI. Its methods may be called
// concurrently.
type Mechanism struct {
	newLogin  func() (*client.Client, error)
	principal func(server string) string

	mu       sync.Mutex // guards closed, login and all logins' counts, and requests against closed
	closed   bool
	login    *sharedLogin // nil before the first
	requests sync.WaitGroup
}

var _ session.SASL = (*Mechanism)(nil)

// GSSAPI returns the SASL mechanism GSSAPI for login, a client that has logged in or that can: with
// a keytab or a password it logs in when it has to, and again when its ticket ends; one from a
// credentials cache has what is in that cache. The mechanism may be used by any number of clients.
// login is the mechanism's from now on: Close ends it.
//
// A negotiation asks the key distribution center for a ticket, unless login has one for the server.
// It waits for that no longer than its context allows; the request itself goes on until gokrb5's
// own limit, five seconds for each center and protocol.
//
// In FIPS 140-only mode (GODEBUG=fips140=only) a negotiation fails unless all keys have an
// encryption type of SHA-2: aes256-cts-hmac-sha384-192 or aes128-cts-hmac-sha256-128.
func GSSAPI(login *client.Client, opts ...Option) *Mechanism {
	m := GSSAPIFunc(func() (*client.Client, error) { return login, nil }, opts...)
	m.login = &sharedLogin{login, 1}
	return m
}

// GSSAPIFunc is GSSAPI with the login that newLogin returns. newLogin is called when there is none
// yet, and when there is no ticket to be had with the last one: after a keytab was changed, or when
// the tickets of a credentials cache have ended. So it reads the file again:
//
//	kerberos.GSSAPIFunc(func() (*client.Client, error) {
//		kt, err := keytab.Load("/etc/app.keytab")
//		if err != nil {
//			return nil, err
//		}
//		return client.NewWithKeytab("app", "EXAMPLE.ORG", kt, conf), nil
//	})
//
// newLogin may be called by several goroutines at once. If it returns an error, the connection is
// given up, and another server is tried. It may return the login that it returned last. Each other
// login is the mechanism's: it ends when the next one has replaced it and no request uses it any
// more, the last one with Close.
func GSSAPIFunc(newLogin func() (*client.Client, error), opts ...Option) *Mechanism {
	m := &Mechanism{newLogin: newLogin, principal: defaultPrincipal}
	for _, o := range opts {
		o(m)
	}
	return m
}

// defaultPrincipal is what ZooKeeper's servers are called by default.
func defaultPrincipal(server string) string {
	host, _, err := net.SplitHostPort(server)
	if err != nil {
		host = server
	}
	return "zookeeper/" + host
}

// Name returns "GSSAPI".
func (m *Mechanism) Name() string { return "GSSAPI" }

// Close ends the login, after the requests that are under way: see GSSAPI for how long one may
// take. Close the clients that use the mechanism first: what negotiates later fails with ErrClosed.
// Closing twice is harmless.
func (m *Mechanism) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.requests.Wait()
	m.mu.Lock()
	last := m.login
	m.login = nil
	m.mu.Unlock()
	if last != nil {
		m.release(last)
	}
}

// ErrClosed is the error of a negotiation after Close.
var ErrClosed = errors.New("kerberos: the mechanism is closed")

// Begin begins a negotiation with the server at address host:port. It does no I/O: the first Step
// does.
func (m *Mechanism) Begin(server string) session.Negotiation {
	return &negotiation{ticket: func(ctx context.Context) (credential, error) {
		return m.ticket(ctx, m.principal(server))
	}}
}

// credential is what a client shows to one server: a ticket, and the key that only it and that
// server know.
type credential struct {
	ticket messages.Ticket
	key    types.EncryptionKey
	realm  string // of the client
	name   types.PrincipalName
}

// begin counts one more request, unless the mechanism is closed.
func (m *Mechanism) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.requests.Add(1)
	}
	return !m.closed
}

// ticket asks for a ticket for the principal. Its goroutine ends with the answer, or at gokrb5's
// limit; Close joins it.
func (m *Mechanism) ticket(ctx context.Context, principal string) (credential, error) {
	type answer struct {
		credential
		err error
	}
	if !m.begin() {
		return credential{}, ErrClosed
	}
	answered := make(chan answer, 1)
	go func() {
		defer m.requests.Done()
		var a answer
		a.credential, a.err = m.ask(principal)
		answered <- a
	}()
	select {
	case a := <-answered:
		if a.err != nil {
			return credential{}, fmt.Errorf("no ticket for %s: %w", principal, a.err)
		}
		return a.credential, nil
	case <-ctx.Done():
		return credential{},
			fmt.Errorf("no ticket for %s: no answer yet: %w", principal, context.Cause(ctx))
	}
}

// ask asks for a ticket with the last login. If there is none to be had with it, ask asks with a
// new one.
func (m *Mechanism) ask(principal string) (credential, error) {
	last, err := m.lastLogin()
	if err != nil {
		return credential{}, err
	}
	defer m.release(last)
	c, err := last.ask(principal)
	if err == nil {
		return c, nil
	}
	next, noLogin := m.nextLogin()
	if noLogin != nil {
		return credential{}, errors.Join(err, noLogin)
	}
	defer m.release(next)
	if next == last {
		return credential{}, err
	}
	return next.ask(principal)
}

// sharedLogin is a login that newLogin has returned.
type sharedLogin struct {
	*client.Client
	users int // the requests that use it, and the mechanism until it has a later one
}

func (l *sharedLogin) ask(principal string) (c credential, err error) {
	c.realm, c.name = l.Credentials.Domain(), l.Credentials.CName()
	err = decoding(func() (err error) {
		c.ticket, c.key, err = l.GetServiceTicket(principal)
		return err
	})
	return c, err
}

// lastLogin returns the last login, or the first. The caller releases it.
func (m *Mechanism) lastLogin() (*sharedLogin, error) {
	m.mu.Lock()
	last := m.login
	if last != nil {
		last.users++
	}
	m.mu.Unlock()
	if last == nil {
		return m.nextLogin()
	}
	return last, nil
}

// nextLogin returns what newLogin now returns, which replaces the last one. The caller releases it.
func (m *Mechanism) nextLogin() (*sharedLogin, error) {
	now, err := m.newLogin()
	if err != nil {
		return nil, fmt.Errorf("no login: %w", err)
	}
	m.mu.Lock()
	last := m.login
	if last != nil && last.Client == now {
		last.users++
		m.mu.Unlock()
		return last, nil
	}
	next := &sharedLogin{now, 2} // the mechanism's and the caller's
	m.login = next
	m.mu.Unlock()
	if last != nil {
		m.release(last)
	}
	return next, nil
}

// release ends a login that nobody uses any more.
func (m *Mechanism) release(l *sharedLogin) {
	m.mu.Lock()
	l.users--
	unused := l.users == 0
	m.mu.Unlock()
	if unused {
		l.Destroy()
	}
}

// decoding calls f, which decodes what a stranger may have sent: gokrb5 panics on some messages
// that are too short.
func decoding(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errUndecodable, p)
		}
		if err != nil && strings.Contains(err.Error(), "FIPS 140-only mode") {
			err = fmt.Errorf("%w (%w)", errOldType, err)
		}
	}()
	return f()
}

// errOldType says what can be done in FIPS 140-only mode, where crypto/hmac panics for a hash older
// than SHA-2.
var errOldType = errors.New("FIPS 140-only mode (GODEBUG=fips140=only) forbids a key's type: " +
	"have the key distribution center use aes256-cts-hmac-sha384-192 or aes128-cts-hmac-sha256-128")

var errUndecodable = errors.New("a message that can't be decoded")
