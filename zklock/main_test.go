package zklock_test

import (
	"os"
	"testing"

	"github.com/zklock/locker/tests/ensemble"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		os.Exit(playChild(role))
	}
	os.Exit(ensemble.Run(m))
}
