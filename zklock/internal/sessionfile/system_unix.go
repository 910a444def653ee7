//go:build linux || darwin

package sessionfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// identify returns the id of f, or why f can't be a session file.
func identify(f *os.File) (fileID, error) {
	info, err := f.Stat()
	if err != nil {
		return fileID{}, err
	}
	if !info.Mode().IsRegular() {
		return fileID{}, errors.New("is not a regular file")
	}
	if err := checkFileSystem(f); err != nil {
		return fileID{}, err
	}
	return idOf(info), nil
}

func idOf(info fs.FileInfo) fileID {
	s := info.Sys().(*syscall.Stat_t)           //nolint:forcetypeassert // it is, on these systems
	return fileID{uint64(s.Dev), uint64(s.Ino)} //nolint:unconvert // the types differ by system
}

// isThat reports whether info is of the file with that id.
func isThat(info fs.FileInfo, id fileID) bool { return idOf(info) == id }

// tryLock locks f, unless somebody else has locked it. The lock lasts until the last descriptor of
// this opening is closed, here and in children that were given it.
func tryLock(f *os.File) (isFree bool, err error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, os.NewSyscallError("flock", err)
		}
	}
}
