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

var (
	guards   = []string{"Do", "TryDo", "RDo", "TryRDo", "Once", "Every"} // call a function under a lock
	acquires = []string{"Lock", "TryLock", "RLock", "TryRLock", "Acquire", "TryAcquire", "Campaign"}
	variants = []string{"WithRank", "AtMostOnce"} // return another description
)

func run(pass *analysis.Pass) (any, error) {
	var files []*ast.File
	for _, f := range pass.Files {
		if !strings.HasSuffix(pass.Fset.Position(f.Pos()).Filename, "_test.go") {
			files = append(files, f)
		}
	}
	c := checker{pass}
	for cur := range inspector.New(files).Root().Preorder((*ast.CallExpr)(nil), (*ast.AssignStmt)(nil), (*ast.ExprStmt)(nil)) {
		switch n := cur.Node().(type) {
		case *ast.CallExpr:
			if c.isMethod(n, guards) && len(n.Args) > 0 {
				if fn, ok := n.Args[len(n.Args)-1].(*ast.FuncLit); ok {
					c.outerContext(n, fn)
					c.outlives(fn)
				}
			}
		case *ast.AssignStmt:
			if call := c.acquire(n.Rhs); call != nil && len(n.Lhs) == 3 {
				if isBlank(n.Lhs[1]) {
					c.lostHold(call)
				} else if isBlank(n.Lhs[0]) {
					for outer := range cur.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
						c.lostContext(n, call, outer.Node())
						break
					}
				}
			}
		case *ast.ExprStmt:
			if call := c.acquire([]ast.Expr{n.X}); call != nil {
				c.lostHold(call)
			}
			if call, ok := n.X.(*ast.CallExpr); ok && c.isMethod(call, variants) {
				c.Reportf(call.Pos(), "the result is thrown away: %s changes nothing but what it returns", typeutil.Callee(c.TypesInfo, call).Name())
			}
		}
	}
	return nil, nil
}

type checker struct{ *analysis.Pass }

// isMethod reports whether call is of one of these methods of package zklock.
func (c checker) isMethod(call *ast.CallExpr, names []string) bool {
	f, ok := typeutil.Callee(c.TypesInfo, call).(*types.Func)
	return ok && f.Pkg() != nil && f.Pkg().Path() == locks && f.Signature().Recv() != nil && slices.Contains(names, f.Name())
}

// acquire returns the call that takes a lock, if that is all that there is.
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
	c.Reportf(call.Pos(), "the Hold is thrown away: nothing can unlock this lock before the Client is closed")
}

// context returns the variable, of type context.Context, that e names, or nil.
func (c checker) context(e ast.Expr) *types.Var {
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

// outerContext reports that the function of Do passes a context to a call that does not end with
// the lock.
func (c checker) outerContext(do *ast.CallExpr, fn *ast.FuncLit) {
	name := typeutil.Callee(c.TypesInfo, do).Name()
	o := c.newOrigins(fn)
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if _, ok := n.(*ast.DeferStmt); ok {
			return false // cleans up, perhaps also after a loss
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if c.isMethod(call, guards) {
			return false // has a function, and a report, of its own
		}
		if c.needsNoLock(call) {
			return true
		}
		for _, arg := range call.Args {
			s, ok := o.outside(arg)
			if !ok || o.reportedBefore(arg, s) || s.root == nil && o.derivedFrom(call) != nil {
				continue
			}
			c.Reportf(arg.Pos(), "%s does not end when the lock is lost: "+
				"use the context that %s gives its function", s.text, name)
		}
		return true
	})
}

// endings are what functions are called that may need a context which outlives the lock.
var endings = []string{"Shutdown", "Close", "Rollback", "Log"}

// needsNoLock reports whether a context of its own may be right for a call: to end something, to
// ask about the context, to use the lock itself, or because it can't fail and so is hardly work.
func (c checker) needsNoLock(call *ast.CallExpr) bool {
	f, ok := typeutil.Callee(c.TypesInfo, call).(*types.Func)
	if !ok {
		return false
	}
	results := f.Signature().Results()
	derives := false
	for v := range results.Variables() {
		derives = derives || v.Type().String() == "context.Context"
	}
	if !derives && (results.Len() == 0 || results.At(results.Len()-1).Type().String() != "error") {
		return true
	}
	pkg := ""
	if f.Pkg() != nil {
		pkg = f.Pkg().Path()
	}
	return pkg == locks || strings.HasPrefix(pkg, locks+"/") || pkg == module+"/session" || slices.ContainsFunc(endings, func(s string) bool { return strings.Contains(f.Name(), s) }) ||
		pkg == "context" && slices.Contains([]string{"Cause", "WithoutCancel", "AfterFunc"}, f.Name())
}

// lostContext reports that the context of a lock is thrown away, and the one that Lock was called
// with is used for work.
func (c checker) lostContext(assign *ast.AssignStmt, lock *ast.CallExpr, in ast.Node) {
	from, ok := c.source(lock.Args[0])
	hold, named := assign.Lhs[1].(*ast.Ident)
	if !ok || !named || from.root == nil {
		return
	}
	u := usage{checker: c, from: from, held: c.TypesInfo.ObjectOf(hold), after: assign.End()}
	without := c.withoutLock(in, assign)
	ast.Inspect(in, func(n ast.Node) bool {
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

// watches are the methods of a hold by which work sees its loss.
var watches = []string{"Context", "Err", "Check", "SafeUntil"}

// usage is what a function does with a hold, and with the context that Lock was called with.
type usage struct {
	checker
	from  source
	held  types.Object
	after token.Pos // the end of the statement with Lock

	used     ast.Expr  // the context, as the first work's argument
	watched  bool      // the work looks at the hold itself
	released bool      // in front of what comes
	deferred token.Pos // the end of the last defer, whose calls run when the function returns
}

// isHeld reports whether e is the hold.
func (u *usage) isHeld(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && u.TypesInfo.ObjectOf(id) == u.held
}

// see takes one node into account; they come in the order of the source code.
func (u *usage) see(n ast.Node) {
	switch n := n.(type) {
	case *ast.DeferStmt:
		u.deferred = n.End()
	case *ast.AssignStmt:
		// Where the hold is kept, somebody else may look at it; so in the cases below.
		u.watched = u.watched || slices.ContainsFunc(n.Rhs, u.isHeld)
	case *ast.CompositeLit:
		u.watched = u.watched || slices.ContainsFunc(n.Elts, u.isHeld)
	case *ast.KeyValueExpr:
		u.watched = u.watched || u.isHeld(n.Value)
	case *ast.SelectorExpr:
		if u.isHeld(n.X) {
			u.watched = u.watched || slices.Contains(watches, n.Sel.Name)
			u.released = u.released || n.Sel.Name == "Unlock" && n.Pos() > u.deferred
		}
	case *ast.CallExpr:
		u.call(n)
		u.watched = u.watched || slices.ContainsFunc(n.Args, u.isHeld)
	case *ast.ReturnStmt:
		u.watched = u.watched || slices.ContainsFunc(n.Results, u.isHeld)
	}
}

// call notes the first work with the context. A deferred call is none: it may run after the
// release.
func (u *usage) call(n *ast.CallExpr) {
	if u.used != nil || u.released || n.Pos() < max(u.after, u.deferred) || u.needsNoLock(n) {
		return
	}
	for _, arg := range n.Args {
		if from, ok := u.source(arg); ok && from == u.from && arg.Pos() > u.after {
			u.used = arg
			return
		}
	}
}

// outlives reports a goroutine of Do's function that may go on without the lock.
func (c checker) outlives(fn *ast.FuncLit) {
	waits := false
	var begun []*ast.CallExpr
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.UnaryExpr:
			waits = waits || n.Op.String() == "<-"
		case *ast.RangeStmt:
			_, channel := c.TypesInfo.TypeOf(n.X).Underlying().(*types.Chan)
			waits = waits || channel
		case *ast.SelectStmt:
			waits = true
		case *ast.SelectorExpr:
			waits = waits || strings.HasPrefix(n.Sel.Name, "Wait")
		case *ast.GoStmt:
			ast.Inspect(n, func(m ast.Node) bool {
				if call, ok := m.(*ast.CallExpr); ok && len(call.Args) == 1 {
					f, ok := typeutil.Callee(c.TypesInfo, call).(*types.Func)
					if v := c.context(call.Args[0]); ok && f.FullName() == "context.WithoutCancel" && v != nil && v.Pos() >= fn.Pos() && v.Pos() < fn.End() {
						begun = append(begun, call)
					}
				}
				return true
			})
		}
		return true
	})
	if waits {
		return
	}
	for _, call := range begun {
		c.Reportf(call.Pos(), "this goroutine may go on after the lock is released or lost: wait for it, or let its context end")
	}
}
