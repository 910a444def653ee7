// Command approvals is a service of four instances that approve documents in PostgreSQL, one
// instance at a time for each document. It runs them with the lock, and without it, and counts the
// updates that are lost.
//
//	go run .                                             # in this directory
//	go run . -zk zk1:2181 -db postgres://localhost/test  # on an ensemble and a database of yours
//
// approvals.go is the service. The rest shows it.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

const (
	instances = 4
	updates   = 100 // of each instance
)

// config is the command line.
type config struct {
	zk, db, name string
	document     int64
	lock         bool
}

func main() {
	var c config
	flag.StringVar(&c.zk, "zk", "",
		"the ensemble, `host:port,…`; without it, a server inside this program")
	flag.StringVar(&c.db, "db", "",
		"the database, `postgres://…`, or APPROVALS_DB; without it, a server that is started here")
	flag.StringVar(&c.name, "name", "",
		"be the instance of this name; without it, start four of them")
	flag.Int64Var(&c.document, "document", 1, "what the instance approves")
	flag.BoolVar(&c.lock, "lock", true, "whether the instance takes the lock")
	flag.Parse()
	c.db = cmp.Or(c.db, os.Getenv("APPROVALS_DB"))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	run := show
	if c.name != "" {
		run = instance
	}
	if err := run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "approvals:", err)
		os.Exit(1)
	}
}

// instance is one process of the service. A loop stands for its requests.
func instance(ctx context.Context, c config) error {
	db, err := sql.Open("pgx", c.db)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := create(ctx, db, c.document); err != nil {
		return err
	}
	// no lock, no token
	request := func(id string) error { return update(ctx, db, 0, c.document, id) }
	if c.lock {
		client, err := zklock.Dial(ctx, c.zk)
		if err != nil {
			return err
		}
		defer client.Close()
		request = func(id string) error { return approve(ctx, client, db, c.document, id) }
	}
	for n := range updates {
		if err := request(fmt.Sprint(c.name, "/", n)); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// show starts the instances, first with the lock and then without it, and compares what they have
// written.
func show(ctx context.Context, c config) (err error) {
	if c.zk == "" {
		zoo, err := zktest.Start()
		if err != nil {
			return err
		}
		defer zoo.Close()
		c.zk = zoo.Addr()
	}
	if c.db == "" {
		url, stop, err := startPostgres()
		if err != nil {
			return err
		}
		defer stop()
		c.db = url
	}
	db, err := sql.Open("pgx", c.db)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	defer func() {
		tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_, e := db.ExecContext(tidy, `DROP TABLE documents, approvals`)
		err = errors.Join(err, e)
	}()
	for n, lock := range []bool{true, false} {
		c.document, c.lock = int64(n+1), lock
		made, says, err := c.race(ctx, db)
		if err != nil {
			return err
		}
		with := map[bool]string{true: "with", false: "without"}[lock]
		fmt.Printf("%7s the lock: %d updates, the document says %d, %d lost\n", with, made, says,
			made-says)
		if lock && made != says {
			return errors.New("updates were lost under the lock")
		}
	}
	return nil
}

// race runs the instances, as processes of this program, until all have ended. It returns how many
// updates they have made, and how many the document's row says.
func (c config) race(ctx context.Context, db *sql.DB) (made, says int64, err error) {
	ended := make(chan error, instances)
	for n := range instances {
		cmd := exec.CommandContext(ctx, os.Args[0], "-name", fmt.Sprint("instance-", n+1), "-zk",
			c.zk,
			"-document", fmt.Sprint(c.document), "-lock="+fmt.Sprint(c.lock))
		cmd.Env = append(os.Environ(), "APPROVALS_DB="+c.db)
		cmd.Stderr = os.Stderr
		go func() { ended <- cmd.Run() }() // joined below
	}
	for range instances {
		err = errors.Join(err, <-ended)
	}
	if err != nil {
		return 0, 0, err
	}
	err = db.QueryRowContext(ctx,
		`SELECT (SELECT count(*) FROM approvals WHERE document = d.id), approvals FROM documents d WHERE id = $1`,
		c.document).Scan(&made, &says)
	return made, says, err
}
