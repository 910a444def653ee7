package lockhttp

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/zklock/locker/internal/queuejson"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
)

// queueTime bounds the reading of a queue: a page that waits for longer is no help when the
// ensemble is in trouble.
const queueTime = 3 * time.Second

const (
	// maxRows bounds what is shown of each list of this process's own; the totals are always told.
	maxRows = 1000
	// queueRows is how many contenders a page of a queue has.
	queueRows = 200
	// queuePages bounds the queues that are read and shown at a time: each may bring some 16 MB of
	// others' data.
	queuePages = 4
)

// StatusHandler returns a read-only page for operators, to be mounted at /debug/locks, say, or
// below any other path: the session and its lease, what this process holds and waits for, and, with
// ?path=/locks/x, the queue of any lock as the ensemble has it, 200 contenders a page: &from=200 is
// the second. JSON instead of HTML comes with ?format=json or a request that accepts
// application/json and not text/html; ?refresh=5 has a browser load the page again every 5 seconds.
//
// It answers GET and HEAD; 400 for a path that can't be a lock's, 503 when the queue could not be
// read within 3 s: the rest is shown all the same, for it costs no I/O. It shows the first 1000 of
// what this process holds and waits for. At most four queues are read at a time, with the bounds of
// admin.ReadQueue; the others wait. The page needs no other file and no script, and lets the
// browser load none; what others wrote into znodes is shown as text, and cut.
//
// The names of locks, owners and hosts, and the data of contenders, are for operators: mount it
// where only they get, as with net/http/pprof.
func StatusHandler(c *zklock.Client) http.Handler {
	st := status{c, make(chan struct{}, queuePages)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !reads(w, r) {
			return
		}
		query := r.URL.Query()
		asJSON, ok := wantsJSON(r, query.Get("format"))
		if !ok {
			http.Error(w, `format: is neither "json" nor "html"`, http.StatusBadRequest)
			return
		}
		refresh, ok := refreshOf(query.Get("refresh"))
		if !ok {
			http.Error(w, "refresh: is not a number of seconds between 1 and 3600", http.StatusBadRequest)
			return
		}
		from, ok := fromOf(query.Get("from"))
		if !ok {
			http.Error(w, "from: is not a number of contenders", http.StatusBadRequest)
			return
		}
		v, code, done := st.look(r.Context(), query.Get("path"), from)
		defer done()
		var body []byte
		var err error
		if asJSON {
			w.Header().Set("Content-Type", "application/json")
			body, err = queuejson.Marshal(v, "  ")
		} else {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			body, err = v.html(refresh)
		}
		if err != nil {
			http.Error(w, "the status can't be shown: "+err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Vary", "Accept")
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer") // the address names a lock
		w.WriteHeader(code)
		if _, err := w.Write(body); err != nil {
			return // the client has gone: there is nobody to tell
		}
	})
}

// wantsJSON decides between the two formats; false: asked for another.
func wantsJSON(r *http.Request, format string) (asJSON, ok bool) {
	switch format {
	case "json":
		return true, true
	case "html":
		return false, true
	case "":
	default:
		return false, false
	}
	accepts := func(kind string) bool {
		for _, line := range r.Header.Values("Accept") {
			for part := range strings.SplitSeq(line, ",") {
				if t, _, err := mime.ParseMediaType(part); err == nil && t == kind {
					return true
				}
			}
		}
		return false
	}
	return accepts("application/json") && !accepts("text/html"), true
}

// status is what one StatusHandler's requests share.
type status struct {
	c       *zklock.Client
	reading chan struct{} // has one element for each queue that is being read and shown
}

// look asks the Client, and, when a path is given, the ensemble. done is to be called when the view
// has been shown.
func (st status) look(ctx context.Context, path string, from int) (v view, code int, done func()) {
	v = viewOf(st.c.Status(), time.Now())
	if path == "" {
		return v, http.StatusOK, func() {}
	}
	v.from = from
	bounded, cancel := context.WithTimeout(ctx, queueTime)
	defer cancel()
	fail := func(err error, code int) (view, int, func()) {
		q := queuejson.New(path)
		q.Error = said(err.Error())
		v.Queue = &q
		return v, code, func() {}
	}
	select {
	case st.reading <- struct{}{}:
		done = func() { <-st.reading }
	case <-bounded.Done():
		return fail(fmt.Errorf("%d other queues are being read: %w", queuePages, bounded.Err()), http.StatusServiceUnavailable)
	}
	page, err := admin.ReadQueue(bounded, st.c, path, from, queueRows)
	if err != nil {
		done()
		if errors.Is(err, zklock.ErrPath) {
			return fail(err, http.StatusBadRequest)
		}
		return fail(err, http.StatusServiceUnavailable)
	}
	q := queueOf(page)
	v.Queue = &q
	return v, http.StatusOK, done
}
