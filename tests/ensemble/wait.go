package ensemble

import (
	"fmt"
	"testing"
	"time"
)

// pollEvery is short against a tick and long against a four-letter word.
const pollEvery = 20 * time.Millisecond

// Until calls check until it returns nil, at most for the given time, and fails the test otherwise:
// with what was waited for and the last error. It blocks; check is called from the test's goroutine
// and must itself be bounded.
func Until(tb testing.TB, atMost time.Duration, what string, check func() error) {
	tb.Helper()
	if err := poll(atMost, what, check); err != nil {
		tb.Fatal(err)
	}
}

func poll(atMost time.Duration, what string, check func() error) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for deadline := time.Now().Add(atMost); ; <-ticker.C {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("ensemble: waited %v for %s: %w", atMost, what, err)
		}
	}
}
