//go:build !unix

package ensemble

import "syscall"

// No process can be stopped here: sending one of these fails, and so does the test that needs it.
const (
	stopSignal     = syscall.Signal(-1)
	continueSignal = syscall.Signal(-2)
)
