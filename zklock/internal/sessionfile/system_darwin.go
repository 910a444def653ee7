package sessionfile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// localFileSystems are those on which flock excludes all processes of the machine, and no process
// of another one has the file.
var localFileSystems = map[string]bool{"apfs": true, "hfs": true}

func checkFileSystem(f *os.File) error {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	name := unix.ByteSliceToString(s.Fstypename[:])
	if !localFileSystems[name] {
		const rule = "is on a file system (%s) that is not known to lock files for this machine " +
			"alone: use a local disk"
		return fmt.Errorf(rule, name)
	}
	return nil
}

// bootID returns what differs each time that a system starts, and from system to system.
func bootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("finding the system's boot id: %w", err)
	}
	return id, nil
}
