package lockhttp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// aheadBytes is how long a body may be that is read before the wait for the lock.
const aheadBytes = 64 << 10

// readAhead reads a request's body into memory and returns the body for the handler. net/http
// notices that an HTTP/1 client goes away only when the body has been read.
//
// It does not read
//   - a body that comes over HTTP/2;
//   - a body of unknown length, whose client may wait for an answer before it sends the rest;
//   - a body that waits for "100 Continue";
//   - a body that is longer than aheadBytes.
//
// It returns an error if the connection has ended. The handler gets any other error, such as that
// of http.MaxBytesReader, when it reads the body.
func readAhead(w http.ResponseWriter, r *http.Request) (io.ReadCloser, error) {
	if !mayReadAhead(r) {
		return r.Body, nil
	}
	// net/http watches the connection once ReadAll has met the body's end. The function that chose
	// the lock may have put another body in its place, so its length is bounded here too.
	begin, err := io.ReadAll(io.LimitReader(r.Body, aheadBytes+1))
	var broken net.Error
	switch {
	case err == nil:
		return &readBody{
			Reader: io.MultiReader(bytes.NewReader(begin), r.Body),
			Closer: r.Body,
			w:      w,
			left:   len(begin),
		}, nil
	case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &broken):
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), failing{err}), r.Body}, nil
}

func mayReadAhead(r *http.Request) bool {
	if r.ProtoMajor != 1 || r.Body == nil || r.Header.Get("Expect") != "" {
		return false
	}
	return 0 < r.ContentLength && r.ContentLength <= aheadBytes
}

// readBody is a body that has been read ahead. When the handler has read it to its end, readBody
// removes the connection's read deadline, as net/http does at the end of a body: from there on
// net/http reads only to notice the end of the connection, and a deadline would look like that.
type readBody struct {
	io.Reader
	io.Closer
	w     http.ResponseWriter
	left  int // bytes
	ended sync.Once
}

func (b *readBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.left -= n
	if b.left <= 0 || err != nil {
		b.ended.Do(func() {
			// A writer that knows no deadlines has none to remove.
			_ = http.NewResponseController(b.w).SetReadDeadline(time.Time{})
		})
	}
	return n, err
}

// leave is called when the handler has returned. From then on the connection is the server's again,
// and readBody leaves its deadlines alone.
func (b *readBody) leave() { b.ended.Do(func() {}) }

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
