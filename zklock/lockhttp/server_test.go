package lockhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
)

// handlers has handlers under lock: one that answers and counts, one whose answer comes in parts,
// one that aborts, and one that takes the connection over.
func handlers(
	t *testing.T, lock func(http.Handler) http.Handler, served *atomic.Int32,
) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/short", lock(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		_, err := io.WriteString(w, "done")
		if err != nil {
			t.Error(err)
		}
	})))
	mux.Handle("/stream", lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 2 {
			if _, err := io.WriteString(w, "line\n"); err != nil {
				t.Error(err)
			}
			w.(http.Flusher).Flush()
			if r.URL.Query().Has("leave") {
				<-r.Context().Done() // the client goes away
			}
		}
	})))
	mux.Handle("/abort", lock(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	})))
	mux.Handle("/hijack", lock(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		const answer = "HTTP/1.1 299 Hijacked\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
		if _, err := io.WriteString(conn, answer); err != nil {
			t.Error(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})))
	return mux
}

// What a real server and a real client see.
func TestBehindARealServer(t *testing.T) {
	zoo := zktest.Run(t)
	c := locktest.Dial(t, zoo)
	var served atomic.Int32
	srv := httptest.NewServer(handlers(t, lockhttp.Middleware(locktest.Bound, byKey(c)), &served))
	t.Cleanup(srv.Close)
	get := func(path string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(locktest.Soon(t), http.MethodGet, srv.URL+path, nil)
		require.NoError(t, err)
		return srv.Client().Do(req)
	}

	for range 20 {
		answer, err := get("/short?key=a")
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, "done", string(body))
		require.Empty(t, zoo.Children("/locks/approve/a"),
			"who has read the answer finds the lock free")
	}
	require.EqualValues(t, 20, served.Load())

	answer, err := get("/stream?key=b")
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, "line\nline\n", string(body))

	// A client that leaves in the middle of an answer ends the handler, and so frees the lock.
	answer, err = get("/stream?key=b&leave")
	require.NoError(t, err)
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "line\n", line)
	require.NoError(t, answer.Body.Close())
	locktest.Unlock(t, locktest.Lock(t, c.Mutex("/locks/approve/b")))

	_, err = get("/abort?key=c")
	require.Error(t, err, "no answer")
	answer, err = get("/hijack?key=c")
	require.NoError(t, err)
	require.Equal(t, 299, answer.StatusCode)
	locktest.Unlock(t, locktest.Lock(t, c.Mutex("/locks/approve/c")))
}

// The server's ReadTimeout runs from the request's begin, and the wait for the lock would use it
// up.
func TestALongBodyCanBeReadAfterTheWait(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		read := make(chan error, 1)
		handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			if err == nil && n != 100<<10 {
				err = io.ErrShortBuffer
			}
			read <- err
		})
		h := lockhttp.Middleware(4*time.Second, byKey(c))(handler)
		client := start(t, &http.Server{Handler: h, ReadTimeout: time.Second})
		hold := locktest.Lock(t, c.Mutex("/locks/approve/k"))
		time.AfterFunc(1500*time.Millisecond, func() { _ = hold.Unlock() })
		answer, err := client.Post("http://memory/?key=k", "",
			bytes.NewReader(make([]byte, 100<<10)))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.NoError(t, <-read)
	})
}

// net/http ends the contexts of all later requests on a connection whose read deadline has passed
// while a handler was at work.
func TestAClientIsNotKeptOnAConnectionWhoseRequestsAllEnd(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		var once sync.Once
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			once.Do(func() {
				deadline := time.Now().Add(200 * time.Millisecond)
				_ = http.NewResponseController(w).SetReadDeadline(deadline)
				time.Sleep(400 * time.Millisecond)
			})
		})
		h := lockhttp.Middleware(time.Second, byKey(c))(handler)
		client := start(t, &http.Server{Handler: h})
		client.Transport.(*http.Transport).DisableKeepAlives = false
		defer client.CloseIdleConnections()
		var got []int
		for range 3 {
			answer, err := client.Post("http://memory/?key=k", "", nil)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, answer.Body) // else the connection is not used again
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			got = append(got, answer.StatusCode)
		}
		require.Equal(t, []int{200, 503, 200}, got)
	})
}

func TestAWaitThatTheServersWriteTimeoutLeavesNoTimeForIsRefused(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		var served atomic.Int32
		h := lockhttp.Middleware(2*time.Second, func(r *http.Request) (lockhttp.Do, error) {
			if r.Method == http.MethodOptions {
				return nil, nil
			}
			return byKey(c)(r)
		})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
		for limit, want := range map[time.Duration]int{
			0:               200,
			time.Second:     500,
			2 * time.Second: 500,
			3 * time.Second: 200,
		} {
			served.Store(0)
			var told bytes.Buffer
			client := start(t,
				&http.Server{Handler: h, WriteTimeout: limit, ErrorLog: log.New(&told, "", 0)})
			hold := locktest.Lock(t, c.Mutex("/locks/approve/k"))
			released := time.AfterFunc(1500*time.Millisecond, func() {
				if err := hold.Unlock(); err != nil {
					t.Error(err)
				}
			})
			answer, err := client.Post("http://memory/?key=k", "", nil)
			require.NoError(t, err, "the client hears something, with a WriteTimeout of %v", limit)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, want, answer.StatusCode, limit)
			require.Equal(t, want == 200, served.Load() == 1, limit)
			require.Equal(t, want == 500, strings.Contains(told.String(), "WriteTimeout"),
				told.String())
			if want == 500 {
				answer, err = client.Post("http://memory/?key=k", "", nil)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				require.Equal(t, 1, strings.Count(told.String(), "\n"), "it is said once")
			}
			if released.Stop() {
				locktest.Unlock(t, hold)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, "http://memory/",
				nil)
			require.NoError(t, err)
			answer, err = client.Do(r)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, 200, answer.StatusCode, "it needs no lock")
		}
	})
}

// reply is what a client has heard, and when.
type reply struct {
	status int
	text   string
	at     time.Time
}

// request sends one in the background.
func request(t *testing.T, client *http.Client, path string) <-chan reply {
	heard := make(chan reply, 1)
	go func() {
		answer, err := client.Get("http://memory" + path)
		if err != nil {
			t.Error(err)
			close(heard)
			return
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Error(err)
		}
		heard <- reply{answer.StatusCode, string(text), time.Now()}
	}()
	return heard
}

func TestAServerThatShutsDownTurnsAwayWhoWaitsAndLetsWhoHoldsFinish(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Minute)
			require.NoError(t, r.Context().Err())
		})
		mux := http.NewServeMux()
		mux.Handle("/a", locked(c, handler))
		mux.Handle("/b", locked(c, handler)) // with its own middleware
		web := &http.Server{Handler: mux}
		client := start(t, web)
		began := time.Now()
		holder := request(t, client, "/a?key=k")
		time.Sleep(time.Second)
		waiters := []<-chan reply{
			request(t, client, "/a?key=k"),
			request(t, client, "/b?key=k"),
			request(t, client, "/b?key=k"),
		}
		time.Sleep(time.Second)
		require.Len(t, c.Status().Waits, len(waiters))

		require.NoError(t, web.Shutdown(t.Context()))
		require.WithinDuration(t, began.Add(time.Minute), time.Now(), time.Second,
			"the server waits for the holder only")
		for _, waiter := range waiters {
			got := <-waiter
			at := began.Add(2 * time.Second)
			require.Equal(t, reply{503, "the server has given up the request\n", at}, got)
		}
		got := <-holder
		require.Equal(t, reply{200, "", began.Add(time.Minute)}, got)
		require.Empty(t, srv.Children("/locks/approve/k"))
	})
}

func TestARequestThatItsServerEndsHearsSo(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		defer locktest.Unlock(t, locktest.Lock(t, c.Mutex("/locks/approve/k")))
		base, end := context.WithCancel(context.Background())
		client := start(t, &http.Server{
			Handler:     locked(c, ok),
			BaseContext: func(net.Listener) context.Context { return base },
		})
		waiter := request(t, client, "/?key=k")
		time.Sleep(time.Second)
		end()
		got := <-waiter
		require.Equal(t, 503, got.status)
		require.Equal(t, "the server has given up the request\n", got.text)
	})
}

// The connection of HTTP/2 has other requests: one that its client cancels while it waits does not
// end it.
func TestARequestThatIsCancelledEndsNoConnectionOfHTTP2(t *testing.T) {
	srv := zktest.Run(t)
	c := locktest.Dial(t, srv)
	server := httptest.NewUnstartedServer(lockhttp.Middleware(time.Minute, byKey(c))(ok))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	post := func(ctx context.Context, key string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/?key="+key, nil)
		require.NoError(t, err)
		answer, err := server.Client().Do(r)
		if err == nil {
			require.Equal(t, 2, answer.ProtoMajor)
			err = answer.Body.Close()
		}
		return err
	}
	h := locktest.Lock(t, c.Mutex(zklock.KeyPath("/locks/approve", "held")))
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 1)
	go func() { waits <- post(ctx, "held") }()
	inLine := func(n int) func() bool {
		return func() bool { return len(srv.Children("/locks/approve/held")) == n }
	}
	require.NoError(t, srv.Await(locktest.Soon(t), inLine(2)))
	cancel()
	require.ErrorIs(t, <-waits, context.Canceled)
	require.NoError(t, srv.Await(locktest.Soon(t), inLine(1)))
	reused := false
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}
	require.NoError(t, post(httptrace.WithClientTrace(t.Context(), trace), "free"))
	require.True(t, reused)
	locktest.Unlock(t, h)
}
