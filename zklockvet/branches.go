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

// branches finds the parts of a function that run, or may run, without the lock, because there the
// error of taking it is not nil, or may not be. Nothing is reported there.
type branches struct {
	checker
	err   types.Object // the error of taking the lock
	until token.Pos    // where err is set again: from there on it says nothing about the lock
	found []span
}

// withoutLock returns the parts of body that run, or may run, without the lock that assign takes.
func (c checker) withoutLock(body ast.Node, assign *ast.AssignStmt) []span {
	id, ok := assign.Lhs[2].(*ast.Ident)
	if !ok || id.Name == "_" {
		return nil
	}
	b := &branches{checker: c, err: c.TypesInfo.ObjectOf(id)}
	b.until = b.setAfter(body, assign)
	ast.Inspect(body, func(n ast.Node) bool {
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

// setAfter returns where err is set for the first time after assign, or the end of body.
func (b *branches) setAfter(body ast.Node, assign *ast.AssignStmt) token.Pos {
	first := body.End()
	ast.Inspect(body, func(n ast.Node) bool {
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

// list finds the statements after an if err == nil that ends by leaving: there err is not nil.
func (b *branches) list(all []ast.Stmt) {
	for i, s := range all {
		held, ok := s.(*ast.IfStmt)
		if !ok || !b.isSuccess(held.Cond) || held.Else != nil || !leaves(held.Body.List) {
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

// choice finds the branches of an if that run, or may run, without the lock.
func (b *branches) choice(n *ast.IfStmt) {
	switch {
	case b.isSuccess(n.Cond):
		if n.Else != nil {
			b.add(n.Else)
		}
	case b.isFailure(n.Cond):
		b.add(n.Body)
		if n.Else != nil && !b.comparesWithNil(n.Cond, token.NEQ) {
			b.add(n.Else) // if err == ErrBusy, say: there err is nil or another error
		}
	}
}

// cases finds the clauses of a switch that run, or may run, without the lock:
//   - those whose expressions are all about errors;
//   - those after the clause of err == nil, since there err is not nil;
//   - default, wherever it stands, if there is a clause of err == nil.
func (b *branches) cases(n *ast.SwitchStmt) {
	isSuccess, isFailure, ok := b.caseTests(n)
	if !ok || n.Pos() > b.until {
		return
	}
	var byDefault *ast.CaseClause
	afterSuccess := false
	for _, s := range n.Body.List {
		clause := s.(*ast.CaseClause)
		if clause.List == nil {
			byDefault = clause
			continue
		}
		if afterSuccess || all(clause.List, isFailure) {
			b.add(clause)
		}
		if slices.ContainsFunc(clause.List, isSuccess) {
			afterSuccess = true
		}
	}
	if afterSuccess && byDefault != nil {
		b.add(byDefault)
	}
}

// all reports whether is returns true for each expression.
func all(exprs []ast.Expr, is func(ast.Expr) bool) bool {
	for _, e := range exprs {
		if !is(e) {
			return false
		}
	}
	return true
}

// caseTests returns two functions for the expressions of a switch's clauses: whether one stands for
// err == nil, and whether one stands for an error. ok is false if the switch is not about err.
func (b *branches) caseTests(
	n *ast.SwitchStmt,
) (isSuccess, isFailure func(ast.Expr) bool, ok bool) {
	if n.Tag == nil { // switch { case err == nil: …
		return b.isSuccess, b.isFailure, true
	}
	if !b.isErr(n.Tag) {
		return nil, nil, false
	}
	// switch err { case nil: …
	return b.isNil, func(e ast.Expr) bool { return !b.isNil(e) }, true
}

// isSuccess reports whether cond is err == nil, before err is set again.
func (b *branches) isSuccess(cond ast.Expr) bool {
	return cond.Pos() < b.until && b.comparesWithNil(cond, token.EQL)
}

// isFailure reports whether cond is about an error: it mentions err, and is not err == nil.
func (b *branches) isFailure(cond ast.Expr) bool {
	mentioned := false
	ast.Inspect(cond, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && b.isErr(e) {
			mentioned = true
		}
		return true
	})
	return mentioned && !b.comparesWithNil(cond, token.EQL)
}

// comparesWithNil reports whether cond compares err with nil by op.
func (b *branches) comparesWithNil(cond ast.Expr, op token.Token) bool {
	compared, ok := ast.Unparen(cond).(*ast.BinaryExpr)
	if !ok || compared.Op != op {
		return false
	}
	x, y := ast.Unparen(compared.X), ast.Unparen(compared.Y)
	return b.isErr(x) && b.isNil(y) || b.isErr(y) && b.isNil(x)
}

// isNil reports whether e is the value nil.
func (b *branches) isNil(e ast.Expr) bool { return b.TypesInfo.Types[e].IsNil() }
