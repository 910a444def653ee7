package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// source is where a context comes from. Two equal sources in one function are the same context.
type source struct {
	text string     // names it, as the source code does
	root *types.Var // the variable that it belongs to; nil for context.Background() and TODO()
}

// ofVariable reports whether the context is a variable's, and not context.Background().
func (s source) ofVariable() bool { return s.root != nil }

// isContext reports whether e is a context.Context.
func (c checker) isContext(e ast.Expr) bool {
	t := c.TypesInfo.TypeOf(e)
	return t != nil && t.String() == "context.Context"
}

// source returns where the context e comes from:
//   - a variable;
//   - a struct's field, such as s.ctx;
//   - a method of a variable, such as r.Context();
//   - context.Background() and context.TODO().
//
// It returns false if e is not a context, is one of this library, or comes from any other place.
func (c checker) source(e ast.Expr) (source, bool) {
	e = ast.Unparen(e)
	if !c.isContext(e) {
		return source{}, false
	}
	call, isCall := e.(*ast.CallExpr)
	if !isCall {
		root := c.root(e)
		return source{types.ExprString(e), root}, root != nil
	}
	f, ok := typeutil.Callee(c.TypesInfo, call).(*types.Func)
	if !ok || len(call.Args) > 0 || f.Pkg() == nil || ours(f.Pkg()) {
		return source{}, false
	}
	if f.Signature().Recv() == nil {
		name := f.FullName()
		return source{text: name + "()"}, name == "context.Background" || name == "context.TODO"
	}
	method, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || f.Name() != "Context" {
		return source{}, false
	}
	root := c.root(method.X)
	return source{types.ExprString(e), root}, root != nil
}

// ours reports whether a package is of this library. Its contexts may be those of a lock.
func ours(pkg *types.Package) bool {
	return pkg.Path() == module || strings.HasPrefix(pkg.Path(), module+"/")
}

// root returns the variable to which the names, fields and pointers of e lead, or nil.
func (c checker) root(e ast.Expr) *types.Var {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		v, _ := c.TypesInfo.ObjectOf(e).(*types.Var)
		return v
	case *ast.StarExpr:
		return c.root(e.X)
	case *ast.SelectorExpr:
		if c.TypesInfo.Selections[e] == nil { // another package's variable
			return c.root(e.Sel)
		}
		return c.root(e.X)
	}
	return nil
}

// origins are what the variables of one function, and their fields, are set to. By them it is
// decided which arguments are certainly not the lock's context.
//
// A derived context, as context.WithTimeout returns it, is reported once. If it derives from a
// variable, the call that derives it is reported. If it derives from context.Background(), that
// call may be right, since a cleanup needs such a context: the work that uses it is reported.
type origins struct {
	checker
	fn  *ast.FuncLit
	set map[*types.Var][]setting
}

// setting is one assignment to a variable or to a field of it.
type setting struct {
	to    string   // as the source code names it
	value ast.Expr // nil if unknown, such as the second result of a call
}

// newOrigins reads the assignments of fn. The parameters and named results of fn, and of the
// functions in it, count as set to an unknown value.
func (c checker) newOrigins(fn *ast.FuncLit) origins {
	o := origins{c, fn, map[*types.Var][]setting{}}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			o.assign(expressions(n.Names), nil)
		case *ast.CaseClause: // switch ctx := v.(type) { case context.Context: …
			if v, ok := c.TypesInfo.Implicits[n].(*types.Var); ok {
				o.set[v] = append(o.set[v], setting{to: v.Name()})
			}
		case *ast.AssignStmt:
			o.assign(n.Lhs, n.Rhs)
		case *ast.ValueSpec:
			o.assign(expressions(n.Names), n.Values)
		case *ast.RangeStmt:
			o.assign([]ast.Expr{n.Key, n.Value}, nil)
		case *ast.UnaryExpr:
			if n.Op == token.AND { // it may be set through the pointer
				o.assign([]ast.Expr{n.X}, nil)
			}
		}
		return true
	})
	return o
}

// expressions returns names as expressions.
func expressions(names []*ast.Ident) []ast.Expr {
	all := make([]ast.Expr, len(names))
	for i, name := range names {
		all[i] = name
	}
	return all
}

// assign notes the assignments of the values from to the expressions to. from is nil if the values
// are unknown.
func (o origins) assign(to, from []ast.Expr) {
	for i, e := range to {
		v := o.root(e)
		if v == nil {
			continue
		}
		var value ast.Expr
		switch {
		case len(from) == len(to):
			value = from[i]
		case len(from) == 1 && i == 0: // ctx, cancel := context.WithTimeout(…)
			value = from[0]
		}
		o.set[v] = append(o.set[v], setting{strings.TrimPrefix(types.ExprString(e), "*"), value})
	}
}

// settings returns the assignments that change s. Setting s to a context that is derived from s
// does not count.
func (o origins) settings(s source) (all []setting) {
	for _, one := range o.set[s.root] {
		parent := o.derivedFrom(one.value)
		if parent != nil && types.ExprString(parent) == s.text {
			continue
		}
		if s.text == one.to || strings.HasPrefix(s.text, one.to+".") {
			all = append(all, one)
		}
	}
	return all
}

// unprotected returns where arg, an argument of call, comes from. It returns false unless arg is
// certainly not the lock's context, and is to be reported here: see origins.
func (o origins) unprotected(call *ast.CallExpr, arg ast.Expr) (source, bool) {
	s, ok := o.outside(arg)
	switch {
	case !ok:
		return source{}, false
	case s.ofVariable():
		return s, !o.derives(arg) // otherwise the deriving call in arg is reported
	default:
		return s, !o.derives(call) // otherwise the work is reported
	}
}

// outside returns where e comes from if that is certainly not the lock's context. That is a
// context from outside the function, or one like context.Background(). A variable of the function
// is followed if it is set once. A parameter or named result is not followed: it counts as set to
// something unknown. outside returns false in all other cases. It also returns false for a variable
// that is set to a context derived from an outer variable: unprotected reports the call that
// derives it.
func (o origins) outside(e ast.Expr) (source, bool) {
	e = ast.Unparen(e)
	if parent := o.derivedFrom(e); parent != nil {
		return o.outside(parent)
	}
	s, ok := o.source(e)
	if !ok || !s.ofVariable() {
		return s, ok
	}
	set := o.settings(s)
	isOuter := s.root.Pos() < o.fn.Pos() || s.root.Pos() > o.fn.End()
	if isOuter {
		return s, len(set) == 0
	}
	_, isName := e.(*ast.Ident)
	if !isName || len(set) != 1 || set[0].value == nil {
		return source{}, false
	}
	value := set[0].value
	s, ok = o.outside(value)
	if !ok || s.ofVariable() && o.derives(value) {
		return source{}, false
	}
	return s, true
}

// derives reports whether e is a call that derives a context.
func (o origins) derives(e ast.Expr) bool { return o.derivedFrom(e) != nil }

// derivedFrom returns the parent of a context that a function of package context derives, or nil.
func (o origins) derivedFrom(e ast.Expr) ast.Expr {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return nil
	}
	f, ok := typeutil.Callee(o.TypesInfo, call).(*types.Func)
	if !ok || f.Pkg() == nil || f.Pkg().Path() != "context" ||
		!strings.HasPrefix(f.Name(), "With") || f.Name() == "WithoutCancel" {
		return nil
	}
	return call.Args[0]
}
