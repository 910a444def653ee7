package pipeline

// Touch is what one operation of a write does to one znode.
type Touch struct {
	Path   string // as the caller named it
	Effect Effect
}

// Effect is what an operation does to the session's ephemeral znodes.
type Effect uint8

const (
	NoEffect      Effect = iota
	Makes                // an ephemeral one
	MakesNumbered        // an ephemeral, sequential one
	MakesForNow          // an ephemeral one, which the same transaction deletes
	Deletes
)

// contender reports whether the operation makes an ephemeral znode.
func (t Touch) contender() bool { return t.Stays() || t.Effect == MakesForNow }

// Stays reports whether the operation makes an ephemeral znode that outlasts the transaction.
func (t Touch) Stays() bool { return t.Effect == Makes || t.Effect == MakesNumbered }
