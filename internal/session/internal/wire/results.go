package wire

import "iter"

// MultiHeader is the length, in bytes, of the header before each operation or result of a multi,
// and behind the last one.
const MultiHeader = 9

// AppendMultiHeader appends the header of an operation, or with done that behind the last one.
func AppendMultiHeader(b []byte, op int32, done bool) []byte {
	return AppendInt(AppendBool(AppendInt(b, op), done), -1)
}

// Result is one operation's part of the reply to a multi or multiRead.
type Result struct {
	// OpError: an operation was refused; OpCreate2: a container's create, answered with a Stat
	Op   int32
	Code int32
	Raw  string // with its header; shares the frame's memory
}

// Results yields the results in the reply to a request of, OpMulti or OpMultiRead. If d.Err is set,
// the reply is incomplete.
func (d *Decoder) Results(of int32) iter.Seq[Result] {
	return func(yield func(Result) bool) {
		for {
			from := d.B
			op, done, code := d.Int(), d.bool(), d.Int()
			if done || d.Err != nil {
				return
			}
			switch {
			case op == OpError:
				code = d.Int() // the same as in the header
			case of == OpMultiRead:
				if d.skipNames(); op != OpGetChildren {
					d.Err = ErrShort
				}
			case op == OpCreate:
				d.takeString()
			case op == OpCreate2:
				d.takeString()
				d.take(StatLen)
			case op == OpSetData:
				d.take(StatLen)
			case op != OpDelete && op != OpCheck:
				d.Err = ErrShort
			}
			if d.Err != nil || !yield(Result{op, code, from[:len(from)-len(d.B)]}) {
				return
			}
		}
	}
}

// Verdict returns the code of a reply: the header's. If a multi's header says OK, it is "session
// expired" or "session moved" if any operation has that code (for a multi servers say it only
// there), else the first code other than OK and RuntimeInconsistency.
func Verdict(op int32, header int32, body string) int32 {
	if op != OpMulti || header != CodeOK {
		return header
	}
	d, first := Decoder{B: body}, CodeOK
	for r := range d.Results(op) {
		if r.Code == CodeSessionExpired || r.Code == CodeSessionMoved {
			return r.Code
		}
		if first == CodeOK || first == CodeInconsistent && r.Code != CodeOK {
			first = r.Code
		}
	}
	if d.Err != nil {
		return CodeUnreadable // the call that waits for the reply reports it
	}
	return first
}
