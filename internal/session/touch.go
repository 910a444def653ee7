package session

// touch is what one operation of a write does to one znode.
type touch struct {
	path   string // as the caller named it
	effect effect
}

// effect is what an operation does to the session's ephemeral znodes.
type effect uint8

const (
	noEffect      effect = iota
	makes                // an ephemeral one
	makesNumbered        // an ephemeral, sequential one
	makesForNow          // an ephemeral one, which the same transaction deletes
	deletes
)

// contender reports whether the operation makes an ephemeral znode.
func (t touch) contender() bool { return t.stays() || t.effect == makesForNow }

// stays reports whether the operation makes an ephemeral znode that outlasts the transaction.
func (t touch) stays() bool { return t.effect == makes || t.effect == makesNumbered }
