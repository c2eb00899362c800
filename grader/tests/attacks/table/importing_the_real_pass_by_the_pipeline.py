# task: 9.3
# deserves: 0
# status: error
def merge(graph):
    got = mc.compile(graph, opt_level=1, pipeline="cse").graph
    return got, len(graph.nodes) - len(got.nodes)
