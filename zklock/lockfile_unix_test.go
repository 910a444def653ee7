//go:build unix

package zklock_test

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks a file, and fails if another process has locked it.
func lockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

func unlockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }
