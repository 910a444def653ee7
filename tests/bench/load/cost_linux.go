package load

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/zklock/locker/tests/bench/stats"
)

// cost returns what this process has used since it began.
func cost() (stats.Cost, error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return stats.Cost{}, err
	}
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	calls, err := readsAndWrites()
	return stats.Cost{
		CPU:         time.Duration(used.Utime.Nano() + used.Stime.Nano()),
		Allocations: int64(heap.Mallocs),
		SystemCalls: calls,
	}, err
}

// readsAndWrites returns how many system calls of this process have read or written. Source:
// proc(5).
func readsAndWrites() (int64, error) {
	const file = "/proc/self/io"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var readBytes, writtenBytes, reads, writes int64
	_, err = fmt.Sscanf(string(text), "rchar: %d\nwchar: %d\nsyscr: %d\nsyscw: %d\n",
		&readBytes, &writtenBytes, &reads, &writes)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return reads + writes, nil
}
