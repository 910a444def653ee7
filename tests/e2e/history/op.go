package history

// Load names a workload.
type Load string

// The workloads.
const (
	Mutex         Load = "mutex"
	RW            Load = "rw"
	Semaphore     Load = "semaphore"
	Multi         Load = "multi"
	Election      Load = "election"
	Fenced        Load = "fenced register"
	MultiRegister Load = "Multi register"
	Unfenced      Load = "unfenced register"
	// mutexes of many paths, several of which a client takes at the same moment
	Keys Load = "keys"
)

// Loads are all workloads.
var Loads = []Load{Mutex, RW, Semaphore, Multi, Election, Fenced, MultiRegister, Unfenced, Keys}

// Kind says what an Op is.
type Kind string

// Kinds of operations.
const (
	Hold   Kind = "hold"   // one acquisition, from the call of Lock to its end
	Failed Kind = "failed" // a call of Lock that returned an error; nothing was held
	Check  Kind = "check"  // Hold.Check that returned nil
	Leader Kind = "leader" // Election.Leader; Token is 0 for ErrNoLeader
	Write  Kind = "write"  // to a register
	Read   Kind = "read"   // of a register
)

// Outcome is how a hold ended, or whether a write was made.
type Outcome string

// Outcomes.
const (
	OK      Outcome = "ok"      // released: Unlock returned nil; written
	Lost    Outcome = "lost"    // the hold was lost: the ensemble has deleted its znode, or will
	Unknown Outcome = "unknown" // no answer: the call may take effect at any later time, or never
	Refused Outcome = "refused" // no effect
)

// Op is one record. Which fields it has depends on its kind.
type Op struct {
	Load   Load     `json:"load"`
	Kind   Kind     `json:"kind"`
	ID     int      `json:"id"` // of a hold, unique in the history; of a check, that of its hold
	Client int      `json:"client"`
	Worker string   `json:"worker"`
	Paths  []string `json:"paths"` // the locks, or the register

	Call   Stamp `json:"call"`
	Return Stamp `json:"return"` // of a hold: when Lock had returned
	Token  int64 `json:"token,omitempty"`

	Shared  bool `json:"shared,omitempty"`  // a read lock
	Permits int  `json:"permits,omitempty"` // of a semaphore

	// Of a hold. Alive is the latest instant before a call of Context.Err that returned nil, Sure
	// before one of Err that did. Safe is the greatest SafeUntil that was seen.
	Alive Stamp `json:"alive,omitempty"`
	Sure  Stamp `json:"sure,omitempty"`
	Safe  Stamp `json:"safe,omitempty"`

	// Stall and Resumed begin and end the latest interval in which the holder's process did not run
	// for long enough to matter for its lease. A goroutine that reads the clock every millisecond
	// measures it.
	Stall   Stamp `json:"stall,omitempty"`
	Resumed Stamp `json:"resumed,omitempty"`

	// The call of Unlock, and its return; Forever when the deletion went on in the background.
	Release  Stamp `json:"release,omitempty"`
	Released Stamp `json:"released,omitempty"`

	// Of a write or read.
	Value string `json:"value,omitempty"`
	Prev  string `json:"prev,omitempty"` // what the writer had read
	Seq   int    `json:"seq,omitempty"`  // of a store's write: its number in the order of the writes

	Outcome Outcome `json:"outcome,omitempty"`
	Err     string  `json:"err,omitempty"`
}

// Stop is a time for which a client's process was stopped.
type Stop struct {
	Client   int
	From, To Stamp
}

// History is what happened in one round. It is complete when it is returned.
type History struct {
	Size  int // of the semaphores
	Ops   []Op
	Stops []Stop
}
