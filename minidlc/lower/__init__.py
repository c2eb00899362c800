"""Graph → kernels → one program: expressions, schedules, loops, and the memory they run in."""

from minidlc.lower.kernels import LoweredKernel
from minidlc.lower.memory import BufferRequest, plan_memory
from minidlc.lower.program import Program, lower_graph

__all__ = ["BufferRequest", "LoweredKernel", "Program", "lower_graph", "plan_memory"]
