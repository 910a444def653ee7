package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// traced are the mutants of code that the model of the queue covers: which contender enters, which one it watches, why
// it holds, which znodes it deletes. Their simulated runs are compared with that model as well (internal/simulation,
// follow_test.go).
var traced = []string{
	"expired session goes on",
	"write repeated after a lost reply",
	"older server accepted",
	"watches not set again",
	"no owner check",
	"no sync before the search",
	"order by string",
	"watch on the holder",
	"list not validated",
	"no second look",
	"own znode not watched",
	"predecessor first in the list",
	"order of two connections believed",
	"mark without a hold",
	"held by the mark alone",
	"held without a mark",
	"mark of another transaction believed",
	"watch on a mark left",
	"orphan not deleted",
	"place kept by a cancelled wait",
	"release by prefix",
	"release not repeated",
	"two contenders of a directory in one group",
	"result given to the neighbour",
	"rest of a refused group lost",
	"list in front of a create that went again",
	"who gave up goes again",
	"no sync behind an event",
	"unsent creates are swept",
}

// The table's verdicts on a mutant's runs against the model.
const (
	notTraced = "–"
	departed  = "departs"
	broke     = "fails"
	accepted  = "accepted"
)

// traceArgs are the runs against the model: as many as half a minute has room for.
const traceArgs = "./internal/simulation -run=^TestTheModelAllowsEveryStepOfTheClients$ -follows=200"

// traced reports whether the mutant's runs against the model have shown it.
func (r result) traced() bool { return r.trace == departed || r.trace == broke }

// trace compares the broken code in lab with the model of the queue.
func (m mutant) trace(ctx context.Context, lab string, each time.Duration) (string, error) {
	if !slices.Contains(traced, m.name) {
		return notTraced, nil
	}
	text, err := goTest(ctx, lab, traceArgs, each)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return accepted, nil
	case strings.Contains(text, "departs from the model"), strings.Contains(text, "of the model's step"):
		return departed, nil
	}
	if _, err := failure(text, traceArgs, false); err != nil {
		return "", fmt.Errorf("against the model: %w", err)
	}
	return broke, nil
}
