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

// ReleaseRequest asks a holder to let go of its lock: see Client.Ask and Hold.Asked. Another client wrote its text: escape
// it before you show it in a terminal or on a page.
type ReleaseRequest struct {
	By  string    // host:pid of the client that asked; "" if it uses another library
	Why string    // the reason that it gave; may be ""
	At  time.Time // when, by the ensemble's clock
}

const (
	revoke = "__REVOKE__" // the data that Curator's Revoker sets on a contender's znode
	maxWhy = 4 << 10      // bytes of the reason that Ask gives
)

// releaseWish is a request in the identity that a contender's znode has as its data.
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
// that uses this library receives the request from Hold.Asked and a hook, and decides; one that uses Curator, from its
// revocation listener; any other client does not notice it. Queue shows the request as long as the contender is in line. A
// contender that waits receives it when it holds. A later request replaces it.
//
// Nil: its znode has the request. ErrNotHeld: no contender has that token any more. zk.ErrNoAuth: its znode may not be read
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
		if !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) { // else it changed in between
			return failed("ask", path, err)
		}
	}
}

// wished returns a contender's data with the request added.
func wished(n session.Node, why string) []byte {
	var id identity
	if json.Unmarshal(n.Data, &id) != nil || id.Host == "" {
		return []byte(revoke)
	}
	id.Asked = &releaseWish{By: hostname() + ":" + strconv.Itoa(os.Getpid()), Why: why}
	return id.encode()
}

// Asked returns a channel that receives the latest request to let go, from Client.Ask, zklock ask or Curator's Revoker. The
// hold goes on until it is unlocked, or lost. It is never closed: wait for the end of Context, too. Each hold has one.
//
// A request arrives 0.3 s after the hold's beginning at the earliest, when its znode is watched, and only if the client may
// read that znode. With WithLocalHandoff the process's present hold receives it, and the process gives the znode up when
// that hold has been unlocked. A Proclaim at the same time may overwrite the request.
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

// Break removes the contender with token t from the queue of path, whichever client owns it: mostly a holder that hangs.
// Its znode is deleted only if it still has that token. A holder that uses this library loses its hold at once
// (ErrNodeDeleted), but its work is not stopped: only the token and Hold.Multi protect against that.
//
// Nil: it was removed. ErrNotHeld: no contender has that token. Other errors as for Queue; after one that matches
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
		case errors.Is(err, zk.ErrNoNode): // it has left, or was replaced by a Downgrade
			gone = true
			continue
		case gone && errors.Is(err, ErrNotHeld):
			err = nil
		}
		return failed("break", path, err)
	}
}

// breakSteps is how many contenders Break and Ask read before they look for t among them.
const breakSteps = 1000

// find returns the line of dir, and the name of the contender with token t. A Downgrade replaces a writer's znode by a
// reader's that has the token in its name: if a writer has gone since the list, find lists again.
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

// findOnce is find with one list. downgraded: a writer has gone since, and may have been replaced by a reader with token t.
func (c *Client) findOnce(ctx context.Context, dir string, t Token) (l lineOf, found string, downgraded bool, err error) {
	if l, err = c.readLine(ctx, dir); err != nil {
		return l, "", false, err
	}
	if t <= 0 { // the token that Queue shows for a znode that may not be read
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
