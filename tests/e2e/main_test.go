package e2e_test

import (
	"os"
	"testing"

	"github.com/zklock/locker/tests/e2e/chaos"
)

func TestMain(m *testing.M) {
	if code, is := chaos.Child(); is {
		os.Exit(code)
	}
	os.Exit(m.Run())
}
