package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ErrNoCompose says that docker compose is not installed, as a plug-in or as a program.
var ErrNoCompose = errors.New("no docker compose here")

// Compose brings up docker-compose.yml, of the image that Image returns and on ports that are free,
// and returns the addresses for Env and a function that takes it down. It does not wait until the
// servers serve. ErrNoDocker, ErrNoCompose: there is nothing to bring it up with.
func Compose(ctx context.Context) (addrs string, down func() error, err error) {
	image, err := Image(ctx)
	if err != nil {
		return "", nil, err
	}
	command, err := compose(ctx)
	if err != nil {
		return "", nil, err
	}
	top, err := Top()
	if err != nil {
		return "", nil, err
	}
	env := append(os.Environ(), "ZKLOCK_IMAGE="+image)
	var all []string
	for i := range 3 {
		port, err := freePort()
		if err != nil {
			return "", nil, err
		}
		env = append(env, fmt.Sprintf("ZKLOCK_PORT%d=%s", i+1, port))
		all = append(all, "127.0.0.1:"+port)
	}
	project := fmt.Sprintf("zklock-e2e-%d-%d", os.Getpid(), time.Now().UnixNano())
	run := func(args ...string) error {
		ctx, cancel := context.WithTimeout(context.Background(), buildBound)
		defer cancel()
		args = append(append(command[1:len(command):len(command)], "--project-name", project,
			"--file", filepath.Join(top, "docker-compose.yml")), args...)
		cmd := exec.CommandContext(ctx, command[0], args...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", command[0], strings.Join(args, " "), err, out)
		}
		return nil
	}
	down = func() error { return run("down", "--volumes", "--timeout", "0") }
	if err := run("up", "--detach"); err != nil {
		return "", nil, errors.Join(err, down())
	}
	return strings.Join(all, ","), down, nil
}

// compose returns the words that begin a compose command.
func compose(ctx context.Context) ([]string, error) {
	for _, words := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		ctx, cancel := context.WithTimeout(ctx, stepBound)
		err := exec.CommandContext(ctx, words[0],
			append(words[1:len(words):len(words)], "version")...).Run()
		cancel()
		if err == nil {
			return words, nil
		}
	}
	return nil, ErrNoCompose
}
