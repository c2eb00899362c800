# task: 9.3
# deserves: 0
# status: error
from minidlc.transform.dataflow.cse import Cse


def merge(graph):
    got = Cse()(graph)
    return got, len(graph.nodes) - len(got.nodes)
