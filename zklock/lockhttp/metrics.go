package lockhttp

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/internal/errtype"
)

// MetricsHandler returns a handler that shows what happens to a program's locks in the text format
// of Prometheus, and the hooks that count it. Give the hooks to zklock.Dial, by zklock.WithHooks,
// before the handler can show anything. They may serve several Clients, and stand beside others.
//
// The metrics are those of package otelzklock, under the names that OpenTelemetry's exporter for
// Prometheus gives them, so that one dashboard serves both: docs/monitoring has one, and alert
// rules.
//
//	zklock_lock_wait_duration_seconds  histogram  from asking for a lock to having it, or not
//	zklock_lock_wait_count             gauge      calls that wait now
//	zklock_lock_wait_oldest_seconds    gauge      how long the longest of these waits has lasted
//	zklock_lock_hold_duration_seconds  histogram  from having a lock to its release or loss
//	zklock_lock_hold_count             gauge      locks that are held now
//	zklock_lock_hold_oldest_seconds    gauge      how long the longest of these holds has lasted
//	zklock_lock_losses_total           counter    holds that were lost, by cause
//	zklock_lock_retries_total          counter    steps that failed and were repeated
//	zklock_session_changes_total       counter    by zklock_session_state: connected,
//	                                              disconnected, over
//	zklock_session_count               gauge      sessions that are connected now
//
// Those of locks have the label zklock_lock_kind, those of what went wrong have error_type, and the
// hold's duration has zklock_lock_end (released, lost, closed). None has a path, since there may be
// one for each key. What is kept does not grow with the number of past calls. The handler answers
// GET and HEAD, without I/O.
func MetricsHandler() (http.Handler, zklock.Hooks) {
	m := &metrics{
		waited:  map[labels]*histogram{},
		held:    map[labels]*histogram{},
		calls:   map[uint64]call{},
		kinds:   map[labels]bool{},
		losses:  map[labels]int64{},
		retries: map[labels]int64{},
		// A process that has never been disconnected has a series, too.
		changes:   map[labels]int64{{state: session.Disconnected.String()}: 0},
		connected: map[int64]bool{},
	}
	return m, zklock.Hooks{
		Session:  m.session,
		Asked:    m.asked,
		Acquired: m.acquired,
		Failed:   m.failed,
		Released: m.released,
		Lost:     m.lost,
		Retried:  m.retried,
	}
}

// metrics are what the hooks have counted.
type metrics struct {
	mu           sync.Mutex // guards what follows; held for a map entry, or to write them all
	waited, held map[labels]*histogram
	calls        map[uint64]call // that wait or hold now, by LockInfo.Call
	kinds        map[labels]bool // of the calls that there have been
	losses       map[labels]int64
	retries      map[labels]int64
	changes      map[labels]int64
	connected    map[int64]bool // session ids
}

// call is a call that waits or holds now.
type call struct {
	kind  labels
	since time.Time
	holds bool
}

// labels are those of one series. A label that the series does not have is "". All values are from
// fixed lists.
type labels struct{ kind, end, errorType, state string }

func kindOf(i zklock.LockInfo) labels { return labels{kind: string(i.Kind)} }

func (m *metrics) asked(i zklock.LockInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begin(i, false)
}

// begin records that a call waits, or holds, from now on.
func (m *metrics) begin(i zklock.LockInfo, holds bool) {
	k := kindOf(i)
	if !m.kinds[k] {
		m.kinds[k] = true
		for _, why := range errtype.Losses {
			m.losses[labels{kind: k.kind, errorType: why}] = 0
		}
	}
	m.calls[i.Call] = call{k, time.Now(), holds}
}

func (m *metrics) acquired(i zklock.LockInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	observe(m.waited, kindOf(i), i.Waited.Seconds())
	if i.Joined != 0 { // the hold is another call's
		delete(m.calls, i.Call)
		return
	}
	m.begin(i, true)
}

func (m *metrics) failed(i zklock.LockInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.calls, i.Call)
	k := kindOf(i)
	k.errorType = errtype.Of(i.Err)
	observe(m.waited, k, i.Waited.Seconds())
}

func (m *metrics) released(i zklock.LockInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.calls, i.Call)
	k := kindOf(i)
	k.end = "released"
	observe(m.held, k, i.Held.Seconds())
}

func (m *metrics) lost(i zklock.LockInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.calls, i.Call)
	k := kindOf(i)
	k.errorType = errtype.Of(i.Err)
	if k.errorType == errtype.Closed { // by the program itself
		k.end = "closed"
	} else {
		m.losses[k]++
		k.end = "lost"
	}
	observe(m.held, k, i.Held.Seconds())
}

func (m *metrics) retried(i zklock.LockInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := kindOf(i)
	k.errorType = errtype.Of(i.Err)
	m.retries[k]++
}

func (m *metrics) session(i session.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := labels{state: i.State.String()}
	if i.State == session.Over {
		k.errorType = errtype.Of(i.Err)
	}
	m.changes[k]++
	if i.State == session.Connected {
		m.connected[i.ID] = true
	} else {
		delete(m.connected, i.ID)
	}
}

// ServeHTTP writes all metrics.
func (m *metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !reads(w, r) {
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if _, err := w.Write(m.text()); err != nil {
		return // the client has gone: there is nobody to tell
	}
}

// reads reports whether the method is GET or HEAD. It answers a request with any other method.
func reads(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
	return false
}

// text returns all metrics in Prometheus's text format.
func (m *metrics) text() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	waits, oldestWait := m.present(false)
	holds, oldestHold := m.present(true)
	sessions := map[labels]int64{{}: int64(len(m.connected))}
	var b bytes.Buffer
	histograms(&b, "zklock_lock_wait_duration_seconds",
		"Time from asking for a lock to having it, or giving up.", m.waited)
	numbers(&b, "zklock_lock_wait_count", "gauge",
		"Calls that wait for a lock now.", waits)
	numbers(&b, "zklock_lock_wait_oldest_seconds", "gauge",
		"How long the call has waited that has waited longest.", oldestWait)
	histograms(&b, "zklock_lock_hold_duration_seconds",
		"Time from having a lock to its release or loss.", m.held)
	numbers(&b, "zklock_lock_hold_count", "gauge",
		"Locks that are held now.", holds)
	numbers(&b, "zklock_lock_hold_oldest_seconds", "gauge",
		"How long the lock has been held that has been held longest.", oldestHold)
	numbers(&b, "zklock_lock_losses_total", "counter",
		"Holds that ended without having been released.", m.losses)
	numbers(&b, "zklock_lock_retries_total", "counter",
		"Steps towards a lock that failed and were made again.", m.retries)
	numbers(&b, "zklock_session_changes_total", "counter",
		"Changes of the ZooKeeper session's state.", m.changes)
	numbers(&b, "zklock_session_count", "gauge",
		"ZooKeeper sessions that are connected now.", sessions)
	return b.Bytes()
}

// present returns, for each kind, how many calls hold now, and for how many seconds the longest of
// these holds has lasted. If holds is false, it returns the same of the calls that wait.
func (m *metrics) present(holds bool) (count map[labels]int64, oldest map[labels]float64) {
	count, oldest = map[labels]int64{}, map[labels]float64{}
	for k := range m.kinds {
		count[k], oldest[k] = 0, 0
	}
	for _, c := range m.calls {
		if c.holds == holds {
			count[c.kind]++
			oldest[c.kind] = max(oldest[c.kind], time.Since(c.since).Seconds())
		}
	}
	return count, oldest
}

// head writes the lines before a metric's series.
func head(b *bytes.Buffer, name, kind, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// numbers writes a metric that has one number for each series.
func numbers[V int64 | float64](b *bytes.Buffer, name, kind, help string, all map[labels]V) {
	head(b, name, kind, help)
	for _, k := range inOrder(all) {
		fmt.Fprintf(b, "%s%s %v\n", name, k.text(""), all[k])
	}
}

// histograms writes a metric that has a histogram for each series.
func histograms(b *bytes.Buffer, name, help string, all map[labels]*histogram) {
	head(b, name, "histogram", help)
	for _, k := range inOrder(all) {
		h, below := all[k], uint64(0)
		for i, n := range h.buckets {
			below += n
			bound := math.Inf(1)
			if i < len(bounds) {
				bound = bounds[i]
			}
			le := strconv.FormatFloat(bound, 'g', -1, 64)
			fmt.Fprintf(b, "%s_bucket%s %d\n", name, k.text(le), below)
		}
		fmt.Fprintf(b, "%s_sum%s %g\n", name, k.text(""), h.sum)
		fmt.Fprintf(b, "%s_count%s %d\n", name, k.text(""), below)
	}
}

// text returns the labels as Prometheus writes them. le is a bucket's bound, or "" for none.
func (k labels) text(le string) string {
	var parts []string
	for _, l := range []struct{ name, value string }{
		{"error_type", k.errorType},
		{"zklock_lock_end", k.end},
		{"zklock_lock_kind", k.kind},
		{"zklock_session_state", k.state},
		{"le", le},
	} {
		if l.value != "" {
			parts = append(parts, l.name+`="`+l.value+`"`)
		}
	}
	if parts == nil {
		return ""
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// inOrder returns the series' labels in the order in which they are shown.
func inOrder[V any](all map[labels]V) []labels {
	return slices.SortedFunc(maps.Keys(all), func(a, b labels) int {
		return cmp.Compare(a.text(""), b.text(""))
	})
}

// bounds are the histograms' buckets, in seconds: a free lock takes a millisecond, a job under a
// lock may take an hour.
var bounds = []float64{
	.001, .0025, .005, .01, .025, .05, .1, .25, .5,
	1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
}

type histogram struct {
	buckets []uint64 // one more than bounds
	sum     float64
}

// observe adds a duration to the histogram with the labels k, and makes that if there is none.
func observe(all map[labels]*histogram, k labels, seconds float64) {
	h := all[k]
	if h == nil {
		h = &histogram{buckets: make([]uint64, len(bounds)+1)}
		all[k] = h
	}
	i, _ := slices.BinarySearch(bounds, seconds) // the first bound that is not below it
	h.buckets[i]++
	h.sum += seconds
}
