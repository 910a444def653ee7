// The program inside the page: one stage. Its first argument names the story; "notoken" and "noclock" after that select the rules.
// The page's script sets the program's clock (see page.js), so that its time is simulated, as in a test with testing/synctest.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"syscall/js"
	"time"

	"github.com/zklock/locker/internal/playground"
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err) // the browser's console
		os.Exit(1)
	}
}

// run plays a script, and passes its stage to the page as soon as that is ready. It returns only with an error.
func run(name string, rules []string) error {
	script, ok := playground.Find(name)
	if !ok {
		return fmt.Errorf("there is no story %q", name)
	}
	s, err := playground.Open(script, playground.Rules{NoToken: slices.Contains(rules, "notoken"), NoLeaseClock: slices.Contains(rules, "noclock")})
	if err != nil {
		return err
	}
	js.Global().Call("opened", map[string]any{
		"state": js.FuncOf(func(js.Value, []js.Value) any {
			text, err := json.Marshal(s.State())
			if err != nil {
				return err.Error()
			}
			return string(text)
		}),
		"picture": js.FuncOf(func(_ js.Value, args []js.Value) any {
			return s.Picture(time.Duration(args[0].Float() * float64(time.Second)))
		}),
		"act": js.FuncOf(func(_ js.Value, args []js.Value) any {
			if err := s.Act(args[0].String(), args[1].String()); err != nil {
				return err.Error()
			}
			return ""
		}),
	})
	if !script.Acts() {
		if err := s.Play(script); err != nil {
			return err
		}
	}
	select {} // the page discards the program
}
