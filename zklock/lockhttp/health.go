package lockhttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zklock"
)

// HealthHandler returns a handler for the probes of an orchestrator, to be mounted at /health/,
// say. A path that ends in /live asks whether the process needs to be started again. Any other path
// asks whether it is ready for work that needs locks:
//
//	live   200 unless the Client was closed. It finds its way back to an ensemble by itself, so a
//	       restart would not help.
//	ready  200 while a server is connected, otherwise 503. Locks that are held stay held for as
//	       long as the lease lasts.
//
// The answer is JSON:
//
//	{"status": "ready", "state": "connected", "session": "0x…", "server": "zk1:2181",
//	 "timeout_seconds": 10, "lease_seconds": 6.5, "why": "…"}
//
// The status is live, ready, not ready or closed. lease_seconds is the time in which the ensemble
// can't end the session by itself, at least 0. It is not renewed while nothing is held. why is
// there when the session is over.
//
// The handler answers GET and HEAD, without I/O.
func HealthHandler(c *zklock.Client) http.Handler {
	c.SessionStatus() // panics now, and not at the first probe, for a nil Client
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !reads(w, r) {
			return
		}
		h := healthOf(c.SessionStatus(), strings.HasSuffix(r.URL.Path, "/live"), time.Now())
		body, err := json.Marshal(h)
		if err != nil {
			panic(err) // strings and numbers always marshal
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if h.Status != "ready" && h.Status != "live" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if _, err := w.Write(append(body, '\n')); err != nil {
			return // the client has gone: there is nobody to tell
		}
	})
}

// health is the answer to a probe.
type health struct {
	Status  string  `json:"status"`
	State   string  `json:"state"`
	Session string  `json:"session,omitempty"`
	Server  string  `json:"server,omitempty"`
	Timeout float64 `json:"timeout_seconds"`
	Lease   float64 `json:"lease_seconds"`
	Why     string  `json:"why,omitempty"`
}

// healthOf returns the answer to a probe at now: one for /live if live is true, otherwise one for
// readiness.
func healthOf(s zklock.SessionStatus, live bool, now time.Time) health {
	h := health{
		State:   s.State.String(),
		Server:  s.Server,
		Timeout: s.Timeout.Seconds(),
		Lease:   max(0, s.SafeUntil.Sub(now)).Seconds(),
	}
	if s.ID != 0 {
		h.Session = fmt.Sprintf("0x%x", uint64(s.ID))
	}
	if s.Err != nil {
		h.Why = said(s.Err.Error())
	}
	switch {
	case errors.Is(s.Err, zklock.ErrClosed):
		h.Status = "closed"
	case live:
		h.Status = "live"
	case s.State == session.Connected:
		h.Status = "ready"
	default:
		h.Status = "not ready"
	}
	return h
}
