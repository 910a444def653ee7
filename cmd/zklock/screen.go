package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// key is what a person pressed.
type key int

const (
	keyOther key = iota
	keyQuit
	keyUp
	keyDown
	keyEnter
	keyBack
)

// screen is a terminal of which we use the whole; close restores it.
type screen struct {
	in, out       *os.File
	old           *term.State
	keys          chan key
	width, height int
}

// Switch to the terminal's alternate screen without a cursor; and back.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

func openScreen(in, out *os.File) (*screen, error) {
	old, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	s := &screen{in: in, out: out, old: old, keys: make(chan key)}
	fmt.Fprint(out, enterScreen)
	s.measure()
	go s.read()
	return s, nil
}

// close restores the terminal.
func (s *screen) close() {
	fmt.Fprint(s.out, leaveScreen)
	_ = term.Restore(int(s.in.Fd()), s.old) // it fails after a hang-up, when there is no one to see it
}

func (s *screen) measure() {
	var err error
	if s.width, s.height, err = term.GetSize(int(s.out.Fd())); err != nil || s.width <= 0 || s.height <= 0 {
		s.width, s.height = 80, 24
	}
}

// draw shows a frame.
func (s *screen) draw(lines []string) {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	fmt.Fprint(s.out, b.String())
}

// read reads keys. It ends with the terminal, or with the process: a read from a terminal cannot be cancelled.
func (s *screen) read() {
	buf := make([]byte, 64)
	for {
		n, err := s.in.Read(buf)
		if err != nil || n == 0 {
			s.keys <- keyQuit
			return
		}
		for _, k := range parseKeys(buf[:n]) {
			s.keys <- k
		}
	}
}

// parseKeys parses one read; the bytes of an arrow key arrive together.
func parseKeys(b []byte) (keys []key) {
	for len(b) > 0 {
		n, k := 1, keyOther
		switch {
		case b[0] == 0x1b && len(b) >= 3 && (b[1] == '[' || b[1] == 'O'):
			n = 3
			switch b[2] {
			case 'A':
				k = keyUp
			case 'B':
				k = keyDown
			case 'D':
				k = keyBack
			case 'C':
				k = keyEnter
			}
		case b[0] == 'q', b[0] == 'Q', b[0] == 3, b[0] == 4: // Ctrl-C, Ctrl-D
			k = keyQuit
		case b[0] == 'k':
			k = keyUp
		case b[0] == 'j':
			k = keyDown
		case b[0] == '\r', b[0] == '\n':
			k = keyEnter
		case b[0] == 0x1b, b[0] == 0x7f, b[0] == 8, b[0] == 'h':
			k = keyBack
		}
		b = b[n:]
		keys = append(keys, k)
	}
	return keys
}
