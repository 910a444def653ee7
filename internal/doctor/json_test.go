package doctor_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/doctor"
)

func TestAReportsJSONHasItsDurationsInSeconds(t *testing.T) {
	got, err := json.Marshal(doctor.Report{
		Asked:  10 * time.Second,
		Offset: &doctor.Offset{Ahead: -1500 * time.Millisecond, Error: time.Millisecond},
		Servers: []doctor.Server{{
			Addr:       "zk1:2181",
			Tick:       2 * time.Second,
			MinTimeout: 4 * time.Second,
			MaxTimeout: 40 * time.Second,
			Read:       500 * time.Microsecond,
			Write:      2 * time.Millisecond,
		}},
	})
	require.NoError(t, err)
	var have struct {
		Asked   float64            `json:"asked_timeout_seconds"`
		Clock   map[string]float64 `json:"leader_clock"`
		Servers []map[string]any   `json:"servers"`
	}
	require.NoError(t, json.Unmarshal(got, &have))
	require.EqualValues(t, 10, have.Asked)
	require.Equal(t, map[string]float64{"ahead_seconds": -1.5, "error_seconds": 0.001}, have.Clock)
	require.Equal(t, map[string]any{
		"addr":                "zk1:2181",
		"tick_seconds":        2.0,
		"min_timeout_seconds": 4.0,
		"max_timeout_seconds": 40.0,
		"packet_limit_taken":  false,
		"read_seconds":        0.0005,
		"write_seconds":       0.002,
	}, have.Servers[0])
}
