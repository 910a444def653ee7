package zktest_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/zklock/locker/zktest"
)

// BenchmarkStart is from nothing to the first answer, over TCP, and back to nothing.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		s, err := zktest.Start()
		if err != nil {
			b.Fatal(err)
		}
		nc, err := net.Dial("tcp", s.Addr())
		if err != nil {
			b.Fatal(err)
		}
		r := &raw{nc: nc}
		if _, _, err := r.shake(40000, 0); err != nil {
			b.Fatal(err)
		}
		if err := r.nc.Close(); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func connected(b *testing.B, s *zktest.Server) *raw {
	b.Helper()
	nc, err := s.Dial("tcp", s.Addr(), 0)
	if err != nil {
		b.Fatal(err)
	}
	r := &raw{nc: nc}
	if _, _, err := r.shake(40000, 0); err != nil {
		b.Fatal(err)
	}
	return r
}

func roundTrip(b *testing.B, r *raw, op int32, body *out) {
	b.Helper()
	r.xid++
	o := (&out{}).i32(r.xid).i32(op)
	o.b = append(o.b, body.b...)
	if err := r.send(o.b); err != nil {
		b.Fatal(err)
	}
	if _, err := r.recv(); err != nil {
		b.Fatal(err)
	}
}

func createBody(path string) *out {
	return (&out{}).str(path).i32(0).i32(1).i32(31).str("world").str("anyone").i32(0)
}

// BenchmarkCreateAmong10000Nodes is one create and one delete next to 10,000 siblings.
func BenchmarkCreateAmong10000Nodes(b *testing.B) {
	s := zktest.Run(b)
	for i := range 10000 {
		if err := s.Create(fmt.Sprintf("/n%d", i), nil); err != nil {
			b.Fatal(err)
		}
	}
	r := connected(b, s)
	b.ResetTimer()
	for b.Loop() {
		roundTrip(b, r, 1, createBody("/x"))
		roundTrip(b, r, 2, (&out{}).str("/x").i32(-1))
	}
}

// BenchmarkPingAmong1000Sessions is one ping of one of 1,000 sessions, each with a watch and an ephemeral.
func BenchmarkPingAmong1000Sessions(b *testing.B) {
	s := zktest.Run(b)
	rs := make([]*raw, 1000)
	for i := range rs {
		rs[i] = connected(b, s)
		body := createBody(fmt.Sprintf("/e%d", i))
		body.b[len(body.b)-1] = 1
		roundTrip(b, rs[i], 1, body)
		roundTrip(b, rs[i], 3, (&out{}).str(fmt.Sprintf("/w%d", i)).flag(true))
	}
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		roundTrip(b, rs[i%len(rs)], 11, &out{})
	}
}

// BenchmarkNotify1000Sessions is one change that 1,000 sessions watch, until each has heard of it.
func BenchmarkNotify1000Sessions(b *testing.B) {
	s := zktest.Run(b)
	rs := make([]*raw, 1000)
	for i := range rs {
		rs[i] = connected(b, s)
		roundTrip(b, rs[i], 106, (&out{}).str("/x").i32(0))
	}
	if err := s.Create("/x", nil); err != nil {
		b.Fatal(err)
	}
	for _, r := range rs {
		if _, err := r.recv(); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for b.Loop() {
		if err := s.SetData("/x", nil); err != nil {
			b.Fatal(err)
		}
		for _, r := range rs {
			if _, err := r.recv(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
