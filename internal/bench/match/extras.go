package match

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zklock/locker/internal/bench/load"
	"github.com/zklock/locker/internal/bench/servers"
	"github.com/zklock/locker/internal/bench/stats"
)

// wires counts all requests and replies, once: counts hardly vary.
func (m *run) wires(ctx context.Context) {
	for _, s := range scaled(Settings, m.Small) {
		if !slices.Contains(wired, s.Name) || (m.Brief || m.Small) && !slices.Contains(ends, s.Name) {
			continue
		}
		m.Log("on the wire: %s", s.Title)
		for _, c := range m.taking {
			if !s.has(c) || ctx.Err() != nil {
				continue
			}
			ops, w, err := m.race(ctx, s, c, 0, servers.Way{Tap: true}, m.Warm, m.Run)
			f := stats.Of(ops, w.Window, c.Lock)
			if err == nil && f.Cycles == 0 {
				err = errors.New("no cycle came to an end in time")
			}
			if err != nil {
				m.failed(ctx, c, "on the wire, "+s.Title, err)
				continue
			}
			m.r.Wire = append(m.r.Wire, Wire{s.Name, c.Name, f.Cycles, w.Traffic})
		}
	}
}

// lineUps measures the memory of waiters, and the cost of a release when the releasing client does not queue again.
func (m *run) lineUps(ctx context.Context) {
	lines := lineUps
	switch {
	case m.Brief:
		lines = []Line{lines[0], lines[2], lines[3]}
	case m.Small:
		lines = []Line{{1, 1}, {2, 4}}
	}
	for _, l := range lines {
		m.Log("a line of %d", l.Clients*l.Workers)
		for _, c := range m.taking {
			if !c.Lock || c.Mode || ctx.Err() != nil {
				continue
			}
			one, err := m.lineUp(ctx, c, l)
			if err != nil {
				m.failed(ctx, c, fmt.Sprintf("a line of %d", l.Clients*l.Workers), err)
				continue
			}
			m.r.Lines = append(m.r.Lines, one)
		}
	}
}

// lineUp lets a fresh process wait in line: growth of a process that has used memory before would not show.
func (m *run) lineUp(ctx context.Context, c Contestant, l Line) (one LineUp, err error) {
	ctx, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	ch, path, err := m.fresh(ctx, c, "park", servers.Way{Tap: true}, Timeout, fmt.Sprintf(" %d %d", l.Clients, l.Workers))
	if err != nil {
		return one, err
	}
	defer ch.end()
	before := ch.resident()
	n := l.Clients * l.Workers
	if _, err := ch.expect(ctx, "held"); err != nil {
		return one, err
	}
	if err := m.awaitLine(ctx, c, path+"/0", n); err != nil {
		return one, err
	}
	one = LineUp{Contestant: c.Name, Waiters: n - 1, Resident: -1, Releases: n - 1}
	if after := ch.resident(); before >= 0 && after >= 0 {
		one.Resident = after - before
	}
	if err := ch.send("measure"); err != nil {
		return one, err
	}
	a, err := ch.expect(ctx, "memory")
	if err != nil || len(a.numbers) == 0 {
		return one, errors.Join(err)
	}
	one.Heap = a.numbers[0]
	start := m.traffic(c, a)
	if err := ch.send("drain"); err != nil {
		return one, err
	}
	ops, done, err := ch.ops(ctx)
	if err != nil {
		return one, err
	}
	one.Traffic = m.traffic(c, done).Less(start)
	f := stats.Of(ops, stats.Window{Start: 0, End: 1 << 62}, true)
	if one.HandOver = f.HandOver; f.Overlaps > 0 || len(ops) != n {
		return one, fmt.Errorf("%d of %d had the lock, %d times two at once", len(ops), n, f.Overlaps)
	}
	return one, nil
}

// settled is how long all contenders wait before the measurement: a contestant's work for a long wait is done by then.
func (m *run) settled() time.Duration {
	if m.Small {
		return 10 * time.Millisecond
	}
	return time.Second
}

// awaitLine returns when n have been in line for a while.
func (m *run) awaitLine(ctx context.Context, c Contestant, path string, n int) error {
	for {
		have, err := m.site.InLine(ctx, c.Kind, path)
		if err != nil {
			return err
		}
		wait := 50 * time.Millisecond
		if have >= n {
			wait = m.settled()
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d are in line: %w", have, n, ctx.Err())
		}
		if have >= n {
			return nil
		}
	}
}

// fresh starts a new process of a contestant's with one command and waits until its sessions are open.
func (m *run) fresh(ctx context.Context, c Contestant, word string, way servers.Way, timeout time.Duration, more string) (ch *child, path string, err error) {
	addrs, err := m.site.Addrs(c.Kind, way)
	if err != nil {
		return nil, "", err
	}
	if ch, err = start(c, m.tools); err != nil {
		return nil, "", err
	}
	path = m.path()
	if err = ch.send("%s %s 0 %d %s%s", word, strings.Join(addrs, ","), timeout.Milliseconds(), path, more); err == nil {
		_, err = ch.expect(ctx, "opened")
	}
	if err != nil {
		ch.kill()
		ch.end()
		return nil, "", err
	}
	return ch, path, nil
}

// kills measures how long a killed holder keeps the lock: all contestants at once, since all they do is wait.
func (m *run) kills(ctx context.Context) {
	for round := range m.Rounds {
		m.Log("killing holders, %d of %d", round+1, m.Rounds)
		kills, errs := make([]Kill, len(m.taking)), make([]error, len(m.taking))
		var all sync.WaitGroup
		for i, c := range m.taking {
			if c.Lock && !c.Mode && ctx.Err() == nil {
				all.Go(func() { kills[i], errs[i] = m.kill(ctx, c, fmt.Sprint(m.r.Began.Unix(), "-", round)) })
			}
		}
		all.Wait()
		for i, c := range m.taking {
			switch {
			case errs[i] != nil:
				m.failed(ctx, c, "killing its holder", errs[i])
			case kills[i].Took > 0:
				m.r.Kills = append(m.r.Kills, kills[i])
			}
		}
	}
}

// kill kills one holder.
func (m *run) kill(ctx context.Context, c Contestant, id string) (k Kill, err error) {
	ctx, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	addrs, err := m.site.Addrs(c.Kind, servers.Way{})
	if err != nil {
		return k, err
	}
	path := "/kill-" + id + "-" + c.Name
	var two [2]*child
	for i := range two {
		if two[i], err = start(c, m.tools); err != nil {
			return k, err
		}
		defer two[i].end()
		defer two[i].kill()
		if err := two[i].send("hold %s 0 %d %s", strings.Join(addrs, ","), m.Expiry.Milliseconds(), path); err != nil {
			return k, err
		}
		if _, err := two[i].expect(ctx, "opened"); err != nil {
			return k, err
		}
		if i == 0 {
			if _, err := two[0].expect(ctx, "held"); err != nil {
				return k, err
			}
		}
	}
	if err := m.awaitLine(ctx, c, path+"/0", 2); err != nil {
		return k, err
	}
	at := load.Now()
	two[0].kill()
	held, err := two[1].expect(ctx, "held")
	if err != nil || len(held.numbers) == 0 {
		return k, errors.Join(err)
	}
	return Kill{c.Name, m.Expiry, time.Duration(held.numbers[0] - at)}, nil
}
