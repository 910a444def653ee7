package lockhttp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
)

// aheadBytes is how long a body may be that is read before the wait for the lock.
const aheadBytes = 64 << 10

// readAhead reads a request's body into memory, since net/http notices that an HTTP/1 client goes away only when the body has
// been read, and returns the body for the handler. Over HTTP/2 it reads nothing. It does not read a body of unknown length,
// whose client may wait for an answer before it sends the rest, nor one that waits for "100 Continue". Its error is that of a
// connection that has ended; any other, such as that of http.MaxBytesReader, the handler gets when it reads the body.
func readAhead(r *http.Request) (io.ReadCloser, error) {
	if r.ProtoMajor != 1 || r.ContentLength <= 0 || r.ContentLength > aheadBytes || r.Body == nil || r.Header.Get("Expect") != "" {
		return r.Body, nil
	}
	// ReadAll ends with the body's end, which is what starts the look-out. A path function may have put another body there.
	begin, err := io.ReadAll(io.LimitReader(r.Body, aheadBytes+1))
	var broken net.Error
	switch {
	case err == nil:
		return &readBody{io.MultiReader(bytes.NewReader(begin), r.Body), r.Body}, nil
	case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &broken):
		return nil, err
	}
	return &readBody{io.MultiReader(bytes.NewReader(begin), failing{err}), r.Body}, nil
}

// readBody is a body whose beginning has been read.
type readBody struct {
	io.Reader
	io.Closer
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
