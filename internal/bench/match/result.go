package match

import (
	"time"

	"github.com/zklock/locker/internal/bench/servers"
	"github.com/zklock/locker/internal/bench/stats"
)

// Result is everything that was measured.
type Result struct {
	Command     string       `json:"command"`
	Began       time.Time    `json:"began"`
	Took        float64      `json:"took_seconds"`
	Machine     string       `json:"machine"`
	Notes       []string     `json:"notes"`
	Left        []string     `json:"left_out"` // contestants that could not take part, and why
	Rounds      int          `json:"rounds"`
	Seconds     float64      `json:"seconds"` // of each measurement
	Load        [2]float64   `json:"load"`    // of the machine, one minute's average, before the first round and after the last
	Contestants []Contestant `json:"contestants"`
	Settings    []Setting    `json:"settings"`
	Cells       []Cell       `json:"cells"`
	Wire        []Wire       `json:"wire"`
	Lines       []LineUp     `json:"lines"`
	Kills       []Kill       `json:"kills"`
	Failures    []string     `json:"failures"`
}

// Cell is one contestant in one setting and one round.
type Cell struct {
	Setting    string  `json:"setting"`
	Contestant string  `json:"contestant"`
	Round      int     `json:"round"`
	Load       float64 `json:"load"` // of the machine, one minute's average, at its end
	stats.Figures
	Cost servers.Cost `json:"cost"` // to the ensemble; zero where it is not known
}

// Wire is what one contestant sent and got in one setting.
type Wire struct {
	Setting    string `json:"setting"`
	Contestant string `json:"contestant"`
	Cycles     int    `json:"cycles"`
	servers.Traffic
}

// LineUp is a line that was let through.
type LineUp struct {
	Contestant string `json:"contestant"`
	Waiters    int    `json:"waiters"`
	Heap       int64  `json:"heap"`     // of all waiters together, in bytes; −1: not known
	Resident   int64  `json:"resident"` // by how much the process grew; −1: not known
	Releases   int    `json:"releases"`
	servers.Traffic
	HandOver stats.Spread `json:"hand_over"`
}

// Kill is one holder that was killed.
type Kill struct {
	Contestant string        `json:"contestant"`
	Timeout    time.Duration `json:"timeout"` // of its session
	Took       time.Duration `json:"took"`    // until the next one had the lock
}
