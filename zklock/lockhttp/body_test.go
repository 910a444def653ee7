package lockhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestARequestWaitsForAsLongAsTheMiddlewareOrItsLockSays(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c, other := locktest.Dial(t, srv), locktest.Dial(t, srv)
		theirs := locktest.Lock(t, other.Mutex("/locks/approve/k"))
		longer := []zklock.LockOption{zklock.WithMaxWait(time.Hour)}
		both := []zklock.LockOption{
			zklock.WithMaxHold(time.Hour),
			zklock.WithMaxWait(40 * time.Second),
		}
		for _, k := range []struct {
			wait time.Duration
			opts []zklock.LockOption
			want time.Duration
		}{
			{10 * time.Second, nil, 10 * time.Second},
			{10 * time.Second, []zklock.LockOption{zklock.WithMaxWait(time.Second)}, time.Second},
			{10 * time.Second, []zklock.LockOption{zklock.WithMaxWait(0)}, 0},
			{10 * time.Second, longer, 10 * time.Second},
			{10 * time.Second, []zklock.LockOption{zklock.WithLocalHandoff()}, 10 * time.Second},
			{time.Hour, both, 40 * time.Second},
		} {
			began := time.Now()
			answer := ask(lockhttp.Middleware(k.wait, byKey(c, k.opts...))(ok),
				post(context.Background(), "k"))
			require.Equal(t, http.StatusConflict, answer.StatusCode)
			require.Equal(t, k.want, time.Since(began))
		}
		locktest.Unlock(t, theirs)
		require.PanicsWithValue(t, "lockhttp: wait 0s: is not positive",
			func() { lockhttp.Middleware(0, byKey(c)) })
	})
}

// net/http reads on, and so notices the end of the connection, when the request's body has been
// read.
func TestAClientThatHangsUpWithItsBodyUnreadLeavesTheLine(t *testing.T) {
	zoo := zktest.Run(t)
	c := locktest.Dial(t, zoo, zklock.WithSessionTimeout(20*time.Second))
	// The lock is released before the server is closed, which waits for its handlers.
	defer locktest.Unlock(t, locktest.Lock(t, c.Mutex("/locks/approve/k")))
	srv := httptest.NewServer(lockhttp.Middleware(time.Hour, byKey(c))(ok))
	t.Cleanup(srv.Close)
	const clients = 50
	var conns []net.Conn
	for range clients {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		_, err = fmt.Fprint(conn,
			"POST /?key=k HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody")
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	ctx := locktest.Soon(t)
	require.NoError(t,
		zoo.Await(ctx, func() bool { return len(zoo.Children("/locks/approve/k")) == 1+clients }))
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
	require.NoError(t,
		zoo.Await(ctx, func() bool { return len(zoo.Children("/locks/approve/k")) == 1 }),
		"they wait still")
}

func TestTheHandlerReadsTheBodyAsItWasSent(t *testing.T) {
	zoo := zktest.Run(t)
	c := locktest.Dial(t, zoo)
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			http.Error(w, string(body), http.StatusRequestEntityTooLarge)
			return
		}
		fmt.Fprintf(w, "%d %s %v %d", len(body), body[:min(len(body), 9)], err, r.ContentLength)
	})
	lock := lockhttp.Middleware(wait, byKey(c))(echo)
	mux := http.NewServeMux()
	mux.Handle("/", lock)
	mux.HandleFunc("/bounded", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 3)
		lock.ServeHTTP(w, r)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	text := func(s string) io.Reader { return strings.NewReader(s) }
	xs := func(n int) io.Reader { return strings.NewReader(strings.Repeat("x", n)) }
	unsized := io.MultiReader(text("some body"))
	for name, k := range map[string]struct {
		path   string
		body   io.Reader
		expect bool
		status int
		want   string
	}{
		"none":                {"/", nil, false, 200, "0  <nil> 0"},
		"short":               {"/", text("some body"), false, 200, "9 some body <nil> 9"},
		"of unknown length":   {"/", unsized, false, 200, "9 some body <nil> -1"},
		"long":                {"/", xs(1 << 20), false, 200, "1048576 xxxxxxxxx <nil> 1048576"},
		"just short enough":   {"/", xs(64 << 10), false, 200, "65536 xxxxxxxxx <nil> 65536"},
		"asked for":           {"/", text("some body"), true, 200, "9 some body <nil> 9"},
		"over a bound before": {"/bounded", text("some body"), false, 413, "som\n"},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(locktest.Soon(t), http.MethodPost,
				srv.URL+k.path+"?key=k", k.body)
			require.NoError(t, err)
			if k.expect {
				req.Header.Set("Expect", "100-continue")
			}
			answer, err := srv.Client().Do(req)
			require.NoError(t, err)
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.Equal(t, k.status, answer.StatusCode)
			require.Equal(t, k.want, string(text))
		})
	}
}

func TestARequestWhoseBodyBreaksOffGetsNoLock(t *testing.T) {
	zoo := zktest.Run(t)
	c := locktest.Dial(t, zoo)
	srv := httptest.NewServer(locked(c, never(t)))
	t.Cleanup(srv.Close)
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprint(conn, "POST /?key=k HTTP/1.1\r\nHost: h\r\nContent-Length: 40\r\n\r\nbody")
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(answer), "400 Bad Request")
	require.Zero(t, zoo.Requests()[fault.OpCreate])
}

func TestAReadDeadlineDoesWhatItDoesWithoutTheLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		const sent = `{"a":1}`
		short := func() io.Reader { return strings.NewReader(sent) }
		long := func() io.Reader { return strings.NewReader(strings.Repeat("x", 1<<20)) }
		unsized := func() io.Reader { return io.MultiReader(short()) }
		none := func() io.Reader { return nil }
		all := func(body io.Reader) error { _, err := io.ReadAll(body); return err }
		bytesOf := func(body io.Reader) error {
			_, err := io.ReadFull(body, make([]byte, len(sent)))
			return err
		}
		value := func(body io.Reader) error { return json.NewDecoder(body).Decode(new(any)) }
		for name, k := range map[string]struct {
			body func() io.Reader
			read func(io.Reader) error
			late bool  // the deadline is set when the body has been read
			want error // of the request's context, after the deadline
		}{
			"read to its end":           {short, all, false, nil},
			"its bytes are read":        {short, bytesOf, false, nil},
			"one value is decoded":      {short, value, false, nil},
			"a long one":                {long, all, false, nil},
			"one of unknown length":     {unsized, all, false, nil},
			"a deadline after the body": {short, all, true, context.Canceled},
			"a deadline without a body": {none, all, false, context.Canceled},
		} {
			var ended error
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				limit := func() {
					deadline := time.Now().Add(time.Second)
					err := http.NewResponseController(w).SetReadDeadline(deadline)
					require.NoError(t, err, name)
				}
				if !k.late {
					limit()
				}
				require.NoError(t, k.read(r.Body), name)
				if k.late {
					limit()
				}
				time.Sleep(time.Minute)
				ended = r.Context().Err()
			})
			for _, h := range []http.Handler{handler, locked(c, handler)} {
				client := start(t, &http.Server{Handler: h})
				answer, err := client.Post("http://memory/?key=k", "", k.body())
				require.NoError(t, err, name)
				require.NoError(t, answer.Body.Close())
				require.Equal(t, k.want, ended, name)
			}
		}
	})
}

// The function that chose the lock put a longer body in the place of the request's. While the
// client has still to send, a read deadline is in force; when it has sent all, the deadline goes.
func TestAReadDeadlineGoesWhenTheClientHasSentAll(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		const more = 70 << 10
		for name, k := range map[string]struct {
			send    string // of the four bytes that the request announces
			readErr error
		}{
			"all was sent":    {"four", nil},
			"some is to come": {"fo", os.ErrDeadlineExceeded},
		} {
			choose := func(r *http.Request) (lockhttp.Do, error) {
				const most = 1 << 20
				first := io.Reader(strings.NewReader(strings.Repeat("x", more)))
				if k.readErr == nil { // the whole body is read before the wait
					first = io.MultiReader(io.LimitReader(r.Body, most), first)
				}
				r.Body = struct {
					io.Reader
					io.Closer
				}{io.MultiReader(first, r.Body), r.Body}
				return byKey(c)(r)
			}
			var readErr, ended error
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				deadline := time.Now().Add(time.Second)
				require.NoError(t, http.NewResponseController(w).SetReadDeadline(deadline), name)
				_, readErr = io.ReadFull(r.Body, make([]byte, more+4))
				time.Sleep(time.Minute)
				ended = r.Context().Err()
			})
			client := start(t, &http.Server{Handler: lockhttp.Middleware(wait, choose)(handler)})
			body, in := io.Pipe()
			go func() {
				_, _ = io.WriteString(in, k.send)
				if len(k.send) == 4 {
					_ = in.Close()
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://memory/?key=k", body)
			require.NoError(t, err)
			r.ContentLength = 4
			answer, err := client.Do(r)
			if k.readErr == nil {
				require.NoError(t, err, name)
				require.NoError(t, answer.Body.Close())
				require.NoError(t, ended, name)
			} else if err == nil {
				require.NoError(t, answer.Body.Close())
			}
			cancel()
			require.NoError(t, in.Close())
			require.ErrorIs(t, readErr, k.readErr, name)
		}
	})
}

// The function that chose the lock put a short body in the place of the request's, of which the
// client sends only a part. The server waits for the rest before it answers, and its ReadTimeout
// bounds that.
func TestAReadDeadlineStaysWhileTheClientHasToSend(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		choose := func(r *http.Request) (lockhttp.Do, error) {
			r.Body = struct {
				io.Reader
				io.Closer
			}{strings.NewReader("x"), r.Body}
			return byKey(c)(r)
		}
		readAll := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			_, _ = w.Write(body)
		})
		client := start(t, &http.Server{
			Handler:     lockhttp.Middleware(wait, choose)(readAll),
			ReadTimeout: time.Second,
		})
		client.Transport.(*http.Transport).DisableKeepAlives = false // then the rest is awaited
		body, in := io.Pipe()
		go func() { _, _ = io.WriteString(in, "fo") }()
		ctx := locktest.Within(t, time.Minute)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://memory/?key=k", body)
		require.NoError(t, err)
		r.ContentLength = 4
		answer, err := client.Do(r)
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, "x", string(text))
		require.NoError(t, answer.Body.Close())
		require.NoError(t, in.Close())
	})
}

// A middleware around this one has read the body, and put one in its place whose end can't be seen
// but by reading, or whose type can't be compared.
func TestABodyThatWasReadBeforeGetsNoReadDeadline(t *testing.T) {
	type uncomparable struct {
		io.Reader
		io.Closer
		_ []byte
	}
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		for name, replaced := range map[string]func(text []byte, c io.Closer) io.ReadCloser{
			"a buffer": func(text []byte, _ io.Closer) io.ReadCloser {
				return io.NopCloser(bytes.NewBuffer(text))
			},
			"one of an uncomparable type": func(text []byte, c io.Closer) io.ReadCloser {
				return uncomparable{Reader: bytes.NewReader(text), Closer: c}
			},
		} {
			var ended error
			lock := locked(c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Minute)
				ended = r.Context().Err()
			}))
			outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, err := io.ReadAll(r.Body)
				require.NoError(t, err, name)
				r.Body = replaced(text, r.Body)
				lock.ServeHTTP(w, r)
			})
			client := start(t, &http.Server{Handler: outer, ReadTimeout: time.Second})
			answer, err := client.Post("http://memory/?key=k", "", strings.NewReader("some"))
			require.NoError(t, err, name)
			require.NoError(t, answer.Body.Close())
			require.NoError(t, ended, name)
		}
	})
}
