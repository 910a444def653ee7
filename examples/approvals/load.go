package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// load is the clients of the service: a number of updates, each requested until it is answered.
type load struct {
	url     string
	prefix  string // of the updates' names
	updates int
	keys    int
	clients int

	reserved bool // the last one is asked for by reserve, and not by the clients

	mu       sync.Mutex // guards the fields below
	next     int
	accepted map[string]answer // by id, with the key's number from the client's answer
	busy     int               // answers: another request held the lock for too long
	refused  int               // answers: not done, try again
	unknown  int               // no answer: it may have been done
	already  int               // … and it had been, by the next answer
	reached  []chan struct{}
}

// updateBound is how long a client tries in all before it abandons an update, which fails the run.
const updateBound = 2 * time.Minute

func newLoad(url, prefix string, c config) *load {
	l := &load{url: url, prefix: prefix, updates: c.updates, keys: c.keys, clients: c.clients,
		accepted: map[string]answer{}}
	l.reached = make([]chan struct{}, c.updates+1)
	for i := range l.reached {
		l.reached[i] = make(chan struct{})
	}
	close(l.reached[0])
	return l
}

// after returns a channel that is closed when so many updates were accepted.
func (l *load) after(n int) <-chan struct{} { return l.reached[n] }

// newClient returns a client for that many requests at a time. It waits for longer than any of them can take, including
// the wait for the lock.
func newClient(atOnce int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}, Timeout: lockWait + lockMaxHold + stopping}
}

// run returns when every update was accepted, or with the first failure, when all clients have ended.
func (l *load) run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	client := newClient(l.clients)
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	for range l.clients {
		all.Go(func() {
			for {
				id, key, ok := l.take()
				if !ok {
					return
				}
				if err := l.insist(ctx, client, id, key); err != nil {
					fail(fmt.Errorf("update %s: %w", id, err))
					return
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// insistAt is run for the reserved update, which goes to one instance directly until stop is closed.
func (l *load) insistAt(ctx context.Context, addr string, stop <-chan struct{}) error {
	client := newClient(1)
	defer client.CloseIdleConnections()
	id, key := l.name(l.updates - 1)
	direct, cancel := context.WithCancel(ctx)
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() { // ends with direct, at the latest when this function returns
		select {
		case <-stop:
			cancel()
		case <-direct.Done():
		}
	})
	for direct.Err() == nil {
		a, v, _ := l.ask(direct, client, "http://"+addr, id, key)
		if v == isAccepted {
			return fmt.Errorf("update %s: accepted, by an instance that was to stop before", id)
		}
		l.count(v)
		if v == isHopeless {
			return fmt.Errorf("update %s: refused for good: %s", id, a.text)
		}
		_ = pause(direct, 20*time.Millisecond) // its end is the loop's
	}
	watch.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return l.insist(ctx, client, id, key)
}

// take hands out the next update.
func (l *load) take() (id, key string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == l.updates || l.reserved && l.next == l.updates-1 {
		return "", "", false
	}
	id, key = l.name(l.next)
	l.next++
	return id, key, true
}

// name returns the id and the key of an update.
func (l *load) name(i int) (id, key string) {
	return fmt.Sprintf("%s-%04d", l.prefix, i), fmt.Sprintf("doc-%02d", i%l.keys)
}

// insist requests an update, under the same name, until the answer is that it was accepted.
func (l *load) insist(ctx context.Context, client *http.Client, id, key string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, updateBound, errors.New("not accepted within "+updateBound.String()))
	defer cancel()
	for backoff := 50 * time.Millisecond; ; backoff = min(2*backoff, time.Second) {
		a, verdict, wait := l.ask(ctx, client, l.url, id, key)
		if verdict == isAccepted {
			l.note(id, a)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if verdict == isHopeless {
			return fmt.Errorf("refused for good: %s", a.text)
		}
		l.count(verdict)
		if wait == 0 {
			wait = backoff
		}
		if err := pause(ctx, wait/2+rand.N(wait)); err != nil { // so that not all come back at once
			return err
		}
	}
}

// verdict is the meaning of an answer, or of its absence, to a client.
type verdict int

const (
	isAccepted verdict = iota
	isBusy             // not done
	isRefused          // not done
	isUnknown          // done or not done
	isHopeless         // not done, and won't be
)

// reply is an answer, or the text of a refusal.
type reply struct {
	answer
	text string
}

// ask sends one request. wait is the time that the service asks for before the next one.
func (l *load) ask(ctx context.Context, client *http.Client, service, id, key string) (r reply, v verdict, wait time.Duration) {
	target := service + "/approvals/" + url.PathEscape(key) + "?approver=" + url.QueryEscape("approver-of-"+id)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
	if err != nil {
		return reply{text: err.Error()}, isHopeless, 0
	}
	req.Header.Set(idHeader, id)
	resp, err := client.Do(req)
	if err != nil {
		return reply{}, isUnknown, 0
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	err = errors.Join(err, resp.Body.Close())
	if seconds, e := strconv.Atoi(resp.Header.Get("Retry-After")); e == nil {
		wait = time.Duration(seconds) * time.Second
	}
	switch {
	case err != nil:
		return reply{}, isUnknown, 0
	case resp.StatusCode == http.StatusOK:
		if json.Unmarshal(body, &r.answer) != nil {
			return reply{}, isUnknown, 0
		}
		return r, isAccepted, 0
	case resp.StatusCode == http.StatusConflict:
		return reply{}, isBusy, wait
	case resp.StatusCode == http.StatusServiceUnavailable:
		return reply{}, isRefused, wait
	case resp.StatusCode >= 500:
		return reply{}, isUnknown, 0
	}
	return reply{text: resp.Status + ": " + string(body)}, isHopeless, 0
}

func (l *load) count(v verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch v {
	case isBusy:
		l.busy++
	case isRefused:
		l.refused++
	case isUnknown:
		l.unknown++
	}
}

func (l *load) note(id string, r reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted[id] = r.answer
	if r.Already {
		l.already++
	}
	close(l.reached[len(l.accepted)])
}
