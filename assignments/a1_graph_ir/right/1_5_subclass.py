"""Extends the shipped reader of one `def`: an operand may be an expression, read by recursion."""

import ast

from minidlc.graph.graph import Graph
from minidlc.graph.parser import _Function
from minidlc.support.source import Source

OPS = dict(Add="add", Sub="sub", Mult="mul", Div="div", MatMult="matmul", Pow="pow", USub="neg")


class Expressions(_Function):
    """Builds the nodes itself; no text is rewritten, so every place stays what it is."""

    def _call(self, value):
        match value:
            case ast.Call(func=ast.Name()):
                return value
            case ast.BinOp(left=a, op=op, right=b) if type(op).__name__ in OPS:
                inputs = [a, b]
            case ast.UnaryOp(op=ast.USub() as op, operand=a):
                inputs = [a]
            case _:
                raise self._error(value, "this is no expression", "0314")
        func = ast.copy_location(ast.Name(OPS[type(op).__name__]), value)
        return ast.copy_location(ast.Call(func, inputs, []), value)

    def _operand(self, a):
        if isinstance(a, ast.Name) or (isinstance(a, ast.Constant) and a.value is None):
            return super()._operand(a)
        call = self._call(a)
        if call.func.id == "const":
            raise self._error(a, "a constant is no expression", "0314")
        return self._node("inner", call)

    def _outputs(self, statement):
        items = statement.value
        if items is None:
            return super()._outputs(statement)
        items = items.elts if isinstance(items, ast.Tuple) else [items]
        return tuple(self._operand(item) for item in items)

    def _nested(self, function):
        self._free(function, function.name)
        inner = Expressions(self.source, self.weights, self.depth + 1)
        self.graphs[function.name] = inner.read(function)


def parse_expressions(text, weights, file):
    """The graph of a text whose lines may hold expressions."""
    source = Source(file, text)
    match source.parse().body:
        case [ast.FunctionDef() as function]:
            graph = Expressions(source, weights, 0).read(function)
        case _:
            return mc.parse(text, weights, file=file)
    return Graph(graph.name, graph.inputs, graph.nodes, graph.outputs)
