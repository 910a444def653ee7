package zktest_test

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zktest"
)

// Signs of life cannot be compared in fake time: here both servers run by the same real clock. Each
// session repeats one request, four times per timeout, for twice as long as it would live without.
func TestTheSameRequestsKeepASessionAliveAsOnARealServer(t *testing.T) {
	const tick = 100 * time.Millisecond
	real := ensemble.Start(t, 1, ensemble.WithTick(tick))
	ours := zktest.Run(t, zktest.WithTick(tick), sameVersion(t, real))
	ops := []string{"ping", "exists /", "sync /", "set /nothing", "check /nothing",
		"auth digest u:p", "sasl d=x", "whoami"}
	var mu sync.Mutex // guards fate
	fate := map[string]map[string]string{"zktest": {}, "real": {}}
	var wg sync.WaitGroup
	for name, addr := range map[string]string{"zktest": ours.Addr(), "real": real.Nodes[0].Addr()} {
		for _, op := range ops {
			s := scriptOn(t, func(string, string, time.Duration) (net.Conn, error) {
				return net.Dial("tcp", addr)
			})
			wg.Go(func() {
				err := s.step("a connect t=2000")
				beat := time.NewTicker(500 * time.Millisecond)
				defer beat.Stop()
				for range 8 {
					<-beat.C
					if err == nil {
						err = s.step("a " + op)
					}
				}
				if err == nil {
					err = s.step("a ping")
				}
				if !assert.NoError(t, err, "of the harness") {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				fate[name][op] = "lives"
				if last := s.trace[len(s.trace)-1]; strings.Contains(last, "closed") ||
					strings.Contains(last, "dead") || strings.Contains(last, "cannot send") {
					fate[name][op] = "is over"
				}
			})
		}
	}
	wg.Wait()
	require.Len(t, fate["real"], len(ops))
	assert.Equal(t, fate["real"], fate["zktest"])
	assert.Equal(t, "is over", fate["real"]["auth digest u:p"])
	assert.Equal(t, "lives", fate["real"]["ping"])
}
