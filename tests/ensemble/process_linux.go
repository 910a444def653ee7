package ensemble

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// dieWithParent makes the kernel kill a server when the test process ends, however it ends (a
// test's timeout panics, and then no cleanup runs).
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when all threads of a process that has got SIGSTOP are stopped: the kernel
// stops them one after the other, behind the signal, and until then they still answer. It waits for
// ten seconds at most.
func awaitStopped(pid int) error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		running, err := runningThread(pid)
		if err != nil || running == "" {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("thread %s is not stopped", running)
		}
	}
}

// runningThread returns a thread of the process that is not stopped; "": all are.
func runningThread(pid int) (string, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return "", err
	}
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return "", err
		}
		// "pid (name) state …", and the name may have anything in it.
		state := bytes.TrimSpace(b[bytes.LastIndexByte(b, ')')+1:])
		if len(state) > 0 && !bytes.ContainsRune([]byte("TtZX"), rune(state[0])) {
			// stopped, or dead
			return filepath.Base(filepath.Dir(stat)), nil
		}
	}
	return "", nil
}
