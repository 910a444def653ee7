package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

const (
	module = "github.com/zklock/locker"
	locks  = module + "/zklock"
)

var analyzer = &analysis.Analyzer{
	Name: "zklock",
	Doc:  "find work that a lock of package zklock does not protect",
	Run:  run,
}

// guards are the methods that call a function under a lock.
var guards = []string{"Do", "TryDo", "RDo", "TryRDo", "Once", "Every"}

// acquires are the methods that take a lock and return a context and a Hold.
var acquires = []string{
	"Lock", "TryLock", "RLock", "TryRLock", "Acquire", "TryAcquire", "Campaign",
}

// variants are the methods that return another description of a lock or a job.
var variants = []string{"WithRank", "AtMostOnce"}

func run(pass *analysis.Pass) (any, error) {
	c := checker{pass}
	all := inspector.New(withoutTests(pass)).Root()
	nodes := all.Preorder((*ast.CallExpr)(nil), (*ast.AssignStmt)(nil), (*ast.ExprStmt)(nil))
	for cur := range nodes {
		switch n := cur.Node().(type) {
		case *ast.CallExpr:
			c.call(n)
		case *ast.AssignStmt:
			c.assignment(n, cur)
		case *ast.ExprStmt:
			c.statement(n)
		}
	}
	return nil, nil
}

// withoutTests returns the package's files except those with tests.
func withoutTests(pass *analysis.Pass) []*ast.File {
	var files []*ast.File
	for _, f := range pass.Files {
		name := pass.Fset.Position(f.Pos()).Filename
		if !strings.HasSuffix(name, "_test.go") {
			files = append(files, f)
		}
	}
	return files
}

// checker checks one package.
type checker struct{ *analysis.Pass }

// call checks the function that a call of one of guards runs under the lock.
func (c checker) call(call *ast.CallExpr) {
	if !c.isMethod(call, guards) || len(call.Args) == 0 {
		return
	}
	if fn, ok := call.Args[len(call.Args)-1].(*ast.FuncLit); ok {
		c.outerContext(call, fn)
		c.outlives(fn)
	}
}

// assignment checks what becomes of the context and the Hold in ctx, hold, err := m.Lock(…).
func (c checker) assignment(assign *ast.AssignStmt, cur inspector.Cursor) {
	lock := c.acquire(assign.Rhs)
	if lock == nil || len(assign.Lhs) != 3 {
		return
	}
	if isBlank(assign.Lhs[1]) {
		c.lostHold(lock)
		return
	}
	if !isBlank(assign.Lhs[0]) {
		return
	}
	for outer := range cur.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		c.lostContext(assign, lock, outer.Node())
		return // the innermost function is the first
	}
}

// statement checks a call whose results are thrown away.
func (c checker) statement(n *ast.ExprStmt) {
	call, ok := n.X.(*ast.CallExpr)
	if !ok {
		return
	}
	if c.isMethod(call, acquires) {
		c.lostHold(call)
	}
	if c.isMethod(call, variants) {
		c.Reportf(call.Pos(), "the result is thrown away: %s changes nothing but what it returns",
			typeutil.Callee(c.TypesInfo, call).Name())
	}
}

// isMethod reports whether call is of one of these methods of package zklock.
func (c checker) isMethod(call *ast.CallExpr, names []string) bool {
	f, ok := typeutil.Callee(c.TypesInfo, call).(*types.Func)
	if !ok || f.Pkg() == nil || f.Pkg().Path() != locks {
		return false
	}
	return f.Signature().Recv() != nil && slices.Contains(names, f.Name())
}

// acquire returns the call that takes a lock, or nil if rhs is anything else.
func (c checker) acquire(rhs []ast.Expr) *ast.CallExpr {
	if len(rhs) != 1 {
		return nil
	}
	if call, ok := rhs[0].(*ast.CallExpr); ok && c.isMethod(call, acquires) {
		return call
	}
	return nil
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

// lostHold reports a lock that nothing can unlock.
func (c checker) lostHold(call *ast.CallExpr) {
	c.Reportf(call.Pos(), "the Hold is thrown away: "+
		"nothing can unlock this lock before the Client is closed")
}

// contextVariable returns the variable, of type context.Context, that e names, or nil.
func (c checker) contextVariable(e ast.Expr) *types.Var {
	id, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	v, ok := c.TypesInfo.Uses[id].(*types.Var)
	if !ok || v.Type().String() != "context.Context" {
		return nil
	}
	return v
}

// outerContext reports the calls in fn, the function of do, that get a context which does not end
// with the lock.
func (c checker) outerContext(do *ast.CallExpr, fn *ast.FuncLit) {
	name := typeutil.Callee(c.TypesInfo, do).Name()
	o := c.newOrigins(fn)
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if _, ok := n.(*ast.DeferStmt); ok {
			return false // it cleans up, perhaps even after a loss
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if c.isMethod(call, guards) {
			return false // it has its own function, which is checked by itself
		}
		if c.needsNoLock(call) {
			return true
		}
		for _, arg := range call.Args {
			if s, ok := o.unprotected(call, arg); ok {
				c.Reportf(arg.Pos(), "%s does not end when the lock is lost: "+
					"use the context that %s gives its function", s.text, name)
			}
		}
		return true
	})
}

// endings are parts of the names of functions that may need a context which outlives the lock.
var endings = []string{"Shutdown", "Close", "Rollback", "Log"}

// needsNoLock reports whether another context than the lock's may be right for a call. It is for
// functions that
//   - can't fail, and so are hardly work;
//   - use the lock itself;
//   - end something;
//   - ask about the context.
func (c checker) needsNoLock(call *ast.CallExpr) bool {
	f, ok := typeutil.Callee(c.TypesInfo, call).(*types.Func)
	if !ok {
		// a function in a variable, or a builtin or a conversion, which have no signature
		signature, hasOne := c.TypesInfo.TypeOf(call.Fun).Underlying().(*types.Signature)
		return !hasOne || cantFail(signature.Results())
	}
	pkg := ""
	if f.Pkg() != nil {
		pkg = f.Pkg().Path()
	}
	isEnding := func(part string) bool { return strings.Contains(f.Name(), part) }
	switch {
	case cantFail(f.Signature().Results()):
		return true
	case pkg == locks, strings.HasPrefix(pkg, locks+"/"), pkg == module+"/session":
		return true
	case slices.ContainsFunc(endings, isEnding):
		return true
	case pkg == "context":
		return slices.Contains([]string{"Cause", "WithoutCancel", "AfterFunc"}, f.Name())
	}
	return false
}

// cantFail reports whether a function with these results can't fail: the last one is not an error.
// A function that returns a context does not count, since the context is for other work.
func cantFail(results *types.Tuple) bool {
	for v := range results.Variables() {
		if v.Type().String() == "context.Context" {
			return false
		}
	}
	return results.Len() == 0 || results.At(results.Len()-1).Type().String() != "error"
}

// lostContext reports work in the function body that uses the context which Lock was called with,
// since the lock's own context is thrown away.
func (c checker) lostContext(assign *ast.AssignStmt, lock *ast.CallExpr, body ast.Node) {
	from, ok := c.source(lock.Args[0])
	hold, named := assign.Lhs[1].(*ast.Ident)
	// Work that gets context.Background(), as Lock did, may be meant to go on without the lock.
	if !ok || !named || !from.ofVariable() {
		return
	}
	u := usage{checker: c, from: from, held: c.TypesInfo.ObjectOf(hold), after: assign.End()}
	without := c.withoutLock(body, assign)
	ast.Inspect(body, func(n ast.Node) bool {
		if n == nil || slices.ContainsFunc(without, func(s span) bool { return s.has(n) }) {
			return false
		}
		u.see(n)
		return true
	})
	if u.used != nil && !u.watched {
		c.Reportf(u.used.Pos(), "%s does not end when the lock is lost: "+
			"use the context that %s returns", from.text, typeutil.Callee(c.TypesInfo, lock).Name())
	}
}

// checks are the methods of a hold by which work sees its loss.
var checks = []string{"Context", "Err", "Check", "SafeUntil"}

// usage is what a function does with a hold, and with the context that Lock was called with.
type usage struct {
	checker
	from  source
	held  types.Object
	after token.Pos // the end of the statement with Lock

	used     ast.Expr            // the context, as an argument of the first work that gets it
	watched  bool                // the work checks the hold, or other code gets it and may
	harmless map[*ast.Ident]bool // mentions of the hold that don't hand it to other code
	released bool                // the nodes seen so far have released the lock
	deferEnd token.Pos           // the end of the last defer
}

// isHeld reports whether e is the hold.
func (u *usage) isHeld(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && u.TypesInfo.ObjectOf(id) == u.held
}

// inDefer reports whether n is in a defer, and so runs when the function returns.
func (u *usage) inDefer(n ast.Node) bool { return n.Pos() < u.deferEnd }

// see notes what a node does with the hold and the context. The nodes come in the order of the
// source code, and each before those inside it.
func (u *usage) see(n ast.Node) {
	switch n := n.(type) {
	case *ast.DeferStmt:
		u.deferEnd = n.End()
	case *ast.AssignStmt:
		u.allow(n.Lhs...) // setting the variable is no use of the hold in it
	case *ast.BinaryExpr:
		u.allow(n.X, n.Y)
	case *ast.SelectorExpr:
		u.seeSelector(n)
	case *ast.Ident:
		if u.isHeld(n) && !u.harmless[n] {
			u.watched = true
		}
	case *ast.CallExpr:
		u.noteWork(n)
	}
}

// allow notes that these expressions, as far as they are the hold, don't hand it to other code.
func (u *usage) allow(exprs ...ast.Expr) {
	for _, e := range exprs {
		id, ok := e.(*ast.Ident)
		if !ok || !u.isHeld(id) {
			continue
		}
		if u.harmless == nil {
			u.harmless = map[*ast.Ident]bool{}
		}
		u.harmless[id] = true
	}
}

// seeSelector notes which method of the hold is named, if n names one.
func (u *usage) seeSelector(n *ast.SelectorExpr) {
	if !u.isHeld(n.X) {
		return
	}
	u.allow(n.X)
	switch {
	case slices.Contains(checks, n.Sel.Name):
		u.watched = true
	case n.Sel.Name == "Unlock" && !u.inDefer(n):
		u.released = true
	}
}

// noteWork notes the first work that gets the context. A deferred call does not count, since it may
// run after the release.
func (u *usage) noteWork(n *ast.CallExpr) {
	if u.used != nil || u.released || n.Pos() < u.after || u.inDefer(n) {
		return
	}
	if u.needsNoLock(n) {
		return
	}
	for _, arg := range n.Args {
		if from, ok := u.source(arg); ok && from == u.from {
			u.used = arg
			return
		}
	}
}

// outlives reports goroutines of Do's function that may go on without the lock: their context has
// no end, and the function waits for nothing, so not for them either.
func (c checker) outlives(fn *ast.FuncLit) {
	if c.waits(fn.Body) {
		return
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		g, ok := n.(*ast.GoStmt)
		if !ok {
			return true
		}
		c.endless(g, fn)
		return false // endless has seen the goroutines inside it
	})
}

// waits reports whether a function waits for something, which may be its goroutines.
func (c checker) waits(body *ast.BlockStmt) bool {
	waits := false
	ast.Inspect(body, func(n ast.Node) bool {
		if c.isWait(n) {
			waits = true
		}
		return !waits
	})
	return waits
}

// isWait reports whether n waits: it receives from a channel, or calls a method Wait….
func (c checker) isWait(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.UnaryExpr:
		return n.Op == token.ARROW
	case *ast.RangeStmt:
		_, isChannel := c.TypesInfo.TypeOf(n.X).Underlying().(*types.Chan)
		return isChannel
	case *ast.SelectStmt:
		return true
	case *ast.SelectorExpr:
		return strings.HasPrefix(n.Sel.Name, "Wait")
	}
	return false
}

// endless reports calls of context.WithoutCancel in a goroutine that fn starts, if they get a
// context of fn, such as the lock's.
func (c checker) endless(g *ast.GoStmt, fn *ast.FuncLit) {
	ast.Inspect(g, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		f, ok := typeutil.Callee(c.TypesInfo, call).(*types.Func)
		if !ok || f.FullName() != "context.WithoutCancel" {
			return true
		}
		v := c.contextVariable(call.Args[0])
		if v != nil && v.Pos() >= fn.Pos() && v.Pos() < fn.End() {
			c.Reportf(call.Pos(), "this goroutine may go on after the lock is released or lost: "+
				"wait for it, or let its context end")
		}
		return true
	})
}
