//go:build !unix

package ensemble

import "syscall"

// No process can be stopped here: to send one of these fails, and the test that needs it with it.
const (
	stopSignal     = syscall.Signal(-1)
	continueSignal = syscall.Signal(-2)
)
