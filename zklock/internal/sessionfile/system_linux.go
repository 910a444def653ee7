package sessionfile

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// localFileSystems are those on which flock excludes all processes of the machine, no process of
// another machine has the file, and no other file ever has its device and inode while it is open.
// So btrfs is not among them (it gives the device of a deleted subvolume to the next one), nor is
// bcachefs (a snapshot's files have the same device and inode), nor overlay (two mounts of one
// directory lock apart).
var localFileSystems = map[string]bool{
	"ext2": true, "ext3": true, "ext4": true,
	"xfs":   true,
	"f2fs":  true,
	"zfs":   true,
	"tmpfs": true,
}

func checkFileSystem(f *os.File) error {
	name, err := fileSystemOf(f)
	if err != nil {
		return fmt.Errorf("finding its file system: %w", err)
	}
	if !localFileSystems[name] {
		const rule = "is on a file system (%s) that is not known to lock files for this machine " +
			"alone: use ext4, xfs, f2fs, zfs or tmpfs"
		return fmt.Errorf(rule, name)
	}
	return nil
}

// fileSystemOf returns the type of the file system with f. It asks the list of mounts, since the
// number that statfs returns may be that of the file system on the host of a virtual machine.
func fileSystemOf(f *os.File) (string, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return "", os.NewSyscallError("fstat", err)
	}
	device := fmt.Sprintf("%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev))
	const mounts = "/proc/self/mountinfo"
	list, err := os.ReadFile(mounts)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(list)) {
		// "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw" (proc_pid_mountinfo(5))
		mount, source, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) > 2 && fields[2] == device {
			name, _, _ := strings.Cut(source, " ")
			return name, nil
		}
	}
	return "", fmt.Errorf("device %s is not in %s", device, mounts)
}

// bootID returns what differs each time that a system starts, and from system to system.
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("finding the system's boot id: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
