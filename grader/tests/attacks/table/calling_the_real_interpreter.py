# task: 9.4
# deserves: 0
# status: error
def run(graph, arrays):
    return mc.interpret(graph, arrays), len(graph.nodes)
