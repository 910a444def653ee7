//go:build !js

// Command page makes the playground: one HTML file that contains the library, the in-process server and the stories as
// WebAssembly. It needs no network and no web server.
//
//	go run ./internal/playground/page -o playground.html
package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/zklock/locker/internal/playground"
)

var (
	//go:embed page.html
	page string
	//go:embed page.css
	css string
	//go:embed page.js
	script string
)

func main() {
	out := flag.String("o", "playground.html", "write the page to this `file`")
	flag.Parse()
	if err := build(*out); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
	fmt.Println("open", *out)
}

// build compiles this package for the browser and puts the page together.
func build(out string) error {
	dir, err := os.MkdirTemp("", "playground-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // of the system's folder for such
	program := filepath.Join(dir, "playground.wasm")
	compile := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "github.com/zklock/locker/internal/playground/page")
	compile.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	if text, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, text)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	glue, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js"))
	if err != nil {
		return err
	}
	packed, err := pack(program)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	err = template.Must(template.New("page").Parse(page)).Execute(&b, map[string]any{
		"CSS": css, "Glue": string(glue), "Script": script, "Program": packed, "Stories": playground.Scripts,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(out, b.Bytes(), 0o644)
}

// pack returns a file compressed and base64-encoded.
func pack(file string) (string, error) {
	plain, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	zip, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	if _, err := zip.Write(plain); err != nil {
		return "", err
	}
	if err := zip.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), nil
}
