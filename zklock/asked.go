package zklock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// ReleaseRequest is a wish that a holder let go of its lock: see Client.Ask and Hold.Asked. What it says was
// written by another client; escape it before you show it in a terminal or on a page.
type ReleaseRequest struct {
	By  string    // host:pid of who asked; "" if that was another library's client, which does not say
	Why string    // what it said; may be ""
	At  time.Time // when, by the ensemble's clock
}

const (
	revoke = "__REVOKE__" // what Curator's Revoker sets as the data of the contender that is to let go
	maxWhy = 4 << 10      // bytes of what Ask says
)

// releaseWish is what a contender's znode has beside its identity when it was asked to let go.
type releaseWish struct {
	By  string `json:"by"`
	Why string `json:"why,omitempty"`
}

// releaseRequest returns the request in a contender's data; nil: there is none.
func releaseRequest(data []byte, at time.Time) *ReleaseRequest {
	var id identity
	switch {
	case string(data) == revoke:
		return &ReleaseRequest{At: at}
	case json.Unmarshal(data, &id) != nil || id.Asked == nil:
		return nil
	}
	return &ReleaseRequest{id.Asked.By, id.Asked.Why, at}
}

// Ask asks the contender of path that has token t to let go, and says why, in 4 KB at most. It takes nothing away: a holder
// of this library gets the request by Hold.Asked and a hook, and decides; one of Curator's by its revocation listener; any
// other client does not notice it. Queue shows that the contender was asked, for as long as it stays. One that waits gets
// the request when it holds. To ask again replaces the request.
//
// Nil: its znode has the request. ErrNotHeld: there is no such contender any more. zk.ErrNoAuth: its znode may not be read
// or written. Other errors as for Break. It costs two round trips more than Break.
func (c *Client) Ask(ctx context.Context, path string, t Token, why string) error {
	c.need()
	needContext(ctx)
	if len(why) > maxWhy {
		return failed("ask", path, fmt.Errorf("%w: message of %d bytes: is longer than 4 KB", ErrOption, len(why)))
	}
	for {
		l, name, err := c.find(ctx, path, t)
		if err == nil {
			var n session.Node
			if n, err = recipe.ReadChild(ctx, l.s, path, name); err == nil {
				_, err = l.s.Set(ctx, path+"/"+name, wished(n, why), n.Stat.Version)
			}
		}
		if !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) { // set, or replaced by a Downgrade, in between
			return failed("ask", path, err)
		}
	}
}

// wished returns a contender's data with the request in it.
func wished(n session.Node, why string) []byte {
	var id identity
	if json.Unmarshal(n.Data, &id) != nil || id.Host == "" {
		return []byte(revoke)
	}
	id.Asked = &releaseWish{By: hostname() + ":" + strconv.Itoa(os.Getpid()), Why: why}
	return id.encode()
}

// Asked returns a channel that receives when a client asks this holder to let go, by Client.Ask, zklock ask or Curator's
// Revoker: the latest request, if it has not been received yet. The hold goes on until it is unlocked, or lost. The channel
// is never closed; wait for the end of Context beside it. Each hold has one, and reentrant holds one each.
//
// A hold gets a request 0.3 s after its beginning at the earliest, when its znode is watched, and only if it may read its
// znode. With WithLocalHandoff the hold that has the lock gets it, and the process gives the znode up when that hold has been
// unlocked. A Proclaim that is made at the same time may overwrite the request.
func (h *Hold) Asked() <-chan ReleaseRequest {
	h.need()
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	if h.asked == nil {
		h.asked = make(chan ReleaseRequest, 1)
		if h.a.request != nil {
			h.asked <- *h.a.request
		}
	}
	return h.asked
}

// dataSet is called when another client has set a znode's data. Of two requests the later write counts.
func (a *acquisition) dataSet(data []byte, stat zk.Stat) {
	r := releaseRequest(data, time.UnixMilli(stat.Mtime))
	a.mu.Lock()
	if r == nil || stat.Mzxid <= a.requestZxid {
		a.mu.Unlock()
		return
	}
	a.request, a.requestZxid = r, stat.Mzxid
	over := a.state != held
	for _, h := range a.holds {
		if h.asked == nil {
			continue
		}
		select {
		case <-h.asked:
		default:
		}
		h.asked <- *r // has room: only this function sends, under mu
	}
	a.mu.Unlock()
	if !over {
		a.c.tellAskedToRelease(AskedToReleaseInfo{a.infoNow(), Token(a.ticket.Czxid()), *r})
	}
}

// Break removes the contender with token t from the queue of path, whoever owns it: mostly a holder that hangs. Its znode is
// deleted only if it still has that token. If the holder uses this library, its hold is lost at once (ErrNodeDeleted), but
// work that is under way is not stopped: only the token and Hold.Multi protect against that.
//
// Nil: it was removed. ErrNotHeld: there is no such contender. Other errors as for Queue; after one that matches
// ErrUnknownOutcome it may have been removed. It costs at most half as much as Queue.
func (c *Client) Break(ctx context.Context, path string, t Token) error {
	c.need()
	needContext(ctx)
	for gone := false; ; {
		l, name, err := c.find(ctx, path, t)
		if err == nil {
			err = l.s.Delete(ctx, path+"/"+name, -1) // by full name, which is never used again
		}
		switch {
		case errors.Is(err, zk.ErrNoNode): // it has gone by itself, or a reader is in its place
			gone = true
			continue
		case gone && errors.Is(err, ErrNotHeld):
			err = nil
		}
		return failed("break", path, err)
	}
}

// breakSteps is how many contenders Break and Ask look at before they see whether the one is among them.
const breakSteps = 1000

// find returns the line of dir, and the name of the contender in it that has token t. A writer that has gone since the list may
// have a reader in its place, which says its token in its name: a second list shows it.
func (c *Client) find(ctx context.Context, dir string, t Token) (lineOf, string, error) {
	l, found, downgraded, err := c.findOnce(ctx, dir, t)
	if downgraded && err == nil && found == "" {
		l, found, _, err = c.findOnce(ctx, dir, t)
	}
	if err == nil && found == "" {
		err = fmt.Errorf("%w: nobody in line has the token %d", ErrNotHeld, t)
	}
	return l, found, err
}

// findOnce is find with one list. downgraded: the one with t may have become a reader since.
func (c *Client) findOnce(ctx context.Context, dir string, t Token) (l lineOf, found string, downgraded bool, err error) {
	if l, err = c.readLine(ctx, dir); err != nil {
		return l, "", false, err
	}
	if t <= 0 { // that of a znode that may not be read
		return l, "", false, nil
	}
	for step := range slices.Chunk(l.names, breakSteps) {
		nodes, err := l.s.StatsBelow(ctx, dir, step)
		if err != nil {
			return l, "", false, err
		}
		for i, n := range nodes {
			if n.Err == nil && Token(n.Stat.Czxid) == t {
				return l, step[i], false, nil
			}
			writer, _ := recipe.Parse(step[i])
			downgraded = downgraded || writer.Kind == recipe.Write && errors.Is(n.Err, zk.ErrNoNode)
		}
	}
	return l, claimed(l.names)[t], downgraded, nil
}
