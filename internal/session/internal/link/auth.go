package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Auth is one set of credentials, such as {"digest", []byte("user:password")}. The scheme digest
// needs a user and a colon.
type Auth struct {
	Scheme     string
	Credential []byte
}

var errNoSASL = errors.New("the server has no SASL: " +
	"its JAAS configuration has no section Server, or it is no ZooKeeper that speaks it")

// authenticate sends the credentials and waits for the verdict before any other request is sent:
// the server answers credentials out of turn, and refuses requests that came before them.
func (c *Conn) authenticate() error {
	for _, a := range c.common.Auth {
		r := pipeline.NewRequest(wire.OpAuth, "authenticate", a.Scheme)
		r.Frame = wire.AppendInt(r.Frame, 0) // a type, which servers ignore
		r.Frame = wire.AppendString(r.Frame, a.Scheme)
		r.Frame = wire.AppendBytes(r.Frame, a.Credential)
		if err := c.present(r, "scheme "+a.Scheme); err != nil {
			return err
		}
	}
	return c.negotiate()
}

// negotiate runs the SASL mechanism, if there is one. Source: ZooKeeperServer.processSasl,
// ZooKeeperSaslClient.
func (c *Conn) negotiate() error {
	mechanism := c.common.SASL
	if mechanism == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.common.Life, c.limit)
	defer cancel()
	negotiation := mechanism.Begin(c.Server)
	var challenge []byte
	for {
		token, isDone, err := negotiation.Step(ctx, challenge)
		if err != nil {
			return fmt.Errorf("SASL %s: %w", mechanism.Name(), failure.Plain(err))
		}
		if isDone && token == nil {
			return nil
		}
		challenge, err = c.presentToken(mechanism.Name(), token)
		if err != nil || isDone {
			return err
		}
		if challenge == nil {
			return errNoSASL
		}
	}
}

// presentToken sends a mechanism's token, and returns the server's next challenge, which is nil if
// the server has no SASL.
func (c *Conn) presentToken(mechanism string, token []byte) (challenge []byte, err error) {
	if token == nil {
		token = []byte{} // servers accept no null token
	}
	r := pipeline.NewRequest(wire.OpSASL, "authenticate", mechanism)
	r.Frame = wire.AppendBytes(r.Frame, token)
	if err := c.present(r, "SASL "+mechanism); err != nil {
		return nil, err
	}
	d := wire.Decoder{B: r.Body}
	challenge = d.Bytes()
	if d.Err != nil {
		return nil, fmt.Errorf("%w: reply to SASL: %w", failure.ErrGarbled, d.Err)
	}
	return challenge, nil
}

// present sends credentials and waits for the verdict. A refusal ends the session: every server
// would refuse the same credentials, and a SASL token of the same login.
func (c *Conn) present(r *pipeline.Request, what string) error {
	if err := c.writeAlone(r); err != nil {
		return err
	}
	select {
	case <-r.Done():
	case <-time.After(c.limit):
		return fmt.Errorf("no answer to the %s credentials within %v", what, c.limit)
	}
	if err := r.Err(); err != nil {
		return err
	}
	if r.Header.Code != wire.CodeOK {
		err := fmt.Errorf("%w: %s at %s", failure.ErrAuth, what, c.Server)
		c.owner.CredentialsRefused(err)
		return err
	}
	return nil
}

// writeAlone writes r, and nothing that is queued.
func (c *Conn) writeAlone(r *pipeline.Request) error {
	c.mu.Lock()
	if c.state == connFailed {
		c.mu.Unlock()
		return c.Failure()
	}
	r.FailConn = c.failConn
	piece := c.pipe.NextAlone(r, c.common.Clock.Stamp())
	c.mu.Unlock()
	return c.write(piece)
}
