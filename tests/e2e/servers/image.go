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

	"github.com/moby/moby/client"
)

// Official is the image that is used where it is present or can be pulled; where not, LocalImage is
// built.
const (
	Official   = "zookeeper:3.9"
	LocalImage = "zklock/zookeeper:local"
)

const (
	pingBound  = 10 * time.Second // for the engine to answer
	pullBound  = 90 * time.Second
	buildBound = 5 * time.Minute
	stepBound  = time.Minute // for one request to the engine
)

// ErrNoDocker says that there is no engine to run containers with.
var ErrNoDocker = errors.New("no Docker engine here")

// engine returns a client of this machine's Docker engine.
func engine(ctx context.Context) (*client.Client, error) {
	c, err := client.New(client.FromEnv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDocker, err)
	}
	if !strings.HasPrefix(c.DaemonHost(), "unix:") {
		return nil,
			errors.Join(fmt.Errorf("%w: %s is not on this machine, so its ports are not",
				ErrNoDocker, c.DaemonHost()), c.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, pingBound)
	defer cancel()
	if _, err := c.Ping(ctx, client.PingOptions{}); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrNoDocker, err), c.Close())
	}
	return c, nil
}

// Image returns an image of ZooKeeper that is present: the official one, pulled if need be, else
// the local one, built if need be. ErrNoDocker: there is no engine.
func Image(ctx context.Context) (name string, err error) {
	c, err := engine(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if _, err := c.ImageInspect(ctx, Official); err == nil {
		return Official, nil
	}
	notPulled := pull(ctx, c)
	if notPulled == nil {
		return Official, nil
	}
	if _, err := c.ImageInspect(ctx, LocalImage); err == nil {
		return LocalImage, nil
	}
	if err := build(ctx); err != nil {
		return "",
			fmt.Errorf("%s can't be pulled (%w), and %s can't be built: %w", Official, notPulled,
				LocalImage, err)
	}
	return LocalImage, nil
}

func pull(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, pullBound)
	defer cancel()
	answer, err := c.ImagePull(ctx, Official, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	return errors.Join(answer.Wait(ctx), answer.Close())
}

func build(ctx context.Context) error {
	top, err := Top()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, buildBound)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(top, "testdata", "image", "build.sh"),
		LocalImage).CombinedOutput()
	if err != nil {
		return fmt.Errorf("testdata/image/build.sh: %w: %s", err, out)
	}
	return nil
}

// Top returns the root of the checkout, seen from the working directory.
func Top() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "testdata", "image", "build.sh")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "",
				fmt.Errorf("no testdata/image/build.sh above %s: run this inside the checkout", dir)
		}
	}
}
