package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// span is a part of the source code.
type span struct{ from, to token.Pos }

func (s span) has(n ast.Node) bool { return s.from <= n.Pos() && n.End() <= s.to }

// branches finds the parts of a function that run without the lock, because there the error of
// taking it is not nil.
type branches struct {
	checker
	err   types.Object // the error of taking the lock
	until token.Pos    // where err is set again
	found []span
}

// withoutLock returns the parts of in that run without the lock that assign takes.
func (c checker) withoutLock(in ast.Node, assign *ast.AssignStmt) []span {
	id, ok := assign.Lhs[2].(*ast.Ident)
	if !ok || id.Name == "_" {
		return nil
	}
	b := &branches{checker: c, err: c.TypesInfo.ObjectOf(id)}
	b.until = b.setAfter(in, assign)
	ast.Inspect(in, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			b.list(n.List)
		case *ast.CaseClause:
			b.list(n.Body)
		case *ast.CommClause:
			b.list(n.Body)
		case *ast.IfStmt:
			b.choice(n)
		case *ast.SwitchStmt:
			b.cases(n)
		}
		return true
	})
	return b.found
}

// setAfter returns where err is set for the first time after assign, or the end of in.
func (b *branches) setAfter(in ast.Node, assign *ast.AssignStmt) token.Pos {
	first := in.End()
	ast.Inspect(in, func(n ast.Node) bool {
		again, ok := n.(*ast.AssignStmt)
		if !ok || again.Pos() <= assign.Pos() || again.Pos() >= first {
			return true
		}
		if slices.ContainsFunc(again.Lhs, b.isErr) {
			first = again.Pos()
		}
		return true
	})
	return first
}

// isErr reports whether e is err.
func (b *branches) isErr(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && b.TypesInfo.ObjectOf(id) == b.err
}

func (b *branches) add(n ast.Node) { b.found = append(b.found, span{n.Pos(), n.End()}) }

// list finds the statements after an if err == nil that ends by leaving.
func (b *branches) list(all []ast.Stmt) {
	for i, s := range all {
		held, ok := s.(*ast.IfStmt)
		if !ok || !b.succeeded(held.Cond) || held.Else != nil || !leaves(held.Body.List) {
			continue
		}
		if rest := all[i+1:]; len(rest) > 0 {
			b.found = append(b.found, span{rest[0].Pos(), rest[len(rest)-1].End()})
		}
		return
	}
}

// leaves reports whether a list of statements ends by leaving the function, or the loop.
func leaves(all []ast.Stmt) bool {
	if len(all) == 0 {
		return false
	}
	switch all[len(all)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

// choice finds the branch of an if that runs without the lock.
func (b *branches) choice(n *ast.IfStmt) {
	switch {
	case b.succeeded(n.Cond):
		if n.Else != nil {
			b.add(n.Else)
		}
	case b.failed(n.Cond):
		b.add(n.Body)
		if n.Else != nil && !b.isNil(n.Cond, token.NEQ) {
			b.add(n.Else) // there err is nil or another error
		}
	}
}

// cases finds the clauses of a switch that run without the lock: those of an error, and all that
// come after the clause of err == nil.
func (b *branches) cases(n *ast.SwitchStmt) {
	isSuccess, isFailure := b.caseTests(n)
	if n.Pos() > b.until || isSuccess == nil {
		return
	}
	var otherwise *ast.CaseClause // default, which runs only if no other clause does
	succeeded := false            // a clause before has err == nil
	for _, s := range n.Body.List {
		clause := s.(*ast.CaseClause)
		if clause.List == nil {
			otherwise = clause
			continue
		}
		notFailure := func(e ast.Expr) bool { return !isFailure(e) }
		if succeeded || !slices.ContainsFunc(clause.List, notFailure) {
			b.add(clause)
		}
		succeeded = succeeded || slices.ContainsFunc(clause.List, isSuccess)
	}
	if succeeded && otherwise != nil {
		b.add(otherwise)
	}
}

// caseTests returns two functions for the expressions of a switch's clauses: whether one stands for
// err == nil, and whether one stands for an error. It returns nils if the switch is not about err.
func (b *branches) caseTests(n *ast.SwitchStmt) (isSuccess, isFailure func(ast.Expr) bool) {
	if n.Tag == nil { // switch { case err == nil: …
		return b.succeeded, b.failed
	}
	tag, ok := n.Tag.(*ast.Ident)
	if !ok || b.TypesInfo.ObjectOf(tag) != b.err {
		return nil, nil
	}
	// switch err { case nil: …
	return b.none, func(e ast.Expr) bool { return !b.none(e) }
}

// succeeded reports whether cond is err == nil, before err is set again.
func (b *branches) succeeded(cond ast.Expr) bool {
	return cond.Pos() < b.until && b.isNil(cond, token.EQL)
}

// failed reports whether cond is about an error: it mentions err, and is not err == nil.
func (b *branches) failed(cond ast.Expr) bool {
	mentioned := false
	ast.Inspect(cond, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && b.isErr(e) {
			mentioned = true
		}
		return true
	})
	return mentioned && !b.isNil(cond, token.EQL)
}

// isNil reports whether cond compares err with nil by op.
func (b *branches) isNil(cond ast.Expr, op token.Token) bool {
	compared, ok := ast.Unparen(cond).(*ast.BinaryExpr)
	if !ok || compared.Op != op {
		return false
	}
	x, y := ast.Unparen(compared.X), ast.Unparen(compared.Y)
	return b.isErr(x) && b.none(y) || b.isErr(y) && b.none(x)
}

// none reports whether e is the value nil.
func (b *branches) none(e ast.Expr) bool { return b.TypesInfo.Types[e].IsNil() }
