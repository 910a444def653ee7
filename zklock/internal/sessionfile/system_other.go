//go:build !linux && !darwin

package sessionfile

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
)

// errNoBootID says that a file could not be told from one that was written before the system
// started, or on another one.
var errNoBootID = errors.New("is not supported on " + runtime.GOOS + ", which has no boot id")

func identify(*os.File) (fileID, error) { return fileID{}, errNoBootID }
func isThat(fs.FileInfo, fileID) bool   { return false }
func tryLock(*os.File) (bool, error)    { return false, errNoBootID }
func bootID() (string, error)           { return "", errNoBootID }
