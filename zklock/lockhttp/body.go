package lockhttp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"sync"
	"time"
)

// aheadBytes is how long a body may be that is read before the wait for the lock.
const aheadBytes = 64 << 10

// readAhead reads a request's body into memory and returns the body for the handler. net/http
// notices that an HTTP/1 client goes away only when the body has been read. sent is the body with
// which the request came. The function that chose the lock may have put another one in its place.
//
// It does not read
//   - a body that comes over HTTP/2;
//   - a body of unknown length, whose client may wait for an answer before it sends the rest;
//   - a body that waits for "100 Continue";
//   - a body that is longer than aheadBytes.
//
// It returns an error if the connection has ended, or if its read deadline has passed. The handler
// gets any other error, such as that of http.MaxBytesReader, when it reads the body.
func readAhead(w http.ResponseWriter, r *http.Request, sent io.Reader) (io.ReadCloser, error) {
	if !mayReadAhead(r) {
		return r.Body, nil
	}
	// A body that was put in the place of sent may be longer than the request says: then only the
	// beginning is read. The limit is one byte more than aheadBytes, so that the end of a body of
	// just that length is met, and net/http notices it.
	begin, err := io.ReadAll(io.LimitReader(r.Body, aheadBytes+1))
	var broken net.Error
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &broken):
		return nil, err
	case err != nil:
		return begunBody{io.MultiReader(bytes.NewReader(begin), failing{err}), r.Body}, nil
	}
	body := begunBody{io.MultiReader(bytes.NewReader(begin), r.Body), r.Body}
	// If sent has not ended, the connection still has bytes of this request, and net/http does not
	// watch it. r.Body need not have ended for that: a body unpacked from sent may go on in memory
	// when sent has ended and the connection has nothing left to read.
	endMet := len(begin) <= aheadBytes && same(r.Body, sent)
	if !endMet && !hasEnded(sent) {
		return body, nil
	}
	return &readBody{begunBody: body, w: w, left: len(begin)}, nil
}

func mayReadAhead(r *http.Request) bool {
	if r.ProtoMajor != 1 || r.Body == nil || r.Header.Get("Expect") != "" {
		return false
	}
	return 0 < r.ContentLength && r.ContentLength <= aheadBytes
}

// same reports whether a and b are one body. It returns false for types that can't be compared.
func same(a, b io.Reader) bool { return reflect.ValueOf(a).Comparable() && a == b }

// hasEnded reports whether a request's body has been read to its end. A body of net/http, and one
// that bounds or decodes it, keeps returning io.EOF then. Until then a read of no bytes returns nil
// at once. A bytes.Buffer always does.
func hasEnded(body io.Reader) bool {
	if body == nil {
		return true
	}
	_, err := body.Read(nil)
	return errors.Is(err, io.EOF)
}

// begunBody is a body of which the beginning has been read, and is read from memory again.
type begunBody struct {
	io.Reader
	io.Closer
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// readBody is a begunBody for which nothing is left to read from the connection. When the handler
// has read what was read ahead, readBody removes the connection's read deadline, as net/http does
// at the end of a body. From there on net/http reads only to notice the end of the connection, and
// it would take the end of a deadline for that.
type readBody struct {
	begunBody
	w     http.ResponseWriter
	left  int // bytes that were read ahead, and that the handler has not read yet
	ended sync.Once
}

func (b *readBody) Read(p []byte) (int, error) {
	n, err := b.begunBody.Read(p)
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
