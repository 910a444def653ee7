//go:build unix

package main

import (
	"encoding/json"
	"syscall"

	"github.com/zklock/locker/internal/session"
)

// # What zklock and its guard tell each other
//
// Each is one JSON value on a line of a pipe. zklock sends orders, and the guard reports what
// happens to the command that it was ordered to start. If the pipe of the orders ends without an
// "end", zklock has died.

// order is what zklock sends. One of its fields is set.
type order struct {
	// Session is zklock's ZooKeeper session from now on.
	Session *session.Key `json:"session,omitempty"`

	// Until is the time, in nanoseconds by bootTime, at which to end the command.
	Until int64 `json:"until,omitempty"`

	// Command is to be started now.
	Command *commandLine `json:"command,omitempty"`

	// End says that nothing is left to do.
	End bool `json:"end,omitempty"`
}

// commandLine is a command to start. Its texts need not be UTF-8, as a JSON string must.
type commandLine struct {
	File string   `json:"-"`
	Args []string `json:"-"`
	Env  []string `json:"-"`

	// Foreground puts the command's process group into the foreground of the terminal.
	Foreground bool `json:"-"`
}

// encodedCommand is a commandLine in JSON.
type encodedCommand struct {
	File       []byte   `json:"file"`
	Args       [][]byte `json:"args"`
	Env        [][]byte `json:"env"`
	Foreground bool     `json:"foreground"`
}

// MarshalJSON implements json.Marshaler.
func (c commandLine) MarshalJSON() ([]byte, error) {
	return json.Marshal(encodedCommand{[]byte(c.File), toBytes(c.Args), toBytes(c.Env),
		c.Foreground})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *commandLine) UnmarshalJSON(text []byte) error {
	var e encodedCommand
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	*c = commandLine{string(e.File), toStrings(e.Args), toStrings(e.Env), e.Foreground}
	return nil
}

func toBytes(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i, text := range texts {
		all[i] = []byte(text)
	}
	return all
}

func toStrings(texts [][]byte) []string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = string(text)
	}
	return all
}

// event is what the guard reports of the command.
type event struct {
	Kind eventKind `json:"kind"`

	PID    int                `json:"pid,omitempty"`    // of commandStarted
	Errno  syscall.Errno      `json:"errno,omitempty"`  // of commandRefused
	Signal syscall.Signal     `json:"signal,omitempty"` // of commandStopped
	Status syscall.WaitStatus `json:"status,omitempty"` // of commandEnded
}

type eventKind string

const (
	// commandStarted says that the first process runs. It leads its own process group.
	commandStarted eventKind = "started"
	// commandRefused says that the kernel could not start it.
	commandRefused eventKind = "refused"
	// commandLate says that it was not started, because the time of the last "until" had passed.
	commandLate eventKind = "late"
	// commandStopped says that a signal has stopped the first process.
	commandStopped eventKind = "stopped"
	// commandEnded says that the first process has ended.
	commandEnded eventKind = "ended"
	// groupGone says that no process of the group is left. It is the last event.
	groupGone eventKind = "gone"
)
