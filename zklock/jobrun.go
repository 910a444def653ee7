package zklock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/text"
)

// JobRun is one run of a Job, as its record has it.
type JobRun struct {
	Key   string    // of Once; "" for Every
	Owner string    // WithOwner, cut to 64 characters
	Host  string    // cut likewise
	PID   int       // of the process
	Token Token     // of the hold under which it ran
	Began time.Time // by the ensemble's clock, just before the function was called
	Mine  bool      // it was made by the call that returns it
}

// String names the key, the client and the time, escaped for a terminal.
func (r JobRun) String() string {
	if r == (JobRun{}) {
		return "no run"
	}
	s := fmt.Sprintf("by %s, begun %s, token %d", contender.Signature(r.Owner, r.Host, r.PID),
		r.Began.UTC().Format(time.RFC3339), r.Token)
	if r.Key != "" {
		s = text.Foreign(r.Key) + " " + s
	}
	return s
}

func checkKey(key string) error {
	if key == "" || len(key) > maxKey || text.Clean(key) != key {
		return fmt.Errorf("%w: key \"%s\": is not 1 to %d bytes of printable UTF-8", ErrInvalid,
			text.Foreign(key), maxKey)
	}
	return nil
}

// recorded is a run as it was read.
type recorded struct {
	JobRun
	data     []byte
	version  int32
	underWay bool // at most once: it has begun, and is not known to have ended
}

type runJSON struct {
	Key   string `json:"key,omitempty"`
	Owner string `json:"owner,omitempty"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Token Token  `json:"token"`
	Took  int64  `json:"took_ms"` // from the run's beginning to the znode's last change

	UnderWay bool `json:"under_way,omitempty"`
}

func (r runJSON) encode() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // which would make a key six times as long
	if err := enc.Encode(r); err != nil {
		panic(err) // integers and strings always marshal
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// parseRun reads the run in the znode node. It returns ErrConflict if data are not exactly as a Job
// writes them.
func parseRun(node string, data []byte, stat zk.Stat) (recorded, error) {
	var r runJSON
	err := json.Unmarshal(data, &r)
	switch {
	case err != nil:
	case !bytes.Equal(r.encode(), data):
		err = errors.New("it is written otherwise")
	case r.Host == "" || r.PID <= 0 || r.Token <= 0 || r.Took < 0 || r.Took > stat.Mtime ||
		r.Key != "" && checkKey(r.Key) != nil:
		err = errors.New("its values are out of range")
	}
	if err != nil {
		return recorded{},
			fmt.Errorf("%w: %s is not a run of a job, and is left as it is: %v: \"%s\"",
				ErrConflict, node, err, text.Foreign(string(data)))
	}
	began := time.UnixMilli(stat.Mtime - r.Took)
	return recorded{JobRun{r.Key, r.Owner, r.Host, r.PID, r.Token, began, false}, data,
		stat.Version, r.UnderWay}, nil
}
