// Zklockvet finds work that a lock of package zklock does not protect:
//
//	go install github.com/zklock/locker/zklockvet@latest
//	go vet -vettool=$(which zklockvet) ./...
//
// It says nothing where it is not certain. Test files are left out.
package main

import "golang.org/x/tools/go/analysis/unitchecker"

func main() { unitchecker.Main(analyzer) }
