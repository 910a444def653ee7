package zktest

// Decode hands a frame to the decoder, for the fuzz test. It returns how many paths the request
// names.
func Decode(frame []byte) (paths int, err error) {
	xid, op, body, err := decodeHeader(frame)
	if err != nil {
		return 0, err
	}
	r := decodeRequest(xid, op, body)
	return len(r.allPaths()), r.err
}
