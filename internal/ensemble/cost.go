package ensemble

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Zxid returns the latest transaction that the server knows. It blocks for at most 2 s. It may be called concurrently.
func (n *Node) Zxid() (int64, error) {
	text, err := n.srvr("Zxid: ")
	if err != nil {
		return 0, err
	}
	zxid, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("ensemble: srvr of %s: zxid: %w", n.addr, err)
	}
	return zxid, nil
}

// clockTick is the unit of the kernel's counts of processor time, wherever Go runs.
const clockTick = 10 * time.Millisecond

// CPU returns the processor time of the running server so far, from /proc. It may be called concurrently.
func (n *Node) CPU() (time.Duration, error) {
	n.mu.Lock()
	proc := n.proc
	n.mu.Unlock()
	if proc == nil {
		return 0, fmt.Errorf("ensemble: server %d does not run", n.ID)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", proc.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("ensemble: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // after the command's name; from here the third field on
	fields := strings.Fields(rest)
	var ticks int64
	for _, i := range []int{11, 12} { // utime and stime
		if i >= len(fields) {
			return 0, fmt.Errorf("ensemble: /proc/%d/stat has %d fields", proc.cmd.Process.Pid, len(fields))
		}
		t, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("ensemble: /proc/%d/stat: %w", proc.cmd.Process.Pid, err)
		}
		ticks += t
	}
	return time.Duration(ticks) * clockTick, nil
}
