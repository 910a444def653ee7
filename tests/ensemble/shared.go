package ensemble

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared holds the ensembles that the tests of one package use together. Run owns and ends them.
var shared struct {
	mu      sync.Mutex           // guards what follows
	running bool                 // between the beginning and the end of Run
	started map[string]*Ensemble // by configuration
	failed  map[string]error     // what cannot start is tried once
}

// Run runs a package's tests and then ends the ensembles that Shared started for them. A package
// that uses Shared needs:
//
//	func TestMain(m *testing.M) { os.Exit(ensemble.Run(m)) }
//
// It returns the exit code: that of the tests, 1 when the ensembles could not be ended cleanly, or
// 2 when ZKLOCK_TEST_BACKEND has a value that it does not know.
func Run(m *testing.M) int {
	if b := os.Getenv(backendEnv); b != "" && b != "inprocess" {
		fmt.Fprintf(os.Stderr, "%s=%q: is neither empty nor \"inprocess\"\n", backendEnv, b)
		return 2
	}
	shared.mu.Lock()
	shared.running = true
	shared.started, shared.failed = map[string]*Ensemble{}, map[string]error{}
	shared.mu.Unlock()

	code := m.Run()

	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.running = false
	for _, e := range shared.started {
		if err := e.close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// Shared returns an ensemble of one or three nodes that all tests of the package use which ask for
// the same number and options; the first call starts it. Everything that earlier tests broke is
// restored before it returns. Tests keep apart by using paths of their own (Ensemble.Path). It
// fails or skips the test as Start does, and fails it where TestMain does not call Run.
func Shared(tb testing.TB, nodes int, opts ...Option) *Ensemble {
	tb.Helper()
	needProcesses(tb)
	c, err := newConfig(nodes, opts)
	if err != nil {
		tb.Fatal(err)
	}
	if servers := os.Getenv(serversEnv); servers != "" {
		return named(tb, servers, c)
	}
	e, err := sharedFor(c)
	if err != nil {
		tb.Fatal(err)
	}
	e.Restore(tb)
	return e
}

// sharedFor starts an ensemble under the mutex, so that parallel tests start one and not several.
func sharedFor(c config) (*Ensemble, error) {
	key := fmt.Sprintf("%+v", c)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.running {
		return nil, fmt.Errorf("ensemble: Shared needs TestMain to call ensemble.Run")
	}
	if e := shared.started[key]; e != nil {
		return e, nil
	}
	if err := shared.failed[key]; err != nil {
		return nil, err
	}
	e, err := start(c)
	if err != nil {
		shared.failed[key] = err
		return nil, err
	}
	shared.started[key] = e
	return e, nil
}
