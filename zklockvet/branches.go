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
	taken token.Pos    // the end of the statement that sets err to it
	again []span       // where err certainly has been set again, and says nothing about the lock
	found []span
}

// withoutLock returns the parts of body that run, or may run, without the lock that assign takes.
func (c checker) withoutLock(body ast.Node, assign *ast.AssignStmt) []span {
	id, ok := assign.Lhs[2].(*ast.Ident)
	if !ok || id.Name == "_" {
		return nil
	}
	b := &branches{checker: c, err: c.TypesInfo.ObjectOf(id), taken: assign.End()}
	b.findSetAgain(body)
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

// findSetAgain finds the statements that set err after the lock was taken. Each counts up to the
// end of the block around it: code after that block may also run without the statement.
func (b *branches) findSetAgain(body ast.Node) {
	ast.PreorderStack(body, nil, func(n ast.Node, around []ast.Node) bool {
		set, ok := n.(*ast.AssignStmt)
		if ok && set.Pos() >= b.taken && slices.ContainsFunc(set.Lhs, b.isErr) {
			b.again = append(b.again, span{set.End(), innermostBlock(around).End()})
		}
		return true
	})
}

// innermostBlock returns the last block or clause among nested nodes. The else of an if counts as
// a block, since else if may set a variable in its condition's statement.
func innermostBlock(nested []ast.Node) ast.Node {
	for i, n := range slices.Backward(nested) {
		switch n := n.(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
			return n
		case *ast.IfStmt:
			if _, isElse := nested[max(i-1, 0)].(*ast.IfStmt); isElse {
				return n
			}
		}
	}
	return nested[0]
}

// isErr reports whether e is err.
func (b *branches) isErr(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && b.TypesInfo.ObjectOf(id) == b.err
}

// isOfLock reports whether err, as e mentions it, may be the error of taking the lock.
func (b *branches) isOfLock(e ast.Expr) bool {
	isAround := func(s span) bool { return s.has(e) }
	return e.Pos() >= b.taken && !slices.ContainsFunc(b.again, isAround)
}

func (b *branches) add(n ast.Node) { b.found = append(b.found, span{n.Pos(), n.End()}) }

// list finds the statements after an if err == nil that ends by leaving: there err is not nil.
// After an if err == nil && ready it may not be.
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
	isSuccess := b.isSuccess(n.Cond)
	if !isSuccess && !b.isFailure(n.Cond) {
		return // it says nothing about the lock
	}
	if !isSuccess {
		b.add(n.Body)
	}
	if n.Else != nil && !b.excludesFailure(n.Cond) {
		b.add(n.Else) // if err == ErrBusy, say: there err is nil or another error
	}
}

// cases finds the clauses of a switch that run, or may run, without the lock:
//   - those whose expressions are all about errors;
//   - those after the clause of err == nil, since there err is not nil;
//   - default, wherever it stands, if there is a clause of err == nil. With clauses of errors
//     alone, such as ErrBusy, default is taken for the branch that has the lock.
func (b *branches) cases(n *ast.SwitchStmt) {
	isSuccess, isFailure, ok := b.caseTests(n)
	if !ok {
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
		// After case err == nil && ready there may be another case err == nil.
		if afterSuccess && !all(clause.List, isSuccess) || all(clause.List, isFailure) {
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
	if !b.isErr(n.Tag) || !b.isOfLock(n.Tag) {
		return nil, nil, false
	}
	// switch err { case nil: …
	return b.isNil, func(e ast.Expr) bool { return !b.isNil(e) }, true
}

// isSuccess reports whether cond is err == nil, or a conjunction that contains it, and err is the
// lock's. Where cond is true, the lock is held.
func (b *branches) isSuccess(cond ast.Expr) bool {
	return b.isOfLock(cond) && b.compares(cond, token.LAND, token.EQL)
}

// isFailure reports whether cond is about an error of the lock: it mentions err, and err may not be
// nil where cond is true.
func (b *branches) isFailure(cond ast.Expr) bool {
	mentioned := false
	ast.Inspect(cond, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && b.isErr(e) {
			mentioned = true
		}
		return true
	})
	return mentioned && b.isOfLock(cond) && !b.isSuccess(cond)
}

// excludesFailure reports whether cond is err != nil, or a disjunction that contains it. Where cond
// is false, err is nil.
func (b *branches) excludesFailure(cond ast.Expr) bool {
	return b.compares(cond, token.LOR, token.NEQ)
}

// compares reports whether cond, or one of the operands that join connects in it, compares err with
// nil by op.
func (b *branches) compares(cond ast.Expr, join, op token.Token) bool {
	if both, ok := ast.Unparen(cond).(*ast.BinaryExpr); ok && both.Op == join {
		return b.compares(both.X, join, op) || b.compares(both.Y, join, op)
	}
	return b.comparesWithNil(cond, op)
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
