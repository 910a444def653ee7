package session

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// SASL is a mechanism by which a client proves to a server who it is: DigestMD5, or one of a program's own. Each
// connection negotiates again, so its methods are called repeatedly, and concurrently by several sessions of a client.
type SASL interface {
	// Name is the mechanism's, as in "DIGEST-MD5", for errors.
	Name() string
	// Begin begins a negotiation with the server at address host:port.
	Begin(server string) Negotiation
}

// Negotiation is one run of a SASL mechanism, on one connection.
type Negotiation interface {
	// Step takes what the server has said, nil at first, and returns what to say to it. done: the mechanism has nothing
	// more to learn from the server; a token that is not nil is still sent. An error gives up the connection, and another
	// server is tried; refused credentials are reported by the server, not by Step. ctx bounds the time for it.
	Step(ctx context.Context, challenge []byte) (token []byte, done bool, err error)
}

var errNoSASL = errors.New("the server has no SASL: its JAAS configuration has no section Server, or it is no ZooKeeper that speaks it")

// authenticate sends the credentials and waits for the verdict, before any other request may go: the server answers them
// out of turn, and refuses what came before them.
func (c *conn) authenticate() error {
	for _, a := range c.s.cfg.Auth {
		r := newRequest(opAuth, "authenticate", a.Scheme, func(b []byte) []byte {
			return appendBytes(appendString(appendInt(b, 0), a.Scheme), a.Credential)
		})
		if err := c.present(r, "scheme "+a.Scheme); err != nil {
			return err
		}
	}
	return c.negotiate()
}

// negotiate runs the SASL mechanism of the configuration on c. Source: ZooKeeperServer.processSasl, ZooKeeperSaslClient.
func (c *conn) negotiate() error {
	mechanism := c.s.cfg.SASL
	if mechanism == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.s.ctx, c.limit)
	defer cancel()
	run := mechanism.Begin(c.server)
	var challenge []byte
	for {
		token, done, err := run.Step(ctx, challenge)
		if err != nil {
			return fmt.Errorf("SASL %s: %w", mechanism.Name(), plain(err))
		}
		if done && token == nil {
			return nil
		}
		if token == nil {
			token = []byte{} // a server takes no null
		}
		r := newRequest(opSASL, "authenticate", mechanism.Name(), func(b []byte) []byte { return appendBytes(b, token) })
		if err := c.present(r, "SASL "+mechanism.Name()); err != nil {
			return err
		}
		d := decoder{b: r.reply}
		if challenge = d.bytes(); d.err != nil {
			return fmt.Errorf("%w: reply to SASL: %w", ErrGarbled, d.err)
		}
		if done {
			return nil
		}
		if challenge == nil {
			return errNoSASL
		}
	}
}

// present sends credentials and waits for the verdict. A refusal ends the session: every server would refuse them.
func (c *conn) present(r *request, what string) error {
	if _, err := c.flush(r); err != nil {
		return err
	}
	select {
	case <-r.done:
	case <-time.After(c.limit):
		return fmt.Errorf("no answer to the %s credentials within %v", what, c.limit)
	}
	if r.err != nil {
		return r.err
	}
	if r.head.code != codeOK {
		err := fmt.Errorf("%w: %s at %s", ErrAuth, what, c.server)
		c.s.end(err)
		return err
	}
	return nil
}
