package locktest

import (
	"crypto/md5"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fipsChild is set in the environment of a process that InFIPSMode starts.
const fipsChild = "ZKLOCK_TEST_FIPS"

// InFIPSMode reports whether FIPS 140-only mode is in force, so that the rest of the test can run.
// If not, it runs the test once more in a process of its own in that mode, and fails if the test
// fails there. It skips the test where the toolchain has no such mode.
func InFIPSMode(t *testing.T) bool {
	t.Helper()
	_, err := md5.New().Write(nil)
	switch {
	case err != nil:
		return true
	case os.Getenv(fipsChild) != "":
		t.Skip("this toolchain has no FIPS 140-only mode")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	mode := strings.TrimPrefix(os.Getenv("GODEBUG")+",fips140=only", ",")
	cmd.Env = append(os.Environ(), fipsChild+"=1", "GODEBUG="+mode)
	said, err := cmd.CombinedOutput()
	text := string(said)
	// "FIPS 140-3 mode is not supported on …", "is incompatible with …": crypto/internal/fips140
	// panics
	if strings.Contains(text, "FIPS 140-3 mode is") ||
		strings.Contains(text, "--- SKIP: "+t.Name()) {
		t.Skipf("no FIPS 140-only mode here: %s", text)
	}
	require.NoError(t, err, "in FIPS 140-only mode: %s", text)
	require.Contains(t, text, "--- PASS: "+t.Name()+" ", "in FIPS 140-only mode")
	return false
}
