package sessionfile

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// localFileSystems are those on which flock excludes all processes of the machine, and no process
// of another one has the file: by the magic numbers of statfs(2).
var localFileSystems = map[uint32]string{
	unix.EXT4_SUPER_MAGIC:      "ext4", // and ext2, ext3
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.F2FS_SUPER_MAGIC:      "f2fs",
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.RAMFS_MAGIC:           "ramfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	0x2fc12fc1:                 "zfs",
	0xca451a4e:                 "bcachefs",
}

func checkFileSystem(f *os.File) error {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	magic := uint32(s.Type)
	if localFileSystems[magic] == "" {
		const rule = "is on a file system (magic number %#x) that is not known to lock files for " +
			"this machine alone: use a local disk or tmpfs"
		return fmt.Errorf(rule, magic)
	}
	return nil
}

// bootID returns what differs each time that a system starts, and from system to system.
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("finding the system's boot id: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
