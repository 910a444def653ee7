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

// readAhead reads a request's body into memory, since net/http notices that an HTTP/1 client goes away only when the
// body has been read, and returns the body for the handler. Over HTTP/2 it reads nothing. It does not read a body of
// unknown length, whose client may wait for an answer before it sends the rest, nor one that waits for "100 Continue".
// Its error is that of a connection that has ended; any other, such as that of http.MaxBytesReader, the handler gets
// when it reads the body.
func readAhead(w http.ResponseWriter, r *http.Request) (io.ReadCloser, error) {
	if r.ProtoMajor != 1 || r.ContentLength <= 0 || r.ContentLength > aheadBytes || r.Body == nil || r.Header.Get("Expect") != "" {
		return r.Body, nil
	}
	// ReadAll ends with the body's end, which is what starts the look-out. The function that chose the lock may have put another body there.
	begin, err := io.ReadAll(io.LimitReader(r.Body, aheadBytes+1))
	var broken net.Error
	switch {
	case err == nil:
		return &readBody{Reader: io.MultiReader(bytes.NewReader(begin), r.Body), Closer: r.Body, w: w, left: len(begin)}, nil
	case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &broken):
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), failing{err}), r.Body}, nil
}

// readBody is a body that has been read. Whoever reads it to its end takes the connection's read deadline away, as
// net/http does at the end of a body: from there on it only looks out for the end of the connection, which a deadline
// would look like.
type readBody struct {
	io.Reader
	io.Closer
	w     http.ResponseWriter
	left  int // bytes
	ended sync.Once
}

func (b *readBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= n; b.left <= 0 || err != nil {
		// A writer that knows no deadlines has none to take away.
		b.ended.Do(func() { _ = http.NewResponseController(b.w).SetReadDeadline(time.Time{}) })
	}
	return n, err
}

// leave is called when the handler has returned: the connection is the server's again.
func (b *readBody) leave() { b.ended.Do(func() {}) }

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
