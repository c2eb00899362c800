"""A session: a compiled model with its inputs and outputs, set and read one at a time.

    s = mc.session(mc.compile("lenet.onnx"))
    s.set_input("x", image)                         # by name or number; checked here, and copied
    s.run()
    s.get_output(0)                                 # the same memory after every run

What does not change from run to run is set once. Runs write into the arrays of the first run, but
for a model of open sizes, whose results may differ in size. Reads an executable. Treated in course
chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidlc.calling import checked_array
from minidlc.executable import Executable
from minidlc.expr.types import Array
from minidlc.graph import Graph
from minidlc.sources import GraphSource, Sizes, Source
from minidlc.support.arguments import expect
from minidlc.support.errors import CallError, OptionError, nearest
from minidlc.support.locations import caller
from minidlc.template import Template


def session(model: Executable) -> Session:
    """A session of a compiled model; OptionError for anything else."""
    expect("session", "model", model, Executable, hint="session(compile(model))")
    return Session(model)


def _interface(model: Executable) -> Source:
    """The inputs of a model whose sizes are all known."""
    return GraphSource(Graph.of(model.interface.name, model.interface.inputs, []))


class Session:
    """Inputs, outputs and `run`. For one thread at a time; sessions of one model share its code."""

    def __init__(self, model: Executable) -> None:
        self.model = model
        self._source: Source = model.declared if isinstance(model, Template) else _interface(model)
        self._inputs: dict[str, Array] = {}
        self._outputs: list[Array] | None = None

    def __repr__(self) -> str:
        given = f"{len(self._inputs)} of {len(self.input_names)} inputs set"
        return f"<Session of {self.model!r}: {given}>"

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        return tuple(d.name for d in self._source.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs; those of a model of open sizes are known after a run (MDLC1027)."""
        return self.model.interface.output_names

    def get_num_inputs(self) -> int:
        """How many inputs the model takes."""
        return len(self._source.inputs)

    def get_num_outputs(self) -> int:
        """How many outputs it gives."""
        return len(self.output_names)

    def set_input(self, which: str | int, array: object) -> None:
        """Copy an array into an input; it stays for all runs until it is set again.

        Raises CallError: MDLC0902 for an input that the model has not, MDLC0901, 0903, 0904 for an
        array of another element type or shape.
        """
        wanted = self._source.inputs[self._input(which)]
        checked = checked_array(wanted.name, wanted.dtype, wanted, array)
        Sizes(self._source).match(wanted, checked.shape)
        buffer = self._inputs.get(wanted.name)
        if buffer is None or buffer.shape != checked.shape:
            self._inputs[wanted.name] = np.array(checked, order="C", copy=True)
        else:
            np.copyto(buffer, checked)

    def run(self) -> None:
        """Run the model; CallError (MDLC0902) names an input that was never set."""
        missing = [name for name in self.input_names if name not in self._inputs]
        if missing:
            others = f" and {len(missing) - 1} more" if missing[1:] else ""
            hint = f"set_input({missing[0]!r}, array)"
            raise self._refusal(f"input {missing[0]!r} is not set{others}", hint)
        arrays = [self._inputs[name] for name in self.input_names]
        if self._outputs is None or isinstance(self.model, Template):
            self._outputs = self.model(*arrays)
        else:
            self.model(*arrays, out=self._outputs)

    def get_output(self, which: str | int = 0) -> Array:
        """A result of the last run, read-only: the next run may write over it, copy what you keep.

        Raises OptionError (MDLC1030) for an output that the model has not, and before any run.
        """
        if self._outputs is None:
            text = f"{self._source.name}: output {which!r} is asked for before the first run"
            raise OptionError(text, loc=caller(), hint="run()", code="MDLC1030")
        view = self._outputs[self._output(which)].view()
        view.flags.writeable = False
        return view

    def _input(self, which: str | int) -> int:
        """The number of an input; its name in the ONNX file counts too."""
        inputs = self._source.inputs
        if isinstance(which, str):
            for number, d in enumerate(inputs):
                if which in (d.name, d.onnx_name):
                    return number
            raise self._refusal(f"no input {which!r}", nearest(which, self.input_names))
        if type(which) is not int or not 0 <= which < len(inputs):
            raise self._refusal(f"no input {which!r}", _numbers("input", len(inputs)))
        return which

    def _output(self, which: str | int) -> int:
        names = self.output_names
        if isinstance(which, str) and which in names:
            return names.index(which)
        if type(which) is int and 0 <= which < len(names):
            return which
        named = isinstance(which, str)
        hint = nearest(which, names) if named else _numbers("output", len(names))
        text = f"{self._source.name}: no output {which!r}"
        notes = tuple(
            f"{name}: {type}"
            for name, type in zip(names, self.model.interface.outputs, strict=True)
        )
        raise OptionError(text, loc=caller(), notes=notes, hint=hint, code="MDLC1030")

    def _refusal(self, text: str, hint: str | None) -> CallError:
        notes: Sequence[str] = [f"{d.name}: {d}" for d in self._source.inputs]
        text = f"{self._source.name}: {text}"
        return CallError(text, loc=caller(), notes=notes, hint=hint, code="MDLC0902")


def _numbers(what: str, count: int) -> str:
    return f"{what}s are 0 to {count - 1}" if count else f"there are no {what}s"
