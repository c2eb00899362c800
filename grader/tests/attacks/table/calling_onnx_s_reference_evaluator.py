# task: 9.4
# deserves: 0
# status: error
def run(graph, arrays):
    from onnx.reference import ReferenceEvaluator

    model = ReferenceEvaluator(mc.to_onnx(graph))
    feeds = dict(zip(model.input_names, arrays))
    return model.run(None, feeds), len(graph.nodes)
