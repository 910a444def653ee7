package session

// verdict is what a reply says of its request: the header's code or, since a multi's header says OK also when one of its
// operations was refused, the first code of theirs that is neither OK nor a mere consequence of another's. "Session
// expired" and "session moved" come before all others: for a multi servers say them nowhere else.
func verdict(op int32, header int32, body []byte) int32 {
	if op != opMulti || header != codeOK {
		return header
	}
	d := decoder{b: body}
	first := codeOK
	for {
		r, done := d.opResult()
		switch {
		case d.err != nil:
			return codeUnreadable // whoever waits for it finds that out
		case done:
			return first
		case r.code == codeSessionExpired, r.code == codeSessionMoved:
			return r.code
		case first == codeOK && r.code != codeInconsistent:
			first = r.code
		}
	}
}

// codeUnreadable is no code of a server's: the reply to a multi can't be read.
const codeUnreadable int32 = -1 << 30
