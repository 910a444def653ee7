package doctor

import "encoding/json"

// MarshalJSON adds the durations in seconds.
func (r Report) MarshalJSON() ([]byte, error) {
	type plain Report
	return json.Marshal(struct {
		plain
		Asked float64 `json:"asked_timeout_seconds"`
	}{plain(r), r.Asked.Seconds()})
}

// MarshalJSON adds the durations in seconds.
func (s Server) MarshalJSON() ([]byte, error) {
	type plain Server
	return json.Marshal(struct {
		plain
		Tick       float64 `json:"tick_seconds,omitempty"`
		MinTimeout float64 `json:"min_timeout_seconds,omitempty"`
		MaxTimeout float64 `json:"max_timeout_seconds,omitempty"`
		Read       float64 `json:"read_seconds,omitempty"`
		Write      float64 `json:"write_seconds,omitempty"`
	}{
		plain:      plain(s),
		Tick:       s.Tick.Seconds(),
		MinTimeout: s.MinTimeout.Seconds(),
		MaxTimeout: s.MaxTimeout.Seconds(),
		Read:       s.Read.Seconds(),
		Write:      s.Write.Seconds(),
	})
}

// MarshalJSON writes the durations in seconds.
func (o Offset) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Ahead float64 `json:"ahead_seconds"`
		Error float64 `json:"error_seconds"`
	}{o.Ahead.Seconds(), o.Error.Seconds()})
}
