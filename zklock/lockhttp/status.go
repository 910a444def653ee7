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
	// maxRows bounds how many of this process's holds, and of its waits, are shown. The totals are
	// always shown.
	maxRows = 1000
	// queueRows is how many contenders a page of a queue has.
	queueRows = 200
	// queuePages bounds the queues that are read and shown at a time: each may bring some 16 MB of
	// others' data.
	queuePages = 4
)

// StatusHandler returns a read-only page for operators, to be mounted at /debug/locks, say, or
// below any other path. It shows the session and its lease, and the first 1000 of what this process
// holds and waits for. Parameters:
//   - ?path=/locks/x adds the queue of any lock as the ensemble has it, 200 contenders a page;
//     &from=200 is the second page.
//   - ?format=json answers with JSON instead of HTML. So does a request that accepts
//     application/json and not text/html.
//   - ?refresh=5 lets a browser load the page again every 5 seconds.
//
// It answers GET and HEAD. It answers 400 for a path that can't be a lock's, and 503 if the queue
// could not be read within 3 s. The rest is shown all the same, since it costs no I/O. At most four
// queues are read at a time, with the bounds of admin.ReadQueue; other requests for a queue wait.
//
// The page needs no other file and no script, and lets the browser load none. Texts that others
// wrote into znodes are shown as text, and cut.
//
// The names of locks, owners and hosts, and the data of contenders, are for operators: mount it
// where only they get, as with net/http/pprof.
func StatusHandler(c *zklock.Client) http.Handler {
	st := status{c, make(chan struct{}, queuePages)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !reads(w, r) {
			return
		}
		asked, err := parseStatusRequest(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		v, code, done := st.view(r.Context(), asked)
		defer done()
		body, err := asked.render(v)
		if err != nil {
			http.Error(w, "the status can't be shown: "+err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		if asked.asJSON {
			h.Set("Content-Type", "application/json")
		} else {
			h.Set("Content-Type", "text/html; charset=utf-8")
		}
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

// statusRequest is what a request asks StatusHandler for.
type statusRequest struct {
	asJSON  bool
	path    string // of the queue, or "" for none
	from    int    // how many of the queue's contenders are before the first to show
	refresh int    // seconds; 0 means never
}

// parseStatusRequest reads the request's parameters. Its error is the answer's text.
func parseStatusRequest(r *http.Request) (statusRequest, error) {
	query := r.URL.Query()
	asked := statusRequest{path: query.Get("path")}
	var ok bool
	if asked.asJSON, ok = wantsJSON(r, query.Get("format")); !ok {
		return asked, errors.New(`format: is neither "json" nor "html"`)
	}
	if asked.refresh, ok = refreshOf(query.Get("refresh")); !ok {
		return asked, errors.New("refresh: is not a number of seconds between 1 and 3600")
	}
	if asked.from, ok = fromOf(query.Get("from")); !ok {
		return asked, errors.New("from: is not a number of contenders")
	}
	return asked, nil
}

// wantsJSON decides between the two formats. It returns ok = false if another one is asked for.
func wantsJSON(r *http.Request, format string) (asJSON, ok bool) {
	switch format {
	case "json":
		return true, true
	case "html":
		return false, true
	case "":
		return accepts(r, "application/json") && !accepts(r, "text/html"), true
	}
	return false, false
}

// accepts reports whether the request's Accept headers name the media type.
func accepts(r *http.Request, mediaType string) bool {
	for _, line := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			t, _, err := mime.ParseMediaType(part)
			if err == nil && t == mediaType {
				return true
			}
		}
	}
	return false
}

// render returns the answer's body.
func (asked statusRequest) render(v view) ([]byte, error) {
	if asked.asJSON {
		return queuejson.Marshal(v, "  ")
	}
	return v.html(asked.refresh)
}

// status is what one StatusHandler's requests share.
type status struct {
	c       *zklock.Client
	reading chan struct{} // has one element for each queue that is being read and shown
}

// view asks the Client and, if a queue is asked for, the ensemble. It returns the answer's status
// code as well. The caller calls done when the view has been shown.
func (st status) view(
	ctx context.Context, asked statusRequest,
) (v view, code int, done func()) {
	v = viewOf(st.c.Status(), time.Now())
	if asked.path == "" {
		return v, http.StatusOK, func() {}
	}
	v.from = asked.from
	page, done, err := st.readQueue(ctx, asked.path, asked.from)
	if err == nil {
		q := queueOf(page)
		v.Queue = &q
		return v, http.StatusOK, done
	}
	q := queuejson.New(asked.path)
	q.Error = said(err.Error())
	v.Queue = &q
	if errors.Is(err, zklock.ErrPath) {
		return v, http.StatusBadRequest, done
	}
	return v, http.StatusServiceUnavailable, done
}

// readQueue reads a page of a queue as soon as fewer than queuePages others are being read or
// shown, within queueTime in all. The caller calls done when the page has been shown, also after an
// error.
func (st status) readQueue(
	ctx context.Context, path string, from int,
) (page admin.QueuePage, done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, queueTime)
	defer cancel()
	nothing := func() {}
	select {
	case st.reading <- struct{}{}:
	case <-ctx.Done():
		err := fmt.Errorf("%d other queues are being read: %w", queuePages, ctx.Err())
		return page, nothing, err
	}
	free := func() { <-st.reading }
	page, err = admin.ReadQueue(ctx, st.c, path, from, queueRows)
	if err != nil {
		free()
		return page, nothing, err
	}
	return page, free, nil
}
