package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// proxy spreads requests over the instances in turn and leaves out those that do not answer. It is as simple as
// possible, with one property that matters here: a request that may have reached an instance is never sent to another
// one. Its client gets 502, for an unknown outcome, and handles that.
type proxy struct {
	backends []*backend
	turn     atomic.Int64
	server   *http.Server
	listener net.Listener
	stop     context.CancelFunc // of the goroutines below
	running  sync.WaitGroup
}

// backend is one instance.
type backend struct {
	url   *url.URL
	proxy *httputil.ReverseProxy

	mu    sync.Mutex      // guards the fields below
	alive context.Context // ends when it does not answer, and ends the requests in progress
	dead  context.CancelFunc
}

const (
	probeEvery = 100 * time.Millisecond
	probeBound = time.Second // an instance that takes longer is left out until it answers again
)

// attempt is one try of a request, in its context.
type attempt struct{ err error }

type attemptKey struct{}

// startProxy listens on a loopback address.
func startProxy(f fleet) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &proxy{listener: listener, stop: stop}
	for _, m := range f {
		b := &backend{url: &url.URL{Scheme: "http", Host: m.addr}}
		b.alive, b.dead = context.WithCancel(ctx)
		b.proxy = &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(b.url) },
			Transport: &http.Transport{MaxIdleConnsPerHost: 100},
			ErrorLog:  log.New(io.Discard, "", 0), // of broken copies, which clients notice
			ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
				r.Context().Value(attemptKey{}).(*attempt).err = err
			},
		}
		p.backends = append(p.backends, b)
		p.running.Go(func() { b.probe(ctx) })
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: stopping}
	p.running.Go(func() {
		// It ends with Close, and then there is nothing to report; clients notice any other end.
		_ = p.server.Serve(listener)
	})
	return p, nil
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

// close ends all requests and returns when nothing runs any more.
func (p *proxy) close() error {
	p.stop()
	err := p.server.Close()
	p.running.Wait()
	for _, b := range p.backends {
		b.proxy.Transport.(*http.Transport).CloseIdleConnections()
	}
	return err
}

// ServeHTTP hands the request to the next instance that answers.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	first := int(p.turn.Add(1))
	for i := range p.backends {
		b := p.backends[(first+i)%len(p.backends)]
		alive := b.context()
		if alive.Err() != nil {
			continue
		}
		err := b.serve(w, r, alive)
		if err == nil {
			return
		}
		var failed *net.OpError
		if errors.As(err, &failed) && failed.Op == "dial" {
			b.leaveOut() // it has not got the request, so the next one may
			continue
		}
		http.Error(w, "outcome unknown: "+err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Retry-After", "1")
	http.Error(w, "no instance answers", http.StatusServiceUnavailable)
}

// serve returns nil when w has an answer, and otherwise the reason why it has none.
func (b *backend) serve(w http.ResponseWriter, r *http.Request, alive context.Context) error {
	try := &attempt{}
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), attemptKey{}, try))
	defer cancel()
	defer context.AfterFunc(alive, cancel)()
	b.proxy.ServeHTTP(w, r.WithContext(ctx))
	return try.err
}

func (b *backend) context() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.alive
}

func (b *backend) leaveOut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead()
}

// probe polls whether the instance answers.
func (b *backend) probe(ctx context.Context) {
	client := &http.Client{Timeout: probeBound, Transport: &http.Transport{DisableKeepAlives: true}}
	for pause(ctx, probeEvery) == nil {
		if b.ask(ctx, client) != nil {
			b.leaveOut()
			continue
		}
		b.mu.Lock()
		if b.alive.Err() != nil {
			b.alive, b.dead = context.WithCancel(ctx)
		}
		b.mu.Unlock()
	}
}

func (b *backend) ask(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url.JoinPath("healthz").String(), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
