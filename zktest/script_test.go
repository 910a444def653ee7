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

// script runs lines against one server.
type script struct {
	dial     func() (net.Conn, error)
	root     string // what $ stands for
	base     int64  // zxid of the root's creation
	sessions map[string]*raw
	order    []string
	trace    []string
	// sort the notifications between two answers: a multi that deletes many nodes fires in any
	// order
	sorted  bool
	pending []string
}

func (s *script) say(format string, args ...any) {
	s.flush()
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

func (s *script) flush() {
	if s.sorted {
		slices.Sort(s.pending)
	}
	s.trace = append(s.trace, s.pending...)
	s.pending = nil
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
	r := &raw{name: name, nc: nc}
	s.sessions[name] = r
	s.order = append(s.order, name)
	_, _, err = r.shake(30000, 0)
	return r, err
}

// step runs one line. An error is one of the harness, not of the server.
func (s *script) step(line string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if p != errTorn {
				panic(p)
			}
			s.say("%s: torn", line)
		}
	}()
	f := strings.Fields(line)
	name, op := f[0], f[1]
	if op == "connect" || op == "reattach" {
		return s.connect(name, op, s.parse(f[2:]))
	}
	r, err := s.session(name)
	if err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	if r.dead {
		s.say("%s: dead", line)
		return nil
	}
	r.xid++
	switch op {
	case "drop":
		r.dead = true
		return r.nc.Close()
	case "eof":
		s.await(r, op, 0)
		return nil
	case "length": // length n: only a length field
		n, err := strconv.ParseInt(f[2], 0, 64)
		if err != nil {
			return err
		}
		if _, err := r.nc.Write(binary.BigEndian.AppendUint32(nil, uint32(n))); err != nil {
			return err
		}
		s.await(r, op, 0)
		return nil
	}
	o, err := s.request(r, f[1:])
	if err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	if err := r.send(o.b); err != nil {
		s.say("%s: cannot send", name)
		r.dead = true
		return nil
	}
	if op == "quiet" { // quiet op …: do not wait for an answer
		return nil
	}
	s.await(r, op, r.xid)
	if op == "close" && !r.dead {
		s.ended(r)
	}
	return nil
}

// givenUp waits for the server to hang up after it has refused an unknown request. What a real one
// does with requests that arrive before it has closed the connection depends on timing: it is not
// compared.
func (s *script) givenUp(r *raw, op string) {
	for {
		if _, err := r.recv(); err != nil {
			s.say("%s %s: closed", r.name, op)
			r.dead = true
			_ = r.nc.Close()
			return
		}
	}
}

// ended waits for the server to hang up after the answer to a close: a real one removes the
// connection's watches only then, and another session's next step may be faster.
func (s *script) ended(r *raw) {
	for {
		if _, err := r.recv(); err != nil {
			return
		}
		s.say("%s: something after its close", r.name)
	}
}

// request builds the frame of a line, from the operation on.
func (s *script) request(r *raw, f []string) (*out, error) {
	o := &out{}
	op := f[0]
	var arg string // the last word, in hex, of those that take one
	switch op {
	case "quiet":
		return s.request(r, f[1:])
	case "raw": // raw opcode hex
		code, err := strconv.Atoi(f[1])
		if err != nil {
			return nil, err
		}
		o.i32(r.xid).i32(int32(code))
		if len(f) > 2 {
			arg = f[2]
		}
	case "frame": // frame hex: without even a header
		if len(f) > 1 {
			arg = f[1]
		}
	default:
		code, ok := opcodes[op]
		if !ok {
			return nil, errors.New("no such operation")
		}
		o.i32(r.xid).i32(code)
		s.body(o, op, f[1:])
	}
	b, err := hex.DecodeString(arg)
	o.b = append(o.b, b...)
	return o, err
}

// await reads up to the answer, writing down the notifications before it.
func (s *script) await(r *raw, op string, xid int32) {
	for {
		b, err := r.recv()
		if err != nil {
			what := "closed"
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				what = "silent"
			}
			s.say("%s %s: %s", r.name, op, what)
			r.dead = true
			_ = r.nc.Close()
			return
		}
		i := &in{b}
		got, z, code := i.i32(), i.i64(), i.i32()
		if z > r.seen {
			r.seen = z
		}
		if got == -1 {
			typ, state := i.i32(), i.i32()
			s.pending = append(s.pending,
				fmt.Sprintf("%s ! %d %d %s zxid=%s code=%d", r.name, typ, state,
					s.path(i.str()), s.zxid(z), code))
			continue
		}
		same := "xid"
		if got != xid {
			same = fmt.Sprintf("xid=%d", got)
		}
		s.say("%s %s: %s %s code=%d %s rest=%s", r.name, op, same, s.zxid(z), code,
			resultIf(s, code, op, i),
			hex.EncodeToString(i.b))
		if z == -1 && code == int32(fault.CodeUnimplemented) {
			s.givenUp(r, op)
		}
		return
	}
}

func (s *script) connect(name, op string, a args) error {
	nc, err := s.dial()
	if err != nil {
		return err
	}
	old := s.sessions[name]
	r := &raw{name: name, nc: nc}
	if op == "reattach" {
		r.id, r.password, r.seen = old.id, slices.Clone(old.password), old.seen
		if a.kv["pw"] == "bad" {
			r.password[0] ^= 1
		}
		if from := a.kv["as"]; from != "" {
			r.id, r.password = s.sessions[from].id, s.sessions[from].password
		}
	}
	if old == nil {
		s.order = append(s.order, name)
	}
	s.sessions[name] = r
	id := r.id
	seen := a.num("seen", 0)
	if seen != 0 {
		seen += s.base
	}
	got, tail, err := r.shake(int32(a.num("t", 30000)), seen)
	if err != nil {
		r.dead = true
		s.say("%s %s: closed", name, op)
		return nil
	}
	s.say("%s %s: timeout=%d same=%v tail=%x", name, op, got, id == r.id, tail)
	if got == 0 {
		r.dead = true
		_ = nc.Close()
	}
	return nil
}

// end reads what is still on its way to each session and closes it.
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
	s.flush()
	return nil
}
