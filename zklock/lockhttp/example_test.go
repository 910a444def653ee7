package lockhttp_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockhttp"
	"github.com/zklock/locker/zktest"
)

// One request at a time in the whole fleet, for each workflow; a second one waits for two seconds
// at most.
func ExampleMiddleware() {
	srv, err := zktest.Start() // stands for "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	c, err := zklock.Dial(context.Background(), srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	path := func(r *http.Request) string {
		return zklock.KeyPath("/locks/workflow-approve", r.PathValue("key"))
	}
	approve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hold, _ := zklock.HoldFrom(r.Context(), path(r)) // r.Context() ends when the lock is lost
		fmt.Println("approving", r.PathValue("key"), "under", hold.Token() > 0)
		w.WriteHeader(http.StatusNoContent)
	})
	lock := lockhttp.Middleware(2*time.Second, func(r *http.Request) (lockhttp.Do, error) {
		// The ensemble forgets keys that are not used any more.
		return c.Mutex(path(r), zklock.WithMaxHold(10*time.Second), zklock.WithContainer()).Do, nil
	})

	mux := http.NewServeMux()
	mux.Handle("POST /approvals/{key}", lock(approve))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("POST", "/approvals/47", nil))
	fmt.Println(w.Code)

	// Somebody else has it, anywhere in the fleet:
	_, hold, err := c.Mutex("/locks/workflow-approve/47").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	w = httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("POST", "/approvals/47", nil))
	fmt.Println(w.Code, "Retry-After:", w.Header().Get("Retry-After"))
	if err := hold.Unlock(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// approving 47 under true
	// 204
	// 409 Retry-After: 1
}

// A page of this process's locks, for operators.
func ExampleStatusHandler() {
	srv, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	c, err := zklock.Dial(context.Background(), srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, hold, err := c.Mutex("/locks/rebuild-index").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Unlock()

	mux := http.NewServeMux()
	mux.Handle("/debug/locks", lockhttp.StatusHandler(c))
	web := httptest.NewServer(mux)
	defer web.Close()

	// Programs ask for ?format=json.
	answer, err := http.Get(web.URL + "/debug/locks?path=/locks/rebuild-index")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.StatusCode, strings.Contains(string(page), "Held here: 1"))
	// Output: 200 true
}
