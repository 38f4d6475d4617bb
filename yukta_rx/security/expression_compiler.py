"""Turns the syntax tree of an expression into closures, or says which part is not allowed.

What is not listed here does not exist in the language: the tree is walked by an allow-list of node
kinds. Apart from loops nothing is run twice, so the number of nodes bounds the work of one
evaluation, and only loops and what grows with the size of a value are charged for.
Feature: SEC-02.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from yukta_rx.security import expression_values as values
from yukta_rx.security.expression_functions import FUNCTIONS, METHODS, Function, Loop
from yukta_rx.security.expression_syntax import (
    CONSTANTS,
    NOT_ALLOWED,
    is_named_constant,
    literal,
    literals,
    member_name,
    place,
    refusal,
    size,
)
from yukta_rx.security.expression_values import SCALARS, Env, Place

Run = Callable[[Env], Any]
"""A compiled expression or part of one."""

_OPERATORS: Final[Mapping[type[ast.operator], Callable[..., Any]]] = {
    ast.Add: values.add,
    ast.Sub: values.subtract,
    ast.Mult: values.multiply,
    ast.Div: values.divide,
    ast.FloorDiv: values.floor_divide,
    ast.Mod: values.modulo,
}
_ORDERS: Final[Mapping[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_TUPLE_AT_MOST: Final = 8


class Compiler:
    """Compiles one expression.

    Attributes:
        used: the names that it reads, in the order of their places in the environment, which
            begin at 1.

    Args:
        names: the names that it may read.
        aliases: other names for them.
    """

    def __init__(self, names: tuple[str, ...], aliases: Mapping[str, str]) -> None:
        self.used: list[str] = []
        self._names = names
        self._aliases = aliases
        self._loops: dict[str, int] = {}
        self._loop_slots: list[int] = []
        self._handlers: Mapping[type[ast.AST], Callable[[Any], Run]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Subscript: self._subscript,
            ast.BoolOp: self._bool_op,
            ast.UnaryOp: self._unary_op,
            ast.BinOp: self._bin_op,
            ast.Compare: self._compare,
            ast.IfExp: self._if_exp,
            ast.Call: self._call,
            ast.List: self._array,
            ast.Tuple: self._array,
            ast.Dict: self._object,
        }

    def compile(self, body: ast.expr) -> tuple[Run, int]:
        """Return what evaluates the expression, and how many loop variables it needs.

        Raises:
            SyntaxRefusal: it has a part that is not allowed.
        """
        # Names come before loop variables in the environment, and are known before any loop.
        self.used = [name for name in self._names if name in self._read(body)]
        run = self._part(body)
        return run, len(self._loop_slots)

    def _read(self, body: ast.expr) -> set[str]:
        read = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)}
        return {self._aliases.get(name, name) for name in read}

    # --- parts

    def _part(self, node: ast.AST) -> Run:
        handler = self._handlers.get(type(node))
        if handler is None:
            raise refusal(node, NOT_ALLOWED.get(type(node), "this is not available"))
        return handler(node)

    def _constant(self, node: ast.Constant) -> Run:
        value = literal(node)
        return lambda env: value

    def _name(self, node: ast.Name) -> Run:
        slot = self._slot(node)
        if slot is None:
            value = CONSTANTS[node.id]
            return lambda env: value
        return lambda env: env[slot]

    def _slot(self, node: ast.Name) -> int | None:
        """Return the place of a name in the environment, None for a constant."""
        name = node.id
        if name in self._loops:
            return self._loops[name]
        name = self._aliases.get(name, name)
        if name in self.used:
            return 1 + self.used.index(name)
        if name in CONSTANTS:
            return None
        raise refusal(node, self._unknown(name))

    def _unknown(self, name: str) -> str:
        known = [*self._names, *self._aliases, *self._loops]
        if name in FUNCTIONS:
            return f"`{name}` is a function: {name}(...)"
        if close := get_close_matches(name, [*known, *CONSTANTS], n=1, cutoff=0.75):
            return f"there is no `{name}` here; did you mean `{close[0]}`?"
        if name in ("undefined", "nil", "NULL"):
            return f"there is no `{name}` here; did you mean `null`?"
        if "payload" in self._names and name.isidentifier():
            return f"there is no `{name}` here; did you mean `payload.{name}`?"
        return f"there is no `{name}` here; there are {', '.join(known)}"

    def _attribute(self, node: ast.Attribute) -> Run:
        name, at = member_name(node), place(node)
        member = values.member
        if isinstance(node.value, ast.Name) and (slot := self._slot(node.value)) is not None:
            where = slot

            def of_name(env: Env) -> Any:
                holder = env[where]
                if type(holder) is dict and name in holder:
                    return holder[name]
                return member(env, at, holder, name)

            return of_name
        inner = self._part(node.value)

        def run(env: Env) -> Any:
            holder = inner(env)
            if type(holder) is dict and name in holder:
                return holder[name]
            return member(env, at, holder, name)

        return run

    def _subscript(self, node: ast.Subscript) -> Run:
        holder, at = self._part(node.value), place(node)
        if isinstance(node.slice, ast.Slice):
            bounds = [
                self._part(bound) if bound is not None else None
                for bound in (node.slice.lower, node.slice.upper, node.slice.step)
            ]

            def sliced(env: Env) -> Any:
                held = holder(env)
                start, stop, step = (None if bound is None else bound(env) for bound in bounds)
                return values.cut(env, at, held, start, stop, step)

            return sliced
        key, element = self._part(node.slice), values.element
        return lambda env: element(env, at, holder(env), key(env))

    def _array(self, node: ast.List | ast.Tuple) -> Run:
        parts = [self._part(item) for item in node.elts]
        made: Callable[[Iterator[Any]], Any] = list if isinstance(node, ast.List) else tuple
        return lambda env: made(part(env) for part in parts)

    def _object(self, node: ast.Dict) -> Run:
        members: list[tuple[str, Run]] = []
        for key, value in zip(node.keys, node.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                raise refusal(key or node, "the names of an object's members are texts in quotes")
            members.append((key.value, self._part(value)))
        return lambda env: {name: part(env) for name, part in members}

    # --- logic

    def _bool_op(self, node: ast.BoolOp) -> Run:
        parts = [self._part(value) for value in node.values]
        *others, last = parts
        at, truth = place(node), values.truth
        if isinstance(node.op, ast.And):

            def every(env: Env) -> Any:
                for part in others:
                    value = part(env)
                    if value is True:
                        continue
                    if value is False or not truth(env, at, value):
                        return value
                return last(env)

            return every

        def some(env: Env) -> Any:
            for part in others:
                value = part(env)
                if value is False:
                    continue
                if value is True or truth(env, at, value):
                    return value
            return last(env)

        return some

    def _unary_op(self, node: ast.UnaryOp) -> Run:
        operand, at = self._part(node.operand), place(node)
        if isinstance(node.op, ast.Not):
            return lambda env: not values.truth(env, at, operand(env))
        if isinstance(node.op, ast.Invert):
            raise refusal(node, NOT_ALLOWED[ast.Invert])
        symbol = "-" if isinstance(node.op, ast.USub) else "+"
        return lambda env: values.signed(env, at, symbol, operand(env))

    def _if_exp(self, node: ast.IfExp) -> Run:
        test, then = self._part(node.test), self._part(node.body)
        otherwise, at = self._part(node.orelse), place(node)
        return lambda env: (then if values.truth(env, at, test(env)) else otherwise)(env)

    # --- arithmetic and comparisons

    def _bin_op(self, node: ast.BinOp) -> Run:
        compute = _OPERATORS.get(type(node.op))
        if compute is None:
            raise refusal(node, NOT_ALLOWED[type(node.op)])
        left, right, at = self._part(node.left), self._part(node.right), place(node)
        return lambda env: compute(env, at, left(env), right(env))

    def _compare(self, node: ast.Compare) -> Run:
        tests = [
            self._test(op, left, right, place(node))
            for op, left, right in zip(
                node.ops, [node.left, *node.comparators], node.comparators, strict=False
            )
        ]
        first = self._part(node.left)
        if len(tests) == 1:
            return _compared(first, *tests[0])
        rest = [(test, right) for right, test in tests]

        def chain(env: Env) -> bool:
            left = first(env)
            for test, part in rest:
                right = part(env)
                if not test(env, left, right):
                    return False
                left = right
            return True

        return chain

    def _test(
        self, op: ast.cmpop, left: ast.expr, right: ast.expr, at: Place
    ) -> tuple[Run, Callable[[Env, Any, Any], bool]]:
        """Return the right operand of a comparison, and the comparison."""
        kind = type(op)
        if kind in _ORDERS:
            symbol, compare = _ORDERS[kind]
            return self._part(right), _ordering(at, symbol, compare)
        if kind in (ast.In, ast.NotIn):
            return self._membership(right, at, wanted=kind is ast.In)
        if kind in (ast.Is, ast.IsNot) and not is_named_constant(right):
            raise refusal(right, "`is` goes with None, True and False only; `==` compares values")
        return self._part(right), _equality(at, wanted=kind in (ast.Eq, ast.Is), op=kind)

    def _membership(
        self, right: ast.expr, at: Place, *, wanted: bool
    ) -> tuple[Run, Callable[[Env, Any, Any], bool]]:
        contains = values.contains
        if isinstance(right, (ast.List, ast.Tuple, ast.Set)):
            constants = literals(right)
            if constants is not None:
                many = len(constants) > _TUPLE_AT_MOST
                known = frozenset(constants) if many else constants

                def among(env: Env, item: Any, holder: Any) -> bool:
                    if type(item) in SCALARS:
                        return (item in known) is wanted
                    return contains(env, at, item, constants) is wanted

                return (lambda env: None), among
            right = ast.copy_location(ast.Tuple(right.elts, ast.Load()), right)
        return self._part(
            right
        ), lambda env, item, holder: contains(env, at, item, holder) is wanted

    # --- calls

    def _call(self, node: ast.Call) -> Run:
        if node.keywords:
            raise refusal(node.keywords[0].value, "arguments are given without names here")
        called = node.func
        if isinstance(called, ast.Attribute):
            return self._method(node, called)
        if not isinstance(called, ast.Name):
            raise refusal(called, "this cannot be called")
        function = FUNCTIONS.get(called.id)
        if function is None:
            raise refusal(called, _no_such("function", called.id, FUNCTIONS))
        _check_arguments(node, called.id, function)
        return _calling(function.run, place(node), self._arguments(node, function))

    def _method(self, node: ast.Call, called: ast.Attribute) -> Run:
        name = member_name(called)
        method = METHODS.get(name)
        if method is None:
            raise refusal(called, _no_such("method", name, METHODS))
        _check_arguments(node, name, method)
        parts = [self._part(called.value), *self._arguments(node, method)]
        return _calling(method.run, place(node), parts)

    def _arguments(self, node: ast.Call, function: Function) -> list[Run]:
        alone = len(node.args) == 1
        return [
            self._loop(argument)
            if alone and function.loops and isinstance(argument, ast.GeneratorExp)
            else self._part(argument)
            for argument in node.args
        ]

    def _loop(self, node: ast.GeneratorExp) -> Run:
        if len(node.generators) > 1:
            raise refusal(node.generators[1].target, "one `for` at a time; put any() into any()")
        (part,) = node.generators
        if not isinstance(part.target, ast.Name) or part.is_async:
            raise refusal(part.target, "a loop has one plain name: `for x in ...`")
        name = part.target.id
        if name in (*self._names, *self._aliases, *self._loops, *CONSTANTS, *FUNCTIONS):
            raise refusal(part.target, f"`{name}` is taken; give the loop another name")
        source, at = self._part(part.iter), place(part.iter)
        slot = 1 + len(self.used) + len(self._loop_slots)
        self._loop_slots.append(slot)
        self._loops[name] = slot
        tests = [self._part(test) for test in part.ifs]
        body = self._part(node.elt)
        del self._loops[name]
        cost = 2 + sum(size(item) for item in (node.elt, *part.ifs))
        charge, truth = values.charge, values.truth

        def each(env: Env) -> Iterator[Any]:
            for item in values.items(env, at, source(env)):
                charge(env, at, cost)
                env[slot] = item
                if all(truth(env, at, test(env)) for test in tests):
                    yield body(env)

        return lambda env: Loop(each(env))


# --- pieces --------------------------------------------------------------------------------------


def _compared(first: Run, right: Run, test: Callable[[Env, Any, Any], bool]) -> Run:
    return lambda env: test(env, first(env), right(env))


def _ordering(
    at: Place, symbol: str, compare: Callable[[Any, Any], Any]
) -> Callable[[Env, Any, Any], bool]:
    order = values.order

    def test(env: Env, left: Any, right: Any) -> bool:
        if type(left) is int and type(right) is int:
            return bool(compare(left, right))
        return order(env, at, compare, symbol, left, right)

    return test


def _equality(at: Place, *, wanted: bool, op: type[ast.cmpop]) -> Callable[[Env, Any, Any], bool]:
    if op in (ast.Is, ast.IsNot):
        return lambda env, left, right: (left is right) is wanted
    same = values.same
    return lambda env, left, right: same(env, at, left, right) is wanted


def _calling(run: Callable[..., Any], at: Place, parts: list[Run]) -> Run:
    if len(parts) == 1:
        (only,) = parts
        return lambda env: run(env, at, only(env))
    return lambda env: run(env, at, *[part(env) for part in parts])


def _check_arguments(node: ast.Call, name: str, function: Function) -> None:
    given = len(node.args)
    if function.least <= given <= function.most:
        return
    wanted = str(function.least)
    if function.most > function.least:
        wanted += f" to {function.most}"
    plural = "" if wanted == "1" else "s"
    raise refusal(node, f"{name}() takes {wanted} argument{plural}, not {given}")


def _no_such(kind: str, name: str, known: Mapping[str, Any]) -> str:
    if close := get_close_matches(name, known, n=1):
        return f"there is no {kind} {name}(); did you mean {close[0]}()?"
    return f"there is no {kind} {name}(); there are {', '.join(known)}"
