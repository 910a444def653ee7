package zktest_test

import (
	"testing"
	"time"

	"github.com/zklock/locker/zktest"
)

// FuzzDecoder feeds any bytes to the decoder of requests. It must neither panic nor find more in a
// frame than there is: a path takes four bytes at least.
func FuzzDecoder(f *testing.F) {
	f.Fuzz(func(t *testing.T, frame []byte) {
		if n, err := zktest.Decode(frame); err == nil && n > 1+len(frame)/4 {
			t.Errorf("%d paths in %d bytes", n, len(frame))
		}
	})
}

// FuzzServer sends any bytes to a server, once after a handshake and once instead of one.
// Afterwards the server must still serve other clients.
func FuzzServer(f *testing.F) {
	s := zktest.Run(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, shake := range []bool{true, false} {
			nc, err := s.Dial("", "", 0)
			if err != nil {
				t.Fatal(err)
			}
			r := &raw{nc: nc}
			if shake {
				if _, _, err := r.shake(4000, 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.send(frame); err != nil {
				t.Fatal(err)
			}
			if err := nc.Close(); err != nil {
				t.Fatal(err)
			}
		}
		nc, err := s.Dial("", "", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		r := &raw{nc: nc}
		if _, _, err := r.shake(4000, 0); err != nil {
			t.Fatal(err)
		}
		if err := r.send([]byte{0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.recv(); err != nil {
			t.Fatal(err)
		}
		_ = nc.Close()
	})
}
