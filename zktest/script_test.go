package zktest_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/zklock/locker/zktest/fault"
)

// A wire client of the tests' own. It runs scripts, one request per line, and records every answer
// in a form in which two servers can be compared: zxids as distances from the script's beginning,
// session ids as names, times as "t", paths relative to the script's own directory.
//
//	a create $/x d=hello m=es acl=open    session a creates; sessions connect when first named
//	b exists $/x w                        with a watch
//	a multi create $/y ; delete $/x v=0   parts are separated by semicolons
//	a quiet create $/z                    sent, and the answer not waited for
//	a raw 50 0a0b                         a request of any type, with its body in hex
//	a frame 0a0b                          a frame that need not be a request
//	a length 1001                         only the length of a frame
//	a eof                                 waits for the server to hang up
//	a drop                                hangs up
//	a connect t=4000                      a new session of that name
//	a reattach                            resumes the session on a new connection

// script runs lines against one server.
type script struct {
	dial     func() (net.Conn, error)
	root     string // what $ stands for
	base     int64  // zxid of the root's creation
	sessions map[string]*raw
	order    []string // the names of the sessions, as first used
	trace    []string // what has been recorded
	events   []string // those that are not in the trace yet
	sorted   bool     // sort the events between two answers: some have no order
	left     []string // the sessions after whose close the server did not hang up
}

// newScript returns a script in the root directory.
func newScript(dial func() (net.Conn, error)) *script {
	return &script{dial: dial, sessions: map[string]*raw{}}
}

// record adds a line to the trace, behind the events that have come before it.
func (s *script) record(format string, args ...any) {
	s.recordEvents()
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

// recordEvents adds the events that have come to the trace. A multi that deletes many nodes fires
// theirs in any order, so they may be sorted.
func (s *script) recordEvents() {
	if s.sorted {
		slices.Sort(s.events)
	}
	s.trace = append(s.trace, s.events...)
	s.events = nil
}

// recordEnd records why a session's connection is over, and closes this end of it.
func (s *script) recordEnd(r *raw, op, why string) {
	s.record("%s %s: %s", r.name, op, why)
	r.dead = true
	_ = r.nc.Close()
}

// session returns a named session, connecting it when it is first named.
func (s *script) session(name string) (*raw, error) {
	if r := s.sessions[name]; r != nil {
		return r, nil
	}
	nc, err := s.dial()
	if err != nil {
		return nil, err
	}
	r := s.name(name, nc)
	_, _, err = r.shake(30000, 0)
	return r, err
}

// name gives a connection to the session of a name, whether or not there has been one.
func (s *script) name(name string, nc net.Conn) *raw {
	if s.sessions[name] == nil {
		s.order = append(s.order, name)
	}
	r := &raw{name: name, nc: nc}
	s.sessions[name] = r
	return r
}

// step runs one line. An error is one of the harness, not of the server.
func (s *script) step(line string) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case errTorn:
			s.record("%s: torn", line)
		default:
			panic(p)
		}
	}()
	f := strings.Fields(line)
	name, op, words := f[0], f[1], f[2:]
	switch op {
	case "connect":
		err = s.connect(name, s.parse(words))
	case "reattach":
		err = s.reattach(name, s.parse(words))
	default:
		err = s.use(name, op, words)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	return nil
}

// use runs a line that uses the connection of a session.
func (s *script) use(name, op string, words []string) error {
	r, err := s.session(name)
	if err != nil {
		return err
	}
	if r.dead {
		s.record("%s: dead", strings.Join(append([]string{name, op}, words...), " "))
		return nil
	}
	r.xid++
	switch op {
	case "drop":
		r.dead = true
		return r.nc.Close()
	case "eof":
		s.awaitAnswer(r, op, 0)
		return nil
	case "length":
		return s.sendLength(r, words[0])
	case "quiet":
		_, err := s.sendRequest(r, words[0], words[1:])
		return err
	}
	sent, err := s.sendRequest(r, op, words)
	if err != nil || !sent {
		return err
	}
	s.awaitAnswer(r, op, r.xid)
	if op == "close" && !r.dead {
		s.awaitHangUp(r)
	}
	return nil
}

// sendRequest sends one request. sent is false if the connection is over, which is recorded.
func (s *script) sendRequest(r *raw, op string, words []string) (sent bool, err error) {
	o, err := s.request(r, op, words)
	if err != nil {
		return false, err
	}
	if r.send(o.b) != nil {
		s.record("%s: cannot send", r.name)
		r.dead = true
		return false, nil
	}
	return true, nil
}

// sendLength sends the length of a frame without the frame.
func (s *script) sendLength(r *raw, length string) error {
	n, err := strconv.ParseInt(length, 0, 64)
	if err != nil {
		return err
	}
	if _, err := r.nc.Write(binary.BigEndian.AppendUint32(nil, uint32(n))); err != nil {
		return err
	}
	s.awaitAnswer(r, "length", 0)
	return nil
}

// discardRest waits for the server to hang up after it has refused an unknown request. What a real
// one does with requests that arrive before it has closed the connection depends on timing, so it
// is not compared.
func (s *script) discardRest(r *raw, op string) {
	for {
		if _, err := r.recv(); err != nil {
			s.recordEnd(r, op, endOf(err))
			return
		}
	}
}

// awaitHangUp waits for the server to hang up after the answer to a close. A real one removes the
// connection's watches only then, and another session's next step may be faster.
func (s *script) awaitHangUp(r *raw) {
	for {
		if _, err := r.recv(); err != nil {
			if endOf(err) == "silent" {
				s.left = append(s.left, r.name)
			}
			return
		}
		s.record("%s: something after its close", r.name)
	}
}

// request builds the frame of a request.
func (s *script) request(r *raw, op string, words []string) (*out, error) {
	o := &out{}
	switch op {
	case "raw":
		code, err := strconv.Atoi(words[0])
		if err != nil {
			return nil, err
		}
		return o, o.i32(r.xid).i32(int32(code)).hex(words[1:])
	case "frame":
		return o, o.hex(words)
	}
	code, ok := opcodes[op]
	if !ok {
		return nil, errors.New("no such operation")
	}
	o.i32(r.xid).i32(code)
	s.body(o, op, words)
	return o, nil
}

// awaitAnswer reads up to the answer to a request and records it, and the events before it. If
// there is none, it records how the connection ended.
func (s *script) awaitAnswer(r *raw, op string, xid int32) {
	for {
		b, err := r.recv()
		if err != nil {
			s.recordEnd(r, op, endOf(err))
			return
		}
		i := &in{b}
		got, z, code := i.i32(), i.i64(), i.i32()
		r.seen = max(r.seen, z)
		if got == eventXid {
			s.events = append(s.events, s.event(r, i, z, code))
			continue
		}
		s.record("%s %s: %s %s code=%d %s rest=%s", r.name, op, showXid(got, xid), s.zxid(z), code,
			s.result(op, code, i), hex.EncodeToString(i.b))
		if z == -1 && code == int32(fault.CodeUnimplemented) {
			s.discardRest(r, op)
		}
		return
	}
}

// eventXid is the xid of every event.
const eventXid = -1

// endOf says how a connection ended from which nothing can be read.
func endOf(err error) string {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return "silent"
	}
	return "closed"
}

// connect begins a new session on a new connection.
func (s *script) connect(name string, a args) error {
	nc, err := s.dial()
	if err != nil {
		return err
	}
	return s.shake(s.name(name, nc), "connect", a)
}

// reattach resumes a session on a new connection: that of the same name, or that of as=. The
// password may be wrong.
func (s *script) reattach(name string, a args) error {
	nc, err := s.dial()
	if err != nil {
		return err
	}
	old := s.sessions[name]
	r := s.name(name, nc)
	r.id, r.password, r.seen = old.id, slices.Clone(old.password), old.seen
	if a.kv["pw"] == "bad" {
		r.password[0] ^= 1
	}
	if from := a.kv["as"]; from != "" {
		r.id, r.password = s.sessions[from].id, s.sessions[from].password
	}
	return s.shake(r, "reattach", a)
}

// shake does the handshake of a new connection and records the server's answer.
func (s *script) shake(r *raw, op string, a args) error {
	id := r.id
	seen := a.num("seen", 0)
	if seen != 0 {
		seen += s.base
	}
	timeout, tail, err := r.shake(int32(a.num("t", 30000)), seen)
	if err != nil {
		r.dead = true
		s.record("%s %s: closed", r.name, op)
		return nil
	}
	s.record("%s %s: timeout=%d same=%v tail=%x", r.name, op, timeout, id == r.id, tail)
	if timeout == 0 {
		r.dead = true
		return r.nc.Close()
	}
	return nil
}

// end reads what is still on its way to each session, and closes it.
func (s *script) end() error {
	for _, n := range s.order {
		if err := s.step(n + " ping"); err != nil {
			return err
		}
	}
	for _, n := range s.order {
		if !s.sessions[n].dead {
			if err := s.step(n + " close"); err != nil {
				return err
			}
		}
		_ = s.sessions[n].nc.Close()
	}
	s.recordEvents()
	return nil
}
