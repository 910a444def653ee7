// Package rule is what a fault tells the server that it is injected into.
package rule

import "time"

// What goes wrong.
type What int

// Package fault says what each does.
const (
	Nothing What = iota // the zero Fault
	DropReply
	DropRequest
	Delay
	DelayReply
	Hold
	HoldReply
	CloseBefore
	CloseAfter
	ExpireSession
	Answer
	AnswerInside
	Truncate
	Stall
	Garble
	Freeze
	FreezeRequests
	FreezeReplies
	Refuse
)

// Rule is a fault: what goes wrong, for which requests, and how often.
type Rule struct {
	What  What
	Code  int32                     // of Answer and AnswerInside
	Bytes int                       // of Truncate and Stall
	For   time.Duration             // of Delay and DelayReply
	Alter func(reply []byte) []byte // of Garble

	Ops         []int32
	Paths       []string
	Sessions    []int64
	Skip, Times int // Times 0: no limit
}

// Of returns the rule of a fault.Fault. Package fault sets it, so that its users see no rules.
var Of func(fault any) Rule
