// Package timeline draws a run of internal/playground as a picture for the documents: when each client waited and held, when its
// znode existed, and what a store accepted.
package timeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Kind says what a span shows.
type Kind string

// Kinds of spans, from the thinnest to the widest.
const (
	Znode   Kind = "znode"
	Waits   Kind = "waits"
	Holds   Kind = "holds"
	Stopped Kind = "stopped"
	Trouble Kind = "trouble"
)

// Span is a period of a run.
type Span struct {
	Lane     string
	Kind     Kind
	From, To time.Duration
}

// Event is an instant of a run.
type Event struct {
	Lane string
	At   time.Duration
	Text string
	Bad  bool // a violation that a token would prevent
}

// Story is one run. Its methods may be called concurrently.
type Story struct {
	Name  string // of its file
	Title string
	Lanes []string

	begin time.Time
	step  time.Duration

	mu     sync.Mutex // guards the fields below
	spans  []Span
	open   map[string]int // by lane and kind: the index in spans of the one that has not ended
	events []Event
	from   time.Duration // the picture's beginning
	end    time.Duration
	closed bool
}

// New begins a story now. Instants are rounded to step, because the order in which one event wakes several goroutines is
// undefined.
func New(name, title string, step time.Duration, lanes ...string) *Story {
	return &Story{Name: name, Title: title, Lanes: lanes, begin: time.Now(), step: step, open: map[string]int{}}
}

// Begin begins a span now; it ends by End, or with the story.
func (s *Story) Begin(lane string, kind Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[lane+string(kind)] = len(s.spans)
	s.spans = append(s.spans, Span{Lane: lane, Kind: kind, From: s.nowLocked()})
}

// End ends a span that Begin began, if it has not ended.
func (s *Story) End(lane string, kind Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.open[lane+string(kind)]; ok {
		s.spans[i].To = s.nowLocked()
		delete(s.open, lane+string(kind))
	}
}

// Tell records an event.
func (s *Story) Tell(lane, format string, args ...any) { s.tell(Event{Lane: lane}, format, args) }

// Warn records a harmful event.
func (s *Story) Warn(lane, format string, args ...any) {
	s.tell(Event{Lane: lane, Bad: true}, format, args)
}

func (s *Story) tell(e Event, format string, args []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.At, e.Text = s.nowLocked(), fmt.Sprintf(format, args...)
	s.events = append(s.events, e)
}

// Close ends the story, and with it its open spans.
func (s *Story) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishLocked()
	s.closed = true
}

// finishLocked ends the open spans and sorts spans and events.
func (s *Story) finishLocked() {
	s.end = s.nowLocked()
	for _, i := range s.open {
		s.spans[i].To = s.end
	}
	clear(s.open)
	slices.SortFunc(s.spans, func(a, b Span) int {
		return cmp.Or(cmp.Compare(slices.Index(s.Lanes, a.Lane), slices.Index(s.Lanes, b.Lane)), cmp.Compare(a.From, b.From), cmp.Compare(a.Kind, b.Kind))
	})
	slices.SortFunc(s.events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(slices.Index(s.Lanes, a.Lane), slices.Index(s.Lanes, b.Lane)), cmp.Compare(a.Text, b.Text))
	})
}

// Latest returns what happened in the last d, as a story that is closed.
func (s *Story) Latest(d time.Duration) *Story {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Story{Name: s.Name, Title: s.Title, Lanes: s.Lanes, begin: s.begin, step: s.step, end: s.end, closed: s.closed, spans: slices.Clone(s.spans), open: maps.Clone(s.open),
		events: slices.Clone(s.events)}
	c.finishLocked()
	if c.from = max(0, c.end-d); c.from > 0 {
		c.spans = slices.DeleteFunc(c.spans, func(span Span) bool { return span.To < c.from })
		for i := range c.spans {
			c.spans[i].From = max(c.spans[i].From, c.from)
		}
		c.events = slices.DeleteFunc(c.events, func(e Event) bool { return e.At < c.from })
	}
	return c
}

// Now returns the time since the story's beginning; after Close, the story's length.
func (s *Story) Now() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nowLocked()
}

// nowLocked is Now.
func (s *Story) nowLocked() time.Duration {
	if s.closed {
		return s.end
	}
	return time.Since(s.begin).Round(s.step)
}
