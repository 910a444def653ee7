package zklock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zklock/locker/internal/text"
)

// ErrDone says that the job of a Once was done already: see DoneError.
var ErrDone = errors.New("zklock: done already")

// DoneError is why Once.Do or Every did not call the function: the run that was found. It matches ErrDone and ErrNotRun.
type DoneError struct {
	Run
	Next time.Time // of Every: when it may run again, by the ensemble's clock; else zero
	// Of Every: how far Began is ahead of the ensemble's clock, which has been set back since; else 0. If that is
	// longer than the job can wait: Once.Forget.
	Ahead time.Duration
}

func (e *DoneError) Error() string {
	msg := ErrDone.Error() + ": "
	if e.Key != "" {
		msg += text.Foreign(e.Key) + " "
	}
	msg += fmt.Sprintf("by %s, begun %s, ", e.By(), e.Began.UTC().Format(time.RFC3339))
	if e.Ahead > 0 {
		msg += fmt.Sprintf("%v ahead of the ensemble's clock, ", e.Ahead.Round(time.Millisecond))
	}
	msg += fmt.Sprintf("token %d", e.Token)
	if !e.Next.IsZero() {
		msg += ", not again before " + e.Next.UTC().Format(time.RFC3339)
	}
	return msg
}

// Is reports whether target is ErrDone or ErrNotRun.
func (e *DoneError) Is(target error) bool { return target == ErrDone || target == ErrNotRun }

// Run is one run of a Once, as its record has it.
type Run struct {
	Key   string    // of Do; "" for Every
	Owner string    // WithOwner, cut to 64 characters
	Host  string    // cut likewise
	PID   int       // of the process
	Token Token     // of the hold under which it ran
	Began time.Time // by the ensemble's clock, just before the function was called
}

// By names the client that ran it, escaped for a terminal.
func (r Run) By() string { return signature(r.Owner, r.Host, r.PID) }

// done returns a DoneError when key is among the runs.
func done(runs []Run, key string) error {
	if i := slices.IndexFunc(runs, func(r Run) bool { return r.Key == key }); i >= 0 {
		return &DoneError{Run: runs[i]}
	}
	return nil
}

// doneSince returns a DoneError when the latest run has begun less than d before now, or after it.
func doneSince(runs []Run, now time.Time, d time.Duration) error {
	if len(runs) == 0 {
		return nil
	}
	last := slices.MaxFunc(runs, func(a, b Run) int { return a.Began.Compare(b.Began) })
	if now.Sub(last.Began) >= d {
		return nil
	}
	return &DoneError{last, last.Began.Add(d), max(last.Began.Sub(now), 0)}
}

const (
	maxKey        = 128 // bytes
	maxWho        = 64  // characters of owner and host
	maxRemembered = 1000
	remembered    = 100     // by default
	maxRecord     = 1 << 20 // bytes: more than any record that Once writes; a longer one was written by another program
)

// WithAtMostOnce has a Once record a run before it is made: it is not made again, even if it fails or crashes. For Once
// only. Default: a run is recorded when it has succeeded.
func WithAtMostOnce() LockOption {
	return LockOption{func(o *lockOptions) error { o.atMostOnce, o.onceOnly = true, true; return nil }}
}

// WithRemembered is how many runs the record of a Once keeps, the last n; a key that is no longer among them would run
// again. All clients that run the job should agree. For Once only. From 1 to 1,000, which takes up to 0.9 MB; default 100.
func WithRemembered(n int) LockOption {
	return LockOption{unless(n < 1 || n > maxRemembered, func(o *lockOptions) { o.remember, o.onceOnly = n, true },
		"%d runs remembered: not between 1 and %d", n, maxRemembered)}
}

func checkKey(key string) error {
	if key == "" || len(key) > maxKey || text.Clean(key) != key {
		return fmt.Errorf("%w: key \"%s\": is not 1 to %d bytes of printable UTF-8", ErrOption, text.Foreign(key), maxKey)
	}
	return nil
}

type recordJSON struct {
	Format string    `json:"format"`
	Runs   []runJSON `json:"runs"`
}

type runJSON struct {
	Key   string `json:"key,omitempty"`
	Owner string `json:"owner,omitempty"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Token Token  `json:"token"`
	Began int64  `json:"began_ms"` // since 1970
}

// recordFormat tells a record from other JSON.
const recordFormat = "zklock-once-1"

func encodeRuns(runs []Run) []byte {
	all := recordJSON{recordFormat, make([]runJSON, len(runs))}
	for i, r := range runs {
		all.Runs[i] = runJSON{r.Key, r.Owner, r.Host, r.PID, r.Token, r.Began.UnixMilli()}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // which would make a key six times as long
	if err := enc.Encode(all); err != nil {
		panic(err) // integers and strings always marshal
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// parseRuns reads a record. Empty data are an empty record. Anything else is ErrConflict.
func parseRuns(path string, data []byte) ([]Run, error) {
	if len(data) == 0 {
		return nil, nil
	}
	var all recordJSON
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err := dec.Decode(&all)
	switch {
	case err != nil:
	case all.Format != recordFormat:
		err = fmt.Errorf("its format is not %s", recordFormat)
	case dec.More():
		err = errors.New("something follows it")
	case len(data) > maxRecord || len(all.Runs) > maxRemembered:
		err = fmt.Errorf("it has more than %d runs or %d bytes", maxRemembered, maxRecord)
	}
	runs := make([]Run, 0, len(all.Runs)+1)
	for i, r := range all.Runs {
		if err == nil && (r.Token <= 0 || r.Began <= 0 || r.Key != "" && checkKey(r.Key) != nil) {
			err = fmt.Errorf("its run %d is not valid", i+1)
		}
		runs = append(runs, Run{r.Key, r.Owner, r.Host, r.PID, r.Token, time.UnixMilli(r.Began)})
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s is not a record of runs, and is not overwritten: %v: \"%s\"", ErrConflict, path, err, text.Foreign(string(data)))
	}
	return runs, nil
}
