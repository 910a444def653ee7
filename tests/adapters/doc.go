// Package adapters tests package lockfor, and the pages' recipes, inside the libraries that they
// are for. It is a module of its own, so that nobody who uses locks gets those libraries.
package adapters
