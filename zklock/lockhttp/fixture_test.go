package lockhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"

	"github.com/zklock/locker/zklock"
)

// byKey makes a lock's path from the request's query.
func byKey(r *http.Request) (string, error) {
	return zklock.KeyPath("/locks/approve", r.URL.Query().Get("key")), nil
}

// ask has a handler serve one request, and returns the answer.
func ask(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func post(ctx context.Context, key string) *http.Request {
	return httptest.NewRequestWithContext(ctx, http.MethodPost, "/approve?key="+key, nil)
}

// ok is a handler that has nothing to do.
var ok = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
